# SPDX-License-Identifier: MIT
"""Arguments of a task against its signature: at the producer before anything is written, at the worker before it runs.

Annotations are checked as far as JSON can tell them apart: str, bool, int, float (an int is one, too), None, list,
dict, tuple, Literal, unions of these, and Any. Whatever else an annotation says is the function's own affair.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from echomq_pool.errors import InputError

JOB = "job"  # a parameter of this name gets the job itself

_KINDS = inspect.Parameter


class ArgumentsError(InputError):
    """The arguments do not fit the task. The message names the task, the argument, what was expected and what came."""


class Arguments:
    """The signature of one task.

    Raises:
        InputError: parameters that cannot be filled from a JSON object.
    """

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name = name
        parameters = inspect.signature(function).parameters
        for parameter in parameters.values():
            if parameter.kind in (_KINDS.POSITIONAL_ONLY, _KINDS.VAR_POSITIONAL):
                raise InputError(f"task {name}: {parameter} has no name that a job could give it a value by")
        self.wants_job = JOB in parameters
        self._parameters = {key: p for key, p in parameters.items() if key != JOB}
        self._signature = inspect.Signature(list(self._parameters.values()))
        try:
            self._hints = get_type_hints(function)
        except (NameError, TypeError):  # names known to type checkers alone
            self._hints = {}

    def bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by name, as they are stored: only those given.

        Raises:
            ArgumentsError: one is missing, unknown, given twice or of the wrong type.
        """
        try:
            found = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentsError(f"task {self.name}: {error}; it takes {self._shape()}") from None
        given: dict[str, Any] = {}
        for key, value in found.arguments.items():
            if self._parameters[key].kind is _KINDS.VAR_KEYWORD:
                given |= value
            else:
                self._check(key, value)
                given[key] = value
        return given

    def check_data(self, data: Any) -> dict[str, Any]:
        """A job's data as keyword arguments.

        Raises:
            ArgumentsError: it is no object, or does not fit.
        """
        if not isinstance(data, dict):
            raise ArgumentsError(f"task {self.name}: expected an object of arguments, got {_short(data)}")
        return self.bound((), data)

    def _check(self, key: str, value: Any) -> None:
        hint = self._hints.get(key, Any)
        if not fits(value, hint):
            expected = getattr(hint, "__name__", None) if isinstance(hint, type) else None
            raise ArgumentsError(
                f"task {self.name}: {key}: expected {expected or str(hint).replace('typing.', '')}, "
                f"got {type(value).__name__} {_short(value)}"
            )

    def _shape(self) -> str:
        return f"({', '.join(map(str, self._parameters.values()))})"


def fits(value: Any, hint: Any) -> bool:
    """Whether a JSON value may stand where `hint` is written; True for hints that say nothing about JSON."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(fits(value, arg) for arg in args)
    if origin is Literal:
        return any(value == arg and type(value) is type(arg) for arg in args)
    check = _CHECKS.get(origin or hint)
    if check is None:
        return True
    return check(value) and _inside(value, origin, args)


def _inside(value: Any, origin: Any, args: tuple[Any, ...]) -> bool:
    if not args:
        return True
    if origin in (dict, Mapping):
        return all(fits(item, args[1]) for item in value.values())
    if origin is tuple and args[-1] is not Ellipsis:
        return len(value) == len(args) and all(map(fits, value, args))
    return all(fits(item, args[0]) for item in value)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


_CHECKS: dict[Any, Callable[[Any], bool]] = {
    str: lambda value: isinstance(value, str),
    bool: lambda value: isinstance(value, bool),
    int: lambda value: isinstance(value, int) and not isinstance(value, bool),
    float: lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    type(None): lambda value: value is None,
    None: lambda value: value is None,
    list: _is_list,
    tuple: _is_list,
    Sequence: _is_list,
    dict: lambda value: isinstance(value, dict),
    Mapping: lambda value: isinstance(value, dict),
}


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
