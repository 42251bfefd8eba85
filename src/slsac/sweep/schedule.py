"""Runs a sweep's trials: skips what is done, resumes what was interrupted, notes what failed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from slsac.runs import checkpoint
from slsac.runs.layout import CHECKPOINTS
from slsac.sweep.process import Job, Outcome, jax_environment
from slsac.sweep.spec import Trial, train_arguments
from slsac.sweep.status import is_complete, is_done

POLL_SECONDS = 0.5

State = Literal["running", "failed", "waiting", "done"]


@dataclass
class ScheduledTrial:
    """A trial and how it fares; `run_trials` changes ``state``, ``losses`` and ``error``."""

    trial: Trial
    state: State
    losses: int = 0
    """How often it was killed from outside."""
    error: str = ""

    @property
    def checkpoint_step(self) -> int:
        """The step of its newest checkpoint; 0 where there is none."""
        return checkpoint.newest_step(self.trial.run / CHECKPOINTS)


class Backend(Protocol):
    """Where trials run: processes on this machine, or a Ray cluster."""

    slots: float
    """Trials that it takes at once."""

    def submit(self, name: str, job: Job) -> None: ...

    def started(self, name: str) -> bool:
        """Whether a submitted trial has left the queue and is running."""
        ...

    def wait(self, seconds: float) -> list[tuple[str, Outcome]]:
        """The trials that have ended; an empty list if none ends within ``seconds``."""
        ...

    def stop(self) -> None: ...


class Observer(Protocol):
    """Who is told how the trials fare."""

    def changed(self, scheduled: ScheduledTrial) -> None: ...

    def refresh(self) -> None: ...


def plan(trials: Sequence[Trial], cores: int, *, inexact: bool) -> dict[str, ScheduledTrial]:
    """Every trial by name, as done or waiting.

    Raises InvalidInput where a run directory holds a run of another experiment.
    """
    return {
        trial.name: ScheduledTrial(
            trial, "done" if is_done(trial, cores, inexact=inexact) else "waiting"
        )
        for trial in trials
    }


def make_job(trial: Trial, *, cores: int, inexact: bool, source: str) -> Job:
    """What the process of a trial is told; ``source`` is the digest of the sweep's own source."""
    return Job(
        run=str(trial.run),
        log=str(trial.log),
        arguments=train_arguments(trial),
        steps=trial.config.steps,
        cores=cores,
        inexact=inexact,
        source=source,
        environment=jax_environment(),
    )


def run_trials(
    schedule: Mapping[str, ScheduledTrial], job_of: Callable[[Trial], Job], backend: Backend,
    observer: Observer, *, retries: int,
) -> None:  # fmt: skip
    """Train every waiting trial; one that fails does not stop the others.

    Args:
        retries: how often a trial is started again that was killed from outside before it wrote a
            new checkpoint. One that wrote a checkpoint is always started again.
    """
    waiting = deque(name for name, scheduled in schedule.items() if scheduled.state == "waiting")
    began_at: dict[str, int] = {}
    """Checkpoint step at which each submitted trial began."""
    fruitless_losses: dict[str, int] = {}
    try:
        while waiting or began_at:
            while waiting and len(began_at) < backend.slots:
                name = waiting.popleft()
                job = job_of(schedule[name].trial)
                Path(job.log).parent.mkdir(parents=True, exist_ok=True)
                began_at[name] = schedule[name].checkpoint_step
                backend.submit(name, job)
            for name in began_at:
                if schedule[name].state == "waiting" and backend.started(name):
                    schedule[name].state = "running"
                    observer.changed(schedule[name])
            for name, outcome in backend.wait(POLL_SECONDS):
                scheduled = schedule[name]
                advanced = scheduled.checkpoint_step > began_at.pop(name)
                scheduled.error = outcome.error
                if outcome.kind == "lost":
                    scheduled.losses += 1
                    fruitless_losses[name] = 0 if advanced else fruitless_losses.get(name, 0) + 1
                if outcome.kind == "lost" and fruitless_losses[name] <= retries:
                    scheduled.state = "waiting"
                    # Before the trials that have not begun: it is the nearest to its end.
                    waiting.appendleft(name)
                elif outcome.kind == "done" and not is_complete(scheduled.trial):
                    # An env may have ended the process by itself, with exit code 0.
                    scheduled.state = "failed"
                    scheduled.error = "ended without its final evaluation"
                else:
                    scheduled.state = "done" if outcome.kind == "done" else "failed"
                observer.changed(scheduled)
            observer.refresh()
    finally:
        backend.stop()
