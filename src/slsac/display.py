"""The progress of a run for a person: a line per epoch, and a live bar on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from slsac.formatting import cost_digits, duration, number, printable, sentence


class Display(Protocol):
    """What a trainer reports to; see `slsac.runs.log` for the records."""

    def tick(self, step: int) -> None:
        """An environment step has been taken."""

    def epoch(self, record: Mapping[str, Any], timing: Mapping[str, Any]) -> None:
        """An epoch has ended."""

    def evaluation(self, step: int, summary: Mapping[str, Any]) -> None:
        """The policy of ``step`` has been evaluated."""

    def note(self, text: str) -> None:
        """Show a sentence."""

    def close(self) -> None:
        """Release the terminal."""


class Silent:
    """Shows nothing but notes, which go to standard error."""

    def tick(self, step: int) -> None:
        pass

    def epoch(self, record: Mapping[str, Any], timing: Mapping[str, Any]) -> None:
        pass

    def evaluation(self, step: int, summary: Mapping[str, Any]) -> None:
        pass

    def note(self, text: str) -> None:
        print(printable(text), file=sys.stderr)

    def close(self) -> None:
        pass


class Terminal:
    """Lines for every epoch and evaluation; below them a bar where the output is a terminal."""

    COLUMNS = (
        ("step", 9), ("steps/s", 8), ("left", 7), ("return", 9), ("cost", 8), ("CVaR/limit", 13),
        ("lambda", 8), ("Q loss", 9), ("cost loss", 9), ("entropy", 8),
    )  # fmt: skip

    def __init__(self, total_steps: int, cost_limit: float) -> None:
        self._total, self._limit = total_steps, cost_limit
        self._console = Console(highlight=False, soft_wrap=True)
        self._lines = 0
        self._last_tick = 0.0
        self._recent: tuple[float, int] | None = None
        self._bar: Progress | None = None
        if self._console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.completed:>9,.0f} of {task.total:,.0f} steps"),
                BarColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeElapsedColumn(),
                console=self._console,
                transient=True,
            )
            self._task = self._bar.add_task("training", total=total_steps, rate="")
            self._bar.start()

    def tick(self, step: int) -> None:
        now = time.perf_counter()
        if self._bar is None or now - self._last_tick < 0.25:
            return
        if self._recent is None or now - self._recent[0] > 30.0:
            self._recent = (now, step)
        seconds, steps = now - self._recent[0], step - self._recent[1]
        rate = f"{steps / seconds:,.0f} steps/s" if steps and seconds > 1.0 else ""
        self._bar.update(self._task, completed=step, rate=rate)
        self._last_tick = now

    def epoch(self, record: Mapping[str, Any], timing: Mapping[str, Any], label: str = "") -> None:
        if self._lines % 20 == 0:
            self._print("  ".join(f"{name:>{width}}" for name, width in self.COLUMNS))
        self._lines += 1
        # Random steps are a hundred times as fast as learning ones: no estimate from them.
        learning = "reward_critic_loss" in record
        left = (self._total - record["step"]) / timing["steps_per_second"]
        cells = (
            f"{record['step']:,}",
            f"{timing['steps_per_second']:.0f}",
            duration(left) if learning else "-",
            number(record["return"], 1),
            number(record["cost"], cost_digits(self._limit)),
            f"{number(record['window_cvar'], cost_digits(self._limit))} / {self._limit:g}",
            number(record["multiplier"], 4),
            number(record.get("reward_critic_loss"), 4),
            number(record.get("cost_critic_loss"), 4),
            number(record.get("entropy"), 2),
        )
        widths = (width for _, width in self.COLUMNS)
        self._print("  ".join(f"{c:>{w}}" for c, w in zip(cells, widths, strict=True)) + label)

    def evaluation(self, step: int, summary: Mapping[str, Any], label: str = "") -> None:
        self._print(f"evaluation at step {step:,}: {sentence(summary)}{label}")

    def note(self, text: str) -> None:
        self._print(text)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _print(self, text: str) -> None:
        self._console.print(printable(text), markup=False)


class Labelled:
    """A run's part of a terminal that several runs share: its lines end with its label."""

    def __init__(self, terminal: Terminal, label: str) -> None:
        self._terminal, self._label = terminal, f"  {label}"

    def tick(self, step: int) -> None:
        self._terminal.tick(step)

    def epoch(self, record: Mapping[str, Any], timing: Mapping[str, Any]) -> None:
        self._terminal.epoch(record, timing, self._label)

    def evaluation(self, step: int, summary: Mapping[str, Any]) -> None:
        self._terminal.evaluation(step, summary, self._label)

    def note(self, text: str) -> None:
        self._terminal.note(text + self._label)

    def close(self) -> None:
        pass  # other runs still use the terminal


@contextmanager
def counter() -> Iterator[Callable[[str, int, int], None]]:
    """Count things on standard error, a bar for each; show nothing where it is no terminal."""
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description} {task.completed:.0f} of {task.total:.0f}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        tasks: dict[str, TaskID] = {}

        def tick(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done)

        yield tick
