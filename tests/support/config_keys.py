# SPDX-License-Identifier: MIT
"""Which keys the configuration knows, and which an annotated file mentions."""

from __future__ import annotations

import re
from typing import get_args

from pydantic import BaseModel

from echomq_pool.config.models import File


def known_keys() -> set[str]:
    """Every key of every table, as "table.key"."""
    found: set[str] = set()
    for name, field in File.model_fields.items():
        model = _model_in(field.annotation)
        if model is None:
            found.add(f".{name}")
            continue
        table = "workers" if name == "defaults" else name
        found.update(f"{table}.{key}" for key in model.model_fields)
    return found


def documented_keys(text: str) -> set[str]:
    """Every "table.key" that stands in `text`, commented out or not."""
    table, found = "", set()
    for line in text.splitlines():
        header = re.match(r"#?\s*\[+([a-z_.]+)\]+", line)
        if header is not None:
            table = header.group(1).replace("defaults", "workers")
            continue
        key = re.match(r"#?\s*([a-z_]+) = ", line)
        if key is not None:
            found.add(f"{table}.{key.group(1)}")
    return found


def _model_in(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in get_args(annotation):
        found = _model_in(part)
        if found is not None:
            return found
    return None
