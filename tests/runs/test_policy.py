"""What a run has learned: policy, steps and cost critic of one moment."""

from __future__ import annotations

import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

from slsac.errors import InvalidInput
from slsac.runs import layout, policy
from slsac.training import launch
from tests.support.agents import small_config
from tests.support.paths import ROOT


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("trained") / "run"
    config = small_config("ProbeChoice-v0", steps=220, batch_size=16, checkpoint_every_steps=100)
    trainer = launch.start(config, run)
    trainer.advance(config.steps)
    trainer.finish()
    trainer.close()
    return run


def test_the_policy_comes_with_its_steps_and_its_cost_critic(trained: Path) -> None:
    learned = policy.load_learned(trained)
    assert learned.steps == 220
    assert learned.policy_sha256 == layout.policy_digest(trained)
    _, expected = policy.load(trained)
    jax.tree.map(np.testing.assert_array_equal, learned.policy, expected)
    assert jax.tree.leaves(learned.cost_critic)


def test_a_cost_critic_of_another_policy_is_none(trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    # Older checkpoints are there, but they hold earlier policies.
    for name in ("final", "last"):
        shutil.rmtree(run / "checkpoints" / name)
    assert list((run / "checkpoints").iterdir())
    learned = policy.load_learned(run)
    assert learned.cost_critic is None
    assert learned.steps == 200


@pytest.mark.parametrize(
    ("run", "steps"),
    [
        ("sl-sac/SafetyHopperVelocity-v1/seed0", 300_000),
        ("ppo-lag/SafetyPointGoal1-v0/seed0", 499_712),
    ],
)
def test_a_recorded_run_has_steps_and_no_cost_critic(run: str, steps: int) -> None:
    learned = policy.load_learned(ROOT / "results" / run)
    assert (learned.steps, learned.cost_critic) == (steps, None)


def test_a_run_without_a_policy_is_refused(trained: Path, tmp_path: Path) -> None:
    shutil.copy(trained / "config.json", tmp_path)
    with pytest.raises(InvalidInput, match=r"policy\.safetensors cannot be read"):
        policy.load_learned(tmp_path)
