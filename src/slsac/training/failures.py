"""How a run ends where it cannot continue: one line with the reason and the last checkpoint."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import jax
import numpy as np

from slsac.envs.contract import LARGEST_NUMBER
from slsac.errors import EnvFailed, InvalidInput, TrainingFailed
from slsac.runs import checkpoint
from slsac.runs.layout import CHECKPOINTS

MACHINE_FAILURES = (OSError, MemoryError, jax.errors.JaxRuntimeError)
"""What a full disk or memory raises."""


class Failures:
    """Raises `TrainingFailed` for one run.

    Args:
        save: saves what can be continued from, before the checkpoint is named.
    """

    def __init__(self, run: Path, save: Callable[[], None]) -> None:
        self._checkpoints, self._save = run / CHECKPOINTS, save

    def fail(self, reason: str, cause: BaseException | None = None) -> NoReturn:
        with contextlib.suppress(OSError):  # a full disk may be the reason
            self._save()
        raise TrainingFailed(f"{reason}; last good checkpoint: {self._newest()}") from cause

    def _newest(self) -> str:
        if step := checkpoint.saved_step(self._checkpoints, checkpoint.LAST):
            return f"{self._checkpoints / checkpoint.LAST} (step {step})"
        names = checkpoint.step_names(self._checkpoints)
        return str(self._checkpoints / names[-1]) if names else "none"

    def of_machine(self, step: int, error: BaseException) -> NoReturn:
        """Ends the run where the disk or the memory is full."""
        said = " ".join(str(error).split())[:300] or "out of memory"
        self.fail(f"{said} at step {step}", error)

    @contextlib.contextmanager
    def of_env(self, step: int) -> Iterator[None]:
        """Ends the run where a call of the environment fails."""
        try:
            yield
        except (InvalidInput, EnvFailed) as error:
            self.fail(f"the environment failed at step {step}: {error}", error)

    def check_step(
        self, step: int, episode: int, observation: np.ndarray, reward: float, cost: float
    ) -> None:
        """Ends the run where the environment gave a number that is not finite."""
        numbers = {"reward": reward, "cost": cost}
        broken = [name for name, value in numbers.items() if not abs(value) <= LARGEST_NUMBER]
        if not np.isfinite(observation).all():
            broken.insert(0, "observation")
        if broken:
            finite = any(math.isfinite(numbers.get(name, math.nan)) for name in broken)
            size = " (beyond 3.4e38, the largest in single precision)" if finite else ""
            self.fail(
                f"the environment returned a non-finite {' and '.join(broken)}{size} "
                f"at step {step}, episode {episode}"
            )

    def check_length(self, length: int, horizon: int, *, ended: bool) -> None:
        """Ends the run where an episode lasts longer than the env states.

        Limits and bounds are computed from that figure, and exact resume relies on it.
        """
        if length >= horizon and not ended:
            self.fail(
                f"an episode continues after {length:,} steps, but the env states {horizon:,}; "
                "state its real length: max_episode_steps of the env, or horizon of its spec"
            )

    def check_update(self, step: int, broken: list[str]) -> None:
        """Ends the run where losses or parameters are no longer finite."""
        if broken:
            self.fail(f"not finite after step {step}: {', '.join(broken)}")
