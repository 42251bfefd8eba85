"""How far a run has come, read from its files."""

from __future__ import annotations

import itertools
from pathlib import Path

from slsac.config import Config, OnPolicyConfig
from slsac.runs import checkpoint, config_file
from slsac.runs.layout import CHECKPOINTS, EVALUATIONS, EXACT_LOGS, PROGRESS
from slsac.runs.log import read_lines


def reached_step(run: Path) -> int:
    """The last step at which a checkpoint or the final state was saved."""
    folder = run / CHECKPOINTS
    unnumbered = (
        checkpoint.saved_step(folder, name) for name in (checkpoint.LAST, checkpoint.FINAL)
    )
    return max(checkpoint.newest_step(folder), *unnumbered)


def logged_step(run: Path) -> int:
    """The last step recorded in the run's logs."""
    lines = (read_lines(run / name)[-1:] for name in EXACT_LOGS)
    return max((int(line["step"]) for line in itertools.chain(*lines)), default=0)


def trained_steps(run: Path) -> int:
    """The steps that the run's policy has learned from."""
    return steps_in_logs(run, config_file.read(run).config, reached_step(run))


def steps_in_logs(run: Path, config: Config, reached: int) -> int:
    """`trained_steps` of a run whose configuration and `reached_step` are known."""
    epochs = [int(line["step"]) for line in read_lines(run / PROGRESS)]
    if isinstance(config, OnPolicyConfig) and (run / PROGRESS).exists():
        return max(epochs, default=0)  # an epoch that is not whole teaches nothing
    # A recorded run keeps no checkpoint; it was complete, and its logs end where it did. A policy
    # that was kept as the best has the line of its evaluation alone.
    evaluations = [int(line["step"]) for line in read_lines(run / EVALUATIONS)]
    return reached or max(epochs + evaluations, default=0)


def completed_step(run: Path) -> int:
    """The step at which the run was finished and, if it asks for one, finally evaluated; or 0."""
    if config_file.read(run).config.final_evaluation_episodes == 0:
        return checkpoint.saved_step(run / CHECKPOINTS, checkpoint.FINAL)
    evaluations = read_lines(run / EVALUATIONS)
    return int(evaluations[-1]["step"]) if evaluations and evaluations[-1]["final"] else 0
