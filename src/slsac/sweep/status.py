"""How far a trial has come, read from its run directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from slsac.config.overrides import differing
from slsac.errors import InvalidInput, RunDamaged
from slsac.runs import config_file, schema
from slsac.runs.identity import WITHOUT_EFFECT
from slsac.runs.layout import CONFIG, EVALUATIONS, PROGRESS, TIMING
from slsac.runs.log import LINES
from slsac.runs.steps import completed_step
from slsac.sweep.process import last_line
from slsac.sweep.spec import Trial


class Figures(NamedTuple):
    """The newest figures of a trial."""

    step: int
    episode_return: float | None
    """Of the last epoch's training episodes, or of the final evaluation where there is one."""
    cost: float | None
    multiplier: float | None
    steps_per_second: float | None
    """Of the last epoch; None while actions are random, which says nothing of what follows."""

    def seconds_left(self, steps: int) -> float | None:
        if self.steps_per_second is None:
            return None
        return max(0, steps - self.step) / self.steps_per_second


def read_figures(trial: Trial) -> Figures:
    """The newest figures in a trial's logs; only the ends of files are read."""
    progress = _last_record(trial.run / PROGRESS)
    evaluation = _last_record(trial.run / EVALUATIONS)
    timing = _last_record(trial.run / TIMING)
    step = int(progress.get("step", 0))
    learning = step > getattr(trial.config, "warmup_steps", 0)
    return_and_cost = (progress.get("return"), progress.get("cost"))
    if evaluation.get("final"):
        step = evaluation["step"]
        return_and_cost = (evaluation["return_mean"], evaluation["cost_mean"])
    return Figures(
        step,
        *return_and_cost,
        progress.get("multiplier"),
        timing.get("steps_per_second") if learning else None,
    )


def _last_record(path: Path) -> dict[str, Any]:
    try:
        return schema.parse_json(last_line(path).encode(), LINES[path.name])
    except schema.Misfit:
        return {}


def is_done(trial: Trial, cores: int, *, inexact: bool) -> bool:
    """Whether a trial needs no more training.

    A run with fewer steps than the spec asks for, all else equal, is continued. Raises
    InvalidInput where the run directory holds a run of another experiment.
    """
    if not (trial.run / CONFIG).exists():
        return False
    config, _, provenance = config_file.read(trial.run)
    for field, (recorded, wanted) in differing(config, trial.config).items():
        if field not in WITHOUT_EFFECT and (field != "steps" or recorded > wanted):
            raise _another_experiment(trial, field, recorded, wanted)
    if completed_step(trial.run) >= trial.config.steps:
        return True
    recorded_cores = provenance.get("cores")
    if recorded_cores not in (None, cores) and not inexact:
        raise _another_experiment(trial, "cores_per_trial", recorded_cores, cores)
    return False


def is_complete(trial: Trial) -> bool:
    """Whether the final evaluation of a trial is there, or its final state where it has none."""
    try:
        return completed_step(trial.run) >= trial.config.steps
    except (InvalidInput, RunDamaged):
        return False


def _another_experiment(trial: Trial, field: str, recorded: Any, wanted: Any) -> InvalidInput:
    return InvalidInput(
        f"{trial.name}: {field} is {wanted} in the spec and {recorded} in the run that is there; "
        f"give the sweep another name or --out, or remove {trial.run}"
    )
