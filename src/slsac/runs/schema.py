"""What a file must hold, said in a few words and checked before anything else looks at it.

A check takes a value and the name of its place, and raises `Misfit` unless the value fits. Checks
are put together as the file is: ``record({"step": whole, "costs": list_of(number)})``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_safetensors

from slsac.errors import brief

Check = Callable[[Any, str], None]

DEEPEST = 32
MOST_VALUES = 2_000_000
"""Nesting and size of a document, aliases written out: no file of ours comes near either."""


class Misfit(ValueError):
    """One line: the place, what is there, and what is allowed."""


class Optional(NamedTuple):
    """A field of a `record` that may be missing."""

    check: Check


def parse_json(data: bytes, check: Check, name: str = "it") -> Any:
    """The value in JSON text. Raise Misfit unless it fits ``check``."""
    try:
        value = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise Misfit(f"{name} is not JSON: {brief(str(error), quoted=False)}") from None
    require_modest(value)
    check(value, name)
    return value


def parse_tensors(data: bytes) -> dict[str, np.ndarray]:
    """The arrays in a safetensors file. Raise Misfit unless it is one, of types that numpy has."""
    try:
        return load_safetensors(data)
    except (SafetensorError, KeyError, ValueError, TypeError, OverflowError) as error:
        reason = brief(str(error), quoted=False)
        raise Misfit(f"it is not a safetensors file of numpy types: {reason}") from None


def require_modest(value: Any) -> None:
    """Raise Misfit for a document that is nested without end, or that aliases make huge."""
    level, seen = [value], 1
    for _ in range(DEEPEST):
        parts = [part for outer in level if (part := _inside(outer))]
        if not parts:
            return
        seen += sum(map(len, parts))  # counted before they are gathered
        if seen > MOST_VALUES:
            raise Misfit(f"it holds more than {MOST_VALUES:,} values")
        level = [inner for part in parts for inner in part]
    raise Misfit(f"it is nested deeper than {DEEPEST} levels")


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def anything(value: Any, name: str) -> None:
    """Fits always."""


def nothing(value: Any, name: str) -> None:
    """Fits never: for fields that must not be there."""
    raise Misfit(f"{name} is not a field of it")


def number(value: Any, name: str) -> None:
    """A finite number."""
    if not _is_number(value):
        raise _misfit(value, name, "a finite number")


def figure(value: Any, name: str) -> None:
    """A number that may be missing or not finite, as a log may have it."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise _misfit(value, name, "a number or null")


def whole(value: Any, name: str) -> None:
    """A whole number, 0 or more, that 64 bits hold."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise _misfit(value, name, "a whole number of at least 0")


def positive(value: Any, name: str) -> None:
    """A whole number of at least 1."""
    whole(value, name)
    if value == 0:
        raise _misfit(value, name, "a whole number of at least 1")


def text(value: Any, name: str) -> None:
    if not isinstance(value, str):
        raise _misfit(value, name, "text")


def flag(value: Any, name: str) -> None:
    if not isinstance(value, bool):
        raise _misfit(value, name, "true or false")


def nullable(check: Check) -> Check:
    """What ``check`` allows, or null."""

    def nullable_check(value: Any, name: str) -> None:
        if value is not None:
            check(value, name)

    return nullable_check


def list_of(check: Check, length: int | None = None) -> Check:
    """A list whose items all fit, ``length`` of them where it is given."""

    def list_check(value: Any, name: str) -> None:
        if not isinstance(value, list):
            raise _misfit(value, name, "a list")
        if length is not None and len(value) != length:
            raise Misfit(f"{name} has {len(value)} items; it must have {length}")
        for place, item in enumerate(value):
            check(item, f"{name}[{place}]")

    return list_check


def record(fields: Mapping[str, Check | Optional], others: Check = anything) -> Check:
    """An object with these fields; ``others`` is what any further field must fit."""

    def record_check(value: Any, name: str) -> None:
        if not isinstance(value, dict):
            raise _misfit(value, name, "an object")
        for field, check in fields.items():
            if field in value:
                inner = check.check if isinstance(check, Optional) else check
                inner(value[field], field)
            elif not isinstance(check, Optional):
                raise Misfit(f"{field} is missing")
        for field, item in value.items():
            if field not in fields:
                others(item, brief(field, quoted=False))

    return record_check


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _misfit(value: Any, name: str, allowed: str) -> Misfit:
    return Misfit(f"{name} is {brief(value)}; it must be {allowed}")
