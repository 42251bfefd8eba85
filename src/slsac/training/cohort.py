"""Several seeds in one process: their environments in turn, one update for all of them.

That is meant for accelerators, where one small update leaves most of the machine idle;
docs/performance.md says what it gives on a CPU. A stacked update rounds differently from one run's
own, so a resumed run is also compared by how many seeds learned together.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

from slsac.config import Config, OffPolicyConfig
from slsac.config.overrides import with_overrides
from slsac.display import Display
from slsac.errors import InvalidInput
from slsac.training import launch, off_policy
from slsac.training.learner import SoloLearner, StackedLearner
from slsac.training.off_policy import OffPolicyTrainer


def start(
    config: Config,
    seeds: int,
    folder: Path,
    *,
    overwrite: bool,
    display: Callable[[int], Display],
    env_timeout: float | None = None,
) -> Cohort:
    """New runs with the seeds from ``config.seed`` on, in ``folder``/seed<k>, at step 0.

    Args:
        display: what shows the run of a seed.
    """
    if not isinstance(config, OffPolicyConfig):
        raise InvalidInput(
            f"algo is {config.algo}; it must be off-policy to train several seeds together"
        )
    if seeds < 2:
        raise InvalidInput(f"seeds is {seeds}; it must be at least 2")
    runs = {config.seed + k: folder / f"seed{config.seed + k}" for k in range(seeds)}
    # All are checked before the first is made: a refusal must leave nothing behind.
    for run in runs.values():
        launch.require_free(run, overwrite=overwrite)
    with contextlib.ExitStack() as started:
        trainers = []
        for seed, run in runs.items():
            trainer = launch.start(
                with_overrides(config, {"seed": seed}), run,
                overwrite=overwrite, display=display(seed), together=seeds, env_timeout=env_timeout,
            )  # fmt: skip
            started.callback(trainer.close)
            trainers.append(cast(OffPolicyTrainer, trainer))
        cohort = Cohort(trainers)
        started.pop_all()
    return cohort


class Cohort:
    """Runs at the same step whose configurations differ in the seed alone."""

    def __init__(self, trainers: Sequence[OffPolicyTrainer]) -> None:
        self.trainers = list(trainers)
        own = [trainer.learner for trainer in self.trainers]
        self._learner = StackedLearner(cast(list[SoloLearner], own))
        for place, trainer in enumerate(self.trainers):
            trainer.join(self._learner, place)

    @property
    def step(self) -> int:
        return self.trainers[0].step

    def advance(self, until: int) -> None:
        """Trains every run up to step ``until``."""
        off_policy.advance(self.trainers, self._learner, until)

    def finish(self) -> None:
        """Writes the final state, policy and evaluation of every run."""
        # All are saved before the first evaluation, which may be interrupted.
        for trainer in self.trainers:
            trainer.save_final()
        for trainer in self.trainers:
            trainer.finish()

    def close(self) -> None:
        for trainer in self.trainers:
            trainer.close()
