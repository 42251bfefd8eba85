"""Timing in turns, and the tables of the figures."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from slsac.errors import InvalidInput

Record = dict[str, Any]
Column = tuple[str, str, str]
"""(field of a record, heading, format)."""


def seconds(call: Callable[[], Any]) -> float:
    """Wall-clock seconds of one call."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def in_turns(
    calls: dict[str, Callable[[], Any]], rounds: int, repeats: int = 1
) -> dict[str, list[float]]:
    """Seconds of each call, ``rounds`` times; each figure is a median of ``repeats``."""
    for call in calls.values():
        call()  # compiles
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            taken[name].append(median(seconds(call) for _ in range(repeats)))
    return taken


def ratio(over: Sequence[float], under: Sequence[float]) -> float:
    """Median of the rounds' ratios; a slow round slows both of its sides."""
    return median(a / b for a, b in zip(over, under, strict=True))


def table(records: Sequence[Record], columns: Sequence[Column]) -> str:
    """A Markdown table; a record without a figure leaves its cell empty."""

    def cell(record: Record, field: str, form: str) -> str:
        value = record.get(field)
        return "" if value is None else format(value, form)

    lines = [[heading for _, heading, _ in columns], ["---"] * len(columns)]
    lines += [[cell(record, field, form) for field, _, form in columns] for record in records]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write_page(page: Path, name: str, text: str) -> None:
    """Replace what stands between a section's two marks on ``page``."""
    before, after = around(page, name)
    page.write_text(f"{before}\n{text}\n{after}", encoding="utf-8")


def around(page: Path, name: str) -> tuple[str, str]:
    """The text of ``page`` before and after a section, its marks included."""
    start, end = f"<!-- bench: {name} -->", f"<!-- end of {name} -->"
    if not page.is_file():
        raise InvalidInput(f"page is {str(page)!r}; it must be a file")
    before, mark, rest = page.read_text(encoding="utf-8").partition(start)
    _, end_mark, after = rest.partition(end)
    if not mark or not end_mark:
        raise InvalidInput(f"page {page} has no {start} and {end} to write between")
    return before + start, end + after
