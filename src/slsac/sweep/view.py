"""What a person sees of a sweep: a live table on a terminal, lines elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from rich.console import Console
from rich.live import Live
from rich.table import Table

from slsac.formatting import cost_digits, duration, number
from slsac.sweep import status
from slsac.sweep.spec import Trial

State = Literal["running", "failed", "waiting", "done"]
ORDER: tuple[State, ...] = ("running", "failed", "waiting", "done")
"""What is shown first where the screen is too small for all trials."""
LIVE_SECONDS, PLAIN_SECONDS = 2.0, 60.0


@dataclass
class Entry:
    """One trial as the view knows it; the sweep changes ``state``, ``losses`` and ``error``."""

    trial: Trial
    state: State
    losses: int = 0
    """How often it was killed from outside and begun again."""
    error: str = ""


class View:
    """Shows all trials now and then; each change of state at once where there is no terminal."""

    COLUMNS = ("trial", "state", "steps", "return", "cost", "lambda", "steps/s", "left")

    def __init__(self, entries: Mapping[str, Entry], console: Console | None = None) -> None:
        self._entries = entries
        self._console = console or Console(highlight=False, soft_wrap=True)
        self._due = time.monotonic() + PLAIN_SECONDS * (not self._console.is_terminal)
        self._live: Live | None = None
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()

    def changed(self, entry: Entry) -> None:
        """Says that a trial has begun, ended or failed."""
        if self._live is not None:
            return
        name = entry.trial.name
        if entry.state == "waiting":
            self.note(f"lost    {name}: {entry.error}; begins again from its checkpoint")
        elif entry.state == "failed":
            self.note(f"failed  {name}: {entry.error}")
        elif entry.state == "done":
            self.note(f"done    {name}  {figures(entry)}")
        else:
            self.note(f"running {name}")

    def refresh(self) -> None:
        """Shows everything if it is time to."""
        now = time.monotonic()
        if now < self._due:
            return
        if self._live is not None:
            self._due = now + LIVE_SECONDS
            self._live.update(self.table(self._console.height - 4), refresh=True)
        else:
            self._due = now + PLAIN_SECONDS
            for entry in self._entries.values():
                if entry.state == "running":
                    self.note(f"        {entry.trial.name}  {figures(entry)}")
            self.note(self.summary())

    def summary(self) -> str:
        """The number of trials in each state."""
        counts = Counter(entry.state for entry in self._entries.values())
        states = ", ".join(f"{counts[state]} {state}" for state in ORDER if counts[state])
        return f"{len(self._entries)} trials: {states}"

    def table(self, rows: int) -> Table:
        """The first ``rows`` trials in the order of `ORDER`, under a summary."""
        table = Table(title=self.summary(), title_justify="left", box=None)
        for name in self.COLUMNS:
            table.add_column(name, justify="left" if name in ("trial", "state") else "right")
        entries = sorted(self._entries.values(), key=lambda entry: ORDER.index(entry.state))
        for entry in entries[: max(1, rows)]:
            table.add_row(entry.trial.name, _state(entry), *cells(entry))
        return table

    def note(self, text: str) -> None:
        self._console.print(text, markup=False)

    def close(self) -> None:
        if self._live is not None:
            self._live.update(self.table(self._console.height - 4), refresh=True)
            self._live.stop()
            self._live = None


def cells(entry: Entry) -> tuple[str, ...]:
    """The figures of a trial: steps, return, cost, multiplier, steps/s and time left."""
    now, steps = status.read(entry.trial), entry.trial.config.steps
    left = now.seconds_left(steps) if entry.state == "running" else None
    return (
        f"{now.step:,}/{steps:,}",
        number(now.episode_return, 1),
        number(now.cost, cost_digits(entry.trial.config.cost_limit)),
        number(now.multiplier, 3),
        number(now.steps_per_second, 0),
        "-" if left is None else duration(left),
    )


def figures(entry: Entry) -> str:
    """The same on one line."""
    return "  ".join(
        f"{name} {cell}" for name, cell in zip(View.COLUMNS[2:], cells(entry), strict=True)
    )


def _state(entry: Entry) -> str:
    return entry.state + (f" (lost {entry.losses}x)" if entry.losses else "")
