"""The progress of a sweep for a person: a live table on a terminal, lines elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from slsac.formatting import cost_digits, duration, number, printable
from slsac.sweep.schedule import ScheduledTrial, State
from slsac.sweep.status import read_figures

ORDER: tuple[State, ...] = ("running", "failed", "waiting", "done")
"""What is shown first where the screen is too small for all trials."""
LIVE_SECONDS, PLAIN_SECONDS = 2.0, 60.0
"""Between two pictures of all trials, on a terminal and elsewhere."""


class View:
    """Shows all trials from time to time, and off a terminal each change of state at once."""

    COLUMNS = ("trial", "state", "steps", "return", "cost", "lambda", "steps/s", "left")

    def __init__(
        self, schedule: Mapping[str, ScheduledTrial], console: Console | None = None
    ) -> None:
        self._schedule = schedule
        self._console = console or Console(highlight=False, soft_wrap=True)
        self._due = time.monotonic() + PLAIN_SECONDS * (not self._console.is_terminal)
        self._live: Live | None = None
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()

    def changed(self, scheduled: ScheduledTrial) -> None:
        """Say that a trial has started, ended, failed or been lost."""
        if self._live is not None:
            return
        name = scheduled.trial.name
        if scheduled.state == "waiting":
            self.note(f"lost    {name}: {scheduled.error}; starts again from its checkpoint")
        elif scheduled.state == "failed":
            self.note(f"failed  {name}: {scheduled.error}")
        elif scheduled.state == "done":
            self.note(f"done    {name}  {figures(scheduled)}")
        else:
            self.note(f"running {name}")

    def refresh(self) -> None:
        """Show everything if it is time to."""
        now = time.monotonic()
        if now < self._due:
            return
        if self._live is not None:
            self._due = now + LIVE_SECONDS
            self._live.update(self.table(self._console.height - 4), refresh=True)
        else:
            self._due = now + PLAIN_SECONDS
            for scheduled in self._schedule.values():
                if scheduled.state == "running":
                    self.note(f"        {scheduled.trial.name}  {figures(scheduled)}")
            self.note(self.summary())

    def summary(self) -> str:
        """The number of trials in each state."""
        counts = Counter(scheduled.state for scheduled in self._schedule.values())
        states = ", ".join(f"{counts[state]} {state}" for state in ORDER if counts[state])
        trials = len(self._schedule)
        return f"{trials} trial{'' if trials == 1 else 's'}: {states}"

    def table(self, rows: int) -> Table:
        """The first ``rows`` trials in the order of `ORDER`, under a summary."""
        table = Table(title=self.summary(), title_justify="left", box=None)
        for name in self.COLUMNS:
            table.add_column(name, justify="left" if name in ("trial", "state") else "right")
        by_state = sorted(self._schedule.values(), key=lambda trial: ORDER.index(trial.state))
        for scheduled in by_state[: max(1, rows)]:
            table.add_row(
                Text(printable(scheduled.trial.name)), _state(scheduled), *cells(scheduled)
            )
        return table

    def note(self, text: str) -> None:
        self._console.print(printable(text), markup=False)

    def close(self) -> None:
        if self._live is not None:
            self._live.update(self.table(self._console.height - 4), refresh=True)
            self._live.stop()
            self._live = None


def cells(scheduled: ScheduledTrial) -> tuple[str, ...]:
    """The figures of a trial: steps, return, cost, multiplier, steps/s and time left."""
    now, steps = read_figures(scheduled.trial), scheduled.trial.config.steps
    left = now.seconds_left(steps) if scheduled.state == "running" else None
    return (
        f"{now.step:,}/{steps:,}",
        number(now.episode_return, 1),
        number(now.cost, cost_digits(scheduled.trial.config.cost_limit)),
        number(now.multiplier, 3),
        number(now.steps_per_second, 0),
        "-" if left is None else duration(left),
    )


def figures(scheduled: ScheduledTrial) -> str:
    """The same on one line."""
    return "  ".join(
        f"{name} {cell}" for name, cell in zip(View.COLUMNS[2:], cells(scheduled), strict=True)
    )


def _state(scheduled: ScheduledTrial) -> str:
    return scheduled.state + (f" (lost {scheduled.losses}x)" if scheduled.losses else "")
