# SPDX-License-Identifier: MIT
"""From a validator's findings to sentences: key path, what was expected, what was there, what was meant."""

from __future__ import annotations

import difflib
import re
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from echomq_pool.config.models import File
from echomq_pool.config.url import hide_password

Path = tuple[str | int, ...]

SECRET_KEYS = {"password", "username"}
STAND_INS: dict[str, Any] = {  # for required keys, so that the rest of their table can be looked at
    "id": "stand-in",
    "name": "stand-in",
    "queue": "stand-in",
    "queues": ["stand-in"],
}
KIND_WORDS = {
    "list_type": "a list",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "dict_type": "a table",
}


def sentences(error: ValidationError) -> dict[Path, str]:
    """One sentence per path found wrong, without the file's name."""
    items = [(_file_path(item["loc"]), item) for item in error.errors(include_url=False)]
    found: dict[Path, str] = {}
    for path, item in items:
        if item["type"] == "extra_forbidden":
            found[path] = _unknown(path, item["input"])
        elif item["type"] == "missing":
            found[path] = "this key is required and missing"
        else:
            expected = (
                item["msg"] if item["type"] == "expected" else KIND_WORDS.get(item["type"], item["msg"])
            )
            found[path] = f"expected {expected}, got {shown(item['input'], path)}"
    return found


def prune(data: dict[str, Any], error: ValidationError) -> set[Path]:
    """Takes what `error` complains of out of `data`; returns the tables that this may have changed."""
    spoilt: set[Path] = set()
    found = [(_file_path(item["loc"]), item["type"]) for item in error.errors(include_url=False)]
    # From the back, so that a list entry taken out leaves the places of those before it alone.
    for path, kind in sorted(found, key=lambda item: [str(part).zfill(6) for part in item[0]], reverse=True):
        if kind != "extra_forbidden":
            spoilt.add(path[:-1])
        _take_out(data, path)
    return spoilt


def _take_out(data: Any, path: Path) -> None:
    for part in path[:-1]:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            return
    key = path[-1] if path else None
    if isinstance(data, dict):
        data.pop(key, None)
        if key in STAND_INS and len(path) == 3:
            data[key] = STAND_INS[str(key)]
    elif isinstance(data, list) and isinstance(key, int) and key < len(data):
        del data[key]


def path_text(path: Path) -> str:
    """workers[0].lock_duration"""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else (f".{part}" if text else part)
    return text


def shown(value: Any, path: Path = ()) -> str:
    """A value as the file has it, short, and never a secret."""
    if path and path[-1] in SECRET_KEYS:
        return "a value that is not shown"
    if isinstance(value, str):
        text = hide_password(value)
        return '"' + (text if len(text) <= 60 else text[:57] + "...") + '"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, dict):
        return "a table"
    return "a list" if isinstance(value, list) else str(value)


def _file_path(loc: tuple[int | str, ...]) -> Path:
    """Pydantic's location without the parts that name a validator or a union's branch."""
    return tuple(part for part in loc if isinstance(part, int) or re.fullmatch(r"[^\[\]() ]+", part))


def _unknown(path: Path, value: Any) -> str:
    key = str(path[-1])
    siblings = _keys_at(path[:-1])
    kind = "table" if isinstance(value, (dict, list)) and len(path) == 1 else "key"
    nearest = _nearest(key, siblings)
    if nearest is not None:
        return f'unknown {kind}; did you mean "{nearest}"?'
    inner = _inner_hint(value)
    return f"unknown {kind}; {inner}known here: {', '.join(siblings)}"


def _inner_hint(value: Any) -> str:
    """For a table that does not exist: where one of its keys would belong."""
    for key in value if isinstance(value, dict) else ():
        for table in ("defaults", "supervisor", "redis"):
            nearest = _nearest(str(key), _keys_at((table,)))
            if nearest is not None:
                return f'"{nearest}" belongs into [{table}]; '
    return ""


def _nearest(key: str, known: list[str]) -> str | None:
    snake = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", key).lower().replace("-", "_")
    found = difflib.get_close_matches(snake, known, n=1, cutoff=0.65)
    return found[0] if found else None


def _keys_at(path: Path) -> list[str]:
    model: type[BaseModel] | None = File
    for part in path:
        if isinstance(part, int) or model is None:
            continue
        field = model.model_fields.get(part)
        model = _model_in(field.annotation) if field is not None else None
    return list(model.model_fields) if model is not None else []


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in get_args(annotation):
        found = _model_in(part)
        if found is not None:
            return found
    return None
