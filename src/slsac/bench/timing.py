"""Clocks that take turns, and the tables their readings make."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from slsac.errors import InvalidInput

Record = dict[str, Any]


def seconds(call: Callable[[], Any]) -> float:
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
    """Median of the rounds' ratios."""
    return median(a / b for a, b in zip(over, under, strict=True))


def table(records: Sequence[Record], columns: dict[str, tuple[str, str]]) -> str:
    """A Markdown table; ``columns`` is field -> (heading, format)."""

    def cell(record: Record, name: str, form: str) -> str:
        value = record.get(name)
        return "" if value is None else format(value, form)

    lines = [[heading for heading, _ in columns.values()], ["---"] * len(columns)]
    lines += [[cell(record, n, form) for n, (_, form) in columns.items()] for record in records]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write_page(page: Path, name: str, text: str) -> None:
    """Puts a section's text between its two marks on ``page``, in place of what is there."""
    before, after = around(page, name)
    page.write_text(f"{before}\n{text}\n{after}")


def around(page: Path, name: str) -> tuple[str, str]:
    """What stands on ``page`` before and after a section, its marks included."""
    start, end = f"<!-- bench: {name} -->", f"<!-- end of {name} -->"
    if not page.is_file():
        raise InvalidInput(f"page is {page}, which is not a file")
    before, mark, rest = page.read_text().partition(start)
    _, end_mark, after = rest.partition(end)
    if not mark or not end_mark:
        raise InvalidInput(f"page {page} has no {start} and {end} to write between")
    return before + start, end + after
