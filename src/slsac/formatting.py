"""Numbers and summaries as people read them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any, Literal

Towards = Literal["up", "down"]
_ROUNDING = {
    "up": Context(prec=400, rounding=ROUND_CEILING),
    "down": Context(prec=400, rounding=ROUND_FLOOR),
}
"""With room for all digits of any float."""


def printable(text: str) -> str:
    """``text`` with control and other invisible characters spelled out, but for line ends.

    A terminal obeys such characters. They can stand in any name that comes from a file.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape").decode()
        for char in text
    )


def one_line(text: str) -> str:
    """``text`` without line ends and without characters that a terminal obeys."""
    return printable(" ".join(text.splitlines()))


def outward(value: float, decimals: int, towards: Towards) -> float:
    """``value`` rounded to ``decimals`` places: never below it (up), or never above it (down).

    A bound goes towards its own side: the nearest number may promise more than is proven.
    """
    if math.isinf(value):
        return value
    # Of twelve digits: a sum that leaves a bound of 35 at 34.99999999999999 does not make it 34.9.
    exact = Decimal(f"{value:.12g}")
    return float(_ROUNDING[towards].quantize(exact, Decimal(1).scaleb(-decimals)))


def _decimals(value: float, digits: int) -> int:
    """How many decimals show ``digits`` significant digits of ``value``."""
    return digits - 1 - Decimal(f"{value:.12g}").adjusted()


def number(
    value: float | None, digits: int, *, sign: bool = False, towards: Towards | None = None
) -> str:
    """``value`` with so many decimals, or two significant digits where it is too small for them; a
    dash for None.

    Args:
        sign: begin with + or -.
        towards: for a bound, see `outward`.
    """
    if value is None:
        return "-"
    small = 0.0 < abs(value) < 10.0 ** (1 - digits)
    if towards:
        value = outward(value, _decimals(value, 2) if small else digits, towards)
    return format(value, f"{'+' if sign else ''}{'.2g' if small else f'.{digits}f'}")


def significant(value: float, digits: int, towards: Towards | None = None) -> str:
    """``value`` with ``digits`` significant digits, but its whole part in full; no final zeros."""
    decimals = max(0, _decimals(value, digits))
    return f"{outward(value, decimals, towards) if towards else round(value, decimals):.12g}"


def cost_digits(cost_limit: float) -> int:
    """Decimals that tell costs around the limit apart."""
    return 1 if cost_limit >= 1 else 2


def extra_means(summary: Mapping[str, Any]) -> dict[str, float]:
    """Means of what only some envs report, such as success, by a readable name."""
    plain = ("return_mean", "cost_mean", "length_mean")
    return {
        name.removesuffix("_mean").replace("_", " "): value
        for name, value in summary.items()
        if name.endswith("_mean") and name not in plain
    }


def duration(seconds: float) -> str:
    """Hours and minutes, or minutes and seconds."""
    minutes = int(seconds // 60)
    if minutes >= 60:
        return f"{minutes // 60}h{minutes % 60:02d}m"
    return f"{minutes}m{int(seconds % 60):02d}s"


def sentence(summary: Mapping[str, Any]) -> str:
    """An evaluation in one line."""
    digits = cost_digits(summary["cost_limit"])

    def spread(name: str, digits: int) -> str:
        error = summary[f"{name}_se"]
        mean = number(summary[f"{name}_mean"], digits)
        return f"{mean} +- {number(error, digits)}" if error is not None else mean

    extras = "".join(f", {name} {number(value, 2)}" for name, value in extra_means(summary).items())
    return (
        f"return {spread('return', 1)}, cost {spread('cost', digits)} "
        f"(limit {summary['cost_limit']:g}), CVaR at {summary['tail_fraction']:g}: return "
        f"{number(summary['return_cvar'], 1)}, cost {number(summary['cost_cvar'], digits)}; "
        f"{percent(summary['violation_rate'])} of {summary['episodes']} episodes over the limit"
        f"{extras}"
    )


def percent(share: float, digits: int = 3, towards: Towards | None = None) -> str:
    """A share in percent with up to ``digits`` significant digits; a bound is rounded outwards."""
    value = 100 * share
    if towards:
        value = outward(value, _decimals(value, digits), towards)
    return f"{value:.{digits}g} %"
