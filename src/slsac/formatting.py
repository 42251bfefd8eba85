"""Numbers and summaries as people read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


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


def number(value: float | None, digits: int, *, sign: bool = False) -> str:
    """``value`` with so many decimals, or two significant digits where it is too small for them; a
    dash for None.

    Args:
        sign: begin with + or -.
    """
    if value is None:
        return "-"
    small = 0.0 < abs(value) < 10.0 ** (1 - digits)
    return format(value, f"{'+' if sign else ''}{'.2g' if small else f'.{digits}f'}")


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
        f"{100 * summary['violation_rate']:.0f} % of {summary['episodes']} episodes over the limit"
        f"{extras}"
    )


def percent(share: float, digits: int = 3) -> str:
    """A share in percent with up to ``digits`` significant digits."""
    return f"{100 * share:.{digits}g} %"
