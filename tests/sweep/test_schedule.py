"""Which trials are started again."""

from __future__ import annotations

import io
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from slsac.runs import checkpoint
from slsac.sweep import spec as grid
from slsac.sweep.process import Job, Outcome
from slsac.sweep.schedule import ScheduledTrial, make_job, run_trials
from slsac.sweep.view import View
from tests.support.sweeps import SMALL_SPEC

JOB_OF = partial(make_job, cores=1, inexact=False, source="the same")


class Losing:
    """A backend whose every trial is killed; one of them advances in its ``advances``-th life."""

    slots = 1.0

    def __init__(self, run: Path, advances: int) -> None:
        self.submitted: list[str] = []
        self._run, self._advances = run, advances

    def submit(self, name: str, job: Job) -> None:
        self.submitted.append(name)

    def started(self, name: str) -> bool:
        return True

    def wait(self, seconds: float) -> list[tuple[str, Outcome]]:
        if len(self.submitted) == self._advances:
            checkpoint.write(self._run / "checkpoints", checkpoint.step_name(100), {}, {})
        return [(self.submitted[-1], Outcome("lost", "killed by SIGKILL"))]

    def stop(self) -> None:
        pass


@pytest.mark.parametrize(("advances", "lives"), [(0, 3), (2, 5)])
def test_a_trial_that_does_not_advance_is_started_again_a_few_times(
    tmp_path: Path, advances: int, lives: int
) -> None:
    (trial,) = grid.expand(grid.parse(SMALL_SPEC | {"seeds": [0]}), tmp_path)
    schedule = {trial.name: ScheduledTrial(trial, "waiting")}
    backend = Losing(trial.run, advances)
    view = View(schedule, Console(file=io.StringIO()))
    run_trials(schedule, JOB_OF, backend, view, retries=2)
    assert len(backend.submitted) == lives
    assert schedule[trial.name].state == "failed"
    assert schedule[trial.name].losses == lives


class Exiting(Losing):
    """A backend whose every trial ends at once with exit code 0."""

    def wait(self, seconds: float) -> list[tuple[str, Outcome]]:
        return [(self.submitted[-1], Outcome("done", ""))]


def test_a_trial_that_ends_without_its_final_evaluation_has_failed(tmp_path: Path) -> None:
    (trial,) = grid.expand(grid.parse(SMALL_SPEC | {"seeds": [0]}), tmp_path)
    schedule = {trial.name: ScheduledTrial(trial, "waiting")}
    view = View(schedule, Console(file=io.StringIO()))
    run_trials(schedule, JOB_OF, Exiting(trial.run, 0), view, retries=2)
    assert schedule[trial.name].state == "failed"
    assert schedule[trial.name].error == "ended without its final evaluation"
