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
from slsac.errors import InvalidInput, TrainingFailed
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
    trainer.close()
    resumed = rundir.resume(trainer.run)
    assert resumed.step == 60
    resumed.close()


class Broken(Constant):
    """Gives an infinite cost at its 26th step; the first is the trial before a run is made."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def step(self, action: np.ndarray) -> Step:
        self.steps += 1
        result = super().step(action)
        return result._replace(cost=np.inf) if self.steps == 26 else result


def test_a_non_finite_cost_from_the_environment_is_named(tmp_path: Path) -> None:
    trainer = rundir.start(small_config("ProbeConstant-v0"), tmp_path, env=Broken)
    with pytest.raises(TrainingFailed, match="non-finite cost at step 24, episode 24"):
        trainer.advance(100)
    trainer.close()


class Refund(Constant):
    """Gives money back, which a floor of 0 under costs does not allow for."""

    def outcome(self, effort: float) -> tuple[float, float]:
        return 1.0, -1.0


def test_a_negative_cost_is_refused_unless_the_floor_is_off(tmp_path: Path) -> None:
    trainer = rundir.start(small_config("ProbeConstant-v0"), tmp_path / "a", env=Refund)
    with pytest.raises(TrainingFailed, match=r"cost of -1\.0 .* set the floor to none"):
        trainer.advance(10)
    trainer.close()
    signed = small_config("ProbeConstant-v0", cost_critic__cost_floor=None)
    trainer = rundir.start(signed, tmp_path / "b", env=Refund)
    trainer.advance(10)
    trainer.close()


def test_an_env_that_cannot_step_costs_no_old_run(tmp_path: Path) -> None:
    config = small_config("ProbeConstant-v0")
    rundir.start(config, tmp_path).close()
    before = (tmp_path / "config.json").read_bytes()
    with pytest.raises(InvalidInput, match="cost"):
        # A registered task whose info holds no cost.
        rundir.start(config, tmp_path, env="Pendulum-v1", overwrite=True)
    assert (tmp_path / "config.json").read_bytes() == before
    assert checkpoint.step_names(tmp_path / "checkpoints")


def test_a_directory_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "data.jsonl").write_text("precious")
    for overwrite in (False, True):
        with pytest.raises(InvalidInput, match="holds other files"):
            rundir.start(small_config("ProbeConstant-v0"), tmp_path, overwrite=overwrite)
    assert (tmp_path / "data.jsonl").read_text() == "precious"


def test_a_start_that_was_killed_can_be_started_again(tmp_path: Path) -> None:
    rundir.start(small_config("ProbeConstant-v0"), tmp_path).close()
    (tmp_path / "config.json").unlink()
    rundir.start(small_config("ProbeConstant-v0"), tmp_path).close()
    assert (tmp_path / "config.json").exists()
