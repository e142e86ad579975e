# SPDX-License-Identifier: MIT
"""`${NAME}` and `${NAME:-default}` in the texts of a configuration; `$${` stands for a plain `${`.

Texts are filled in after the file was parsed, so that no variable can smuggle in keys or tables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Path = tuple[str | int, ...]

_REFERENCE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|(\$\{)")


class EnvText(str):
    """A text that came from the environment: numbers and booleans may be read from it."""

    __slots__ = ()


def fill_in(value: Any, environ: Mapping[str, str], problems: dict[Path, str], path: Path = ()) -> Any:
    """`value` with every reference replaced; what cannot be replaced is noted in `problems` by its path."""
    if isinstance(value, dict):
        return {key: fill_in(item, environ, problems, (*path, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [fill_in(item, environ, problems, (*path, place)) for place, item in enumerate(value)]
    if isinstance(value, str) and "${" in value:
        return _fill_text(value, environ, problems, path)
    return value


def _fill_text(text: str, environ: Mapping[str, str], problems: dict[Path, str], path: Path) -> str:
    def replacement(match: re.Match[str]) -> str:
        name, default = match.group(1), match.group(2)
        if match.group(0) == "$${":
            return "${"
        if name is None:
            problems[path] = f"expected ${{NAME}} or ${{NAME:-default}}, got {text!r}"
            return ""
        found = environ.get(name) or default  # empty counts as unset, as in a shell's :-
        if found is None:
            problems[path] = f"environment variable {name} is not set and ${{{name}}} gives no default"
            return ""
        return found

    return EnvText(_REFERENCE.sub(replacement, text))
