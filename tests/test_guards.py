"""A run that goes wrong stops, says what was not finite, and keeps its last good checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import small_config

from slsac import checkpoint, rundir
from slsac.envs.probe import Constant
from slsac.errors import TrainingFailed
from slsac.train import Trainer
from slsac.types import Step

Start = Callable[..., Trainer]


def test_a_non_finite_parameter_stops_the_run_and_is_named(start: Start) -> None:
    trainer = start("ProbeChoice-v0", warmup_steps=40, checkpoint_every_steps=30)
    trainer.advance(60)
    before = checkpoint.step_names(trainer.run / "checkpoints")
    broken = eqx.tree_at(
        lambda critic: critic.head.biases[0], trainer.state.cost_critic, jnp.array([jnp.nan])
    )
    trainer.state = trainer.state._replace(cost_critic=broken)
    with pytest.raises(TrainingFailed) as failure:
        trainer.advance(100)
    assert "not finite after step 61" in str(failure.value)
    assert "cost_critic_loss" in str(failure.value)
    assert "cost_critic parameters" in str(failure.value)
    assert "reward_critic" not in str(failure.value)
    assert before[-1] in str(failure.value)
    assert checkpoint.step_names(trainer.run / "checkpoints") == before
    assert rundir.resume(trainer.run).step == 60


class Broken(Constant):
    """Gives an infinite cost at its 25th step."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def step(self, action: np.ndarray) -> Step:
        self.steps += 1
        result = super().step(action)
        return result._replace(cost=np.inf) if self.steps == 25 else result


def test_a_non_finite_cost_from_the_environment_is_named(tmp_path: Path) -> None:
    trainer = rundir.start(small_config("ProbeConstant-v0"), tmp_path, env=Broken)
    with pytest.raises(TrainingFailed, match="non-finite cost at step 24, episode 24"):
        trainer.advance(100)
    trainer.close()
