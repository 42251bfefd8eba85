"""Runs a grid of trials: skips what is done, resumes what was interrupted, reports what failed."""

from __future__ import annotations

import importlib.util
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from slsac.errors import InvalidInput
from slsac.formatting import duration
from slsac.report.curves import write_curves
from slsac.report.html import write_report
from slsac.report.table import write_table
from slsac.runs import checkpoint
from slsac.runs.provenance import source_digest
from slsac.sweep import estimate, status
from slsac.sweep.process import Job, Outcome, jax_environment
from slsac.sweep.spec import Spec, Trial, train_arguments
from slsac.sweep.view import Entry, View

POLL_SECONDS = 0.5
PRODUCTS: dict[str, tuple[Callable[[Sequence[Path], Path], object], tuple[str, ...]]] = {
    "table": (write_table, ("table.md", "table.tex", "table.csv")),
    "curves": (write_curves, ("curves.png", "curves.svg")),
    "report": (write_report, ("report.html",)),
}
"""The function that makes a product, in the module of its name, and the files asked of it."""


class Backend(Protocol):
    slots: float
    """Trials that it takes at once."""

    def submit(self, name: str, job: Job) -> None: ...

    def started(self, name: str) -> bool:
        """Whether a submitted trial is at work, and not in a queue."""
        ...

    def wait(self, seconds: float) -> list[tuple[str, Outcome]]: ...

    def stop(self) -> None: ...


def plan(trials: Sequence[Trial], cores: int, *, inexact: bool) -> dict[str, Entry]:
    """Every trial by name, as done or waiting; an error where a run is of another experiment."""
    return {
        trial.name: Entry(
            trial, "done" if status.is_done(trial, cores, inexact=inexact) else "waiting"
        )
        for trial in trials
    }


def make_job(trial: Trial, cores: int, *, inexact: bool) -> Job:
    return Job(
        run=str(trial.run),
        log=str(trial.run.parent / f"{trial.run.name}.log"),
        arguments=train_arguments(trial),
        steps=trial.config.steps,
        cores=cores,
        inexact=inexact,
        source=source_digest(),
        environment=jax_environment(),
    )


def run(
    entries: Mapping[str, Entry], jobs: Mapping[str, Job], backend: Backend, view: View,
    *, retries: int,
) -> None:  # fmt: skip
    """Trains every waiting trial; those that fail do not stop the others.

    Args:
        retries: how often a trial is begun again that was killed from outside and has not
            written a new checkpoint since the last time; one that gets on is always begun again.
    """
    waiting = deque(name for name, entry in entries.items() if entry.state == "waiting")
    running: dict[str, int] = {}
    idle_losses: dict[str, int] = {}
    try:
        while waiting or running:
            while waiting and len(running) < backend.slots:
                name = waiting.popleft()
                entry = entries[name]
                Path(jobs[name].log).parent.mkdir(parents=True, exist_ok=True)
                running[name] = _checkpoint_step(entry.trial)
                backend.submit(name, jobs[name])
            for name in running:
                if entries[name].state == "waiting" and backend.started(name):
                    entries[name].state = "running"
                    view.changed(entries[name])
            for name, outcome in backend.wait(POLL_SECONDS):
                entry, began_at = entries[name], running.pop(name)
                entry.error = outcome.error
                if outcome.kind == "lost":
                    entry.losses += 1
                    got_on = _checkpoint_step(entry.trial) > began_at
                    idle_losses[name] = 0 if got_on else idle_losses.get(name, 0) + 1
                if outcome.kind == "lost" and idle_losses[name] <= retries:
                    entry.state = "waiting"
                    # Before the trials that have not begun: it is the nearest to its end.
                    waiting.appendleft(name)
                else:
                    entry.state = "done" if outcome.kind == "done" else "failed"
                view.changed(entry)
            view.refresh()
    finally:
        backend.stop()


def _checkpoint_step(trial: Trial) -> int:
    return checkpoint.newest_step(trial.run / "checkpoints")


def describe(
    entries: Mapping[str, Entry], cores: int, workers: int, measured_in: Sequence[Path]
) -> list[str]:
    """One line for each trial with the time that it will take, and one for the sweep."""
    runs = estimate.measured_runs(measured_in)
    lines, durations, unknown = [], [], 0
    width = max(len(name) for name in entries)
    for name, entry in entries.items():
        steps = entry.trial.config.steps
        if entry.state == "done":
            lines.append(f"{name:<{width}}  done")
            continue
        step = _checkpoint_step(entry.trial)
        begin = f"resumes at step {step:,} of {steps:,}" if step else f"new, {steps:,} steps"
        speed = estimate.speed(entry.trial, cores, runs)
        if speed is None:
            unknown += 1
            lines.append(f"{name:<{width}}  {begin}; no run like it has been timed")
            continue
        durations.append((steps - step) / speed.steps_per_second)
        lines.append(
            f"{name:<{width}}  {begin}; {duration(durations[-1])} at "
            f"{speed.steps_per_second:.0f} steps/s (median of {speed.runs}, as {speed.source})"
        )
    left = len(durations) + unknown
    total = f"{len(entries)} trials, {left} to run, {cores} core(s) each, {workers} at once"
    if durations:
        total += f": {duration(estimate.makespan(durations, workers))} of training"
        total += f" for the {len(durations)} whose speed is known" if unknown else ""
        total += ", start-up and evaluations not counted"
    return [*lines, total]


def require_products(spec: Spec) -> None:
    """An error where a package for the spec's products is missing: before training, not after."""
    over_seeds = ("rliable",) if len(spec.seeds) > 1 else ()
    needs = {"table": over_seeds, "curves": ("matplotlib",), "report": over_seeds}
    for product in spec.products:
        for package in needs[product]:
            if importlib.util.find_spec(package) is None:
                raise InvalidInput(
                    f"product {product!r} needs {package}; run `make install EXTRAS=report` or "
                    "take it out of the spec's products"
                )


def make_products(
    spec: Spec, trials: Sequence[Trial], out: Path, note: Callable[[str], None]
) -> None:
    """Makes what the spec asks for, for each variant; files newer than the runs are left alone."""
    for folder in [out / variant for variant in spec.variants] or [out]:
        runs = [trial.run for trial in trials if folder in trial.run.parents]
        newest = max((run / "evaluations.jsonl").stat().st_mtime for run in runs)
        for product in spec.products:
            write, names = PRODUCTS[product]
            for path in (folder / name for name in names):
                if not path.exists() or path.stat().st_mtime < newest:
                    write(runs, path)
                    note(f"wrote {path}")
