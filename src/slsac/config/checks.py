"""Checks of config fields: each raises InvalidInput with one line that names the field."""

from __future__ import annotations

import typing
from functools import cache
from typing import Any, Literal

from slsac.errors import InvalidInput

_type_hints = cache(typing.get_type_hints)


def type_hints(kind: type) -> dict[str, Any]:
    """The type of every field of a config class; cached, as every config is checked with it."""
    return _type_hints(kind)


def require(ok: bool, field: str, value: object, allowed: str) -> None:
    """Raise InvalidInput unless ``ok``; the text names the field, its value and what is allowed."""
    if not ok:
        raise InvalidInput(f"{field} is {value}; it must be {allowed}")


def require_at_least(least: int, part: object, *fields: str) -> None:
    """Raise InvalidInput unless each of ``fields`` is at least ``least``."""
    for field in fields:
        value = getattr(part, field)
        require(value >= least, field, value, f"at least {least}")


def require_above_zero(part: object, *fields: str) -> None:
    """Raise InvalidInput unless each of ``fields`` is above 0."""
    for field in fields:
        value = getattr(part, field)
        require(value > 0, field, value, "above 0")


def require_below_one(part: object, *fields: str) -> None:
    """Raise InvalidInput unless each of ``fields`` is in [0, 1)."""
    for field in fields:
        value = getattr(part, field)
        require(0 <= value < 1, field, value, "in [0, 1)")


def require_choices(part: object) -> None:
    """Raise InvalidInput unless every field of a Literal type has one of its values."""
    for field, hint in type_hints(type(part)).items():
        if typing.get_origin(hint) is Literal:
            value, allowed = getattr(part, field), typing.get_args(hint)
            require(value in allowed, field, repr(value), f"one of {', '.join(allowed)}")


def require_widths(part: object, field: str) -> None:
    """Raise InvalidInput unless ``field`` lists one layer or more, each with a unit or more."""
    widths = getattr(part, field)
    require(
        len(widths) > 0 and all(width >= 1 for width in widths),
        field, widths, "one or more layer widths of at least 1",
    )  # fmt: skip
