"""What must hold for every off-policy algorithm: values, constraint, resume, real tasks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from slsac.algorithms.off_policy import cost_critic
from slsac.envs.probe import Choice
from slsac.training import launch
from slsac.training.off_policy import OffPolicyTrainer
from tests.support.agents import small_config
from tests.support.probes import (
    CHOICE,
    SOME_FRACTIONS,
    average_outcome,
    cost_quantiles,
    reward_values,
)
from tests.support.runs import quick_config, stopped, undisturbed

Start = Callable[..., OffPolicyTrainer]

ALGOS = ("sl-sac", "sl-sac-2", "sac-lag", "td3-lag", "sac-pid", "td3-pid", "wcsac")
BUT_SL_SAC = ALGOS[1:]


def expected_cost(trainer: OffPolicyTrainer, observation: np.ndarray) -> float:
    """What the cost critic, of either kind, expects at action 0."""
    if trainer.config.cost_critic.kind == "quantile":
        return float(cost_quantiles(trainer, observation, SOME_FRACTIONS).mean())
    critic = cost_critic.build(trainer.config.cost_critic, trainer.spec, 0.5)
    at = jnp.float32(observation)[None], jnp.zeros((1, 1))
    return float(critic.charge(trainer.state.cost_critic, *at, jax.random.PRNGKey(0))[0])


@pytest.mark.parametrize("algo", ["sac-lag", "td3-lag", "wcsac"])
def test_values_of_the_chain(start: Start, algo: str) -> None:
    # The pid presets have the same critics as the lag ones. Without automatic temperature the
    # entropy bonus is zero and the values are those of the table.
    trainer = start(
        "ProbeChain-v0",
        algo,
        reward_critic__discount=0.9,
        cost_critic__discount=0.9,
        policy__automatic_temperature=False,
        multiplier__learning_rate=0.0,
        multiplier__damping=0.0,
        multiplier__initial=0.1,
    )
    trainer.advance(3_000)
    for state, (value, cost) in enumerate(((2.71, 3.24), (1.9, 3.6), (1.0, 4.0))):
        observation = np.eye(3)[state]
        assert reward_values(trainer, observation) == pytest.approx(np.full(2, value), abs=0.08)
        assert expected_cost(trainer, observation) == pytest.approx(cost, rel=0.06)


MULTIPLIERS: dict[str, dict[str, Any]] = {
    # Under so short a horizon a reward of 1 weighs ten times what it does in the presets.
    "sl-sac-2": {
        "multiplier__integral_gain": 2e-4,
        "multiplier__maximum": 20.0,
        "multiplier__reserve": 0.0,  # the best safe return is at the limit itself
        "policy__automatic_temperature": False,
    },
    "sac-lag": {"multiplier__learning_rate": 3e-4},
    "td3-lag": {"multiplier__learning_rate": 3e-4, "policy__temperature": 0.0},
    "sac-pid": {
        "multiplier__proportional_gain": 0.05,
        "multiplier__integral_gain": 3e-4,
        "multiplier__derivative_gain": 0.05,
    },
    "td3-pid": {
        "multiplier__proportional_gain": 0.05,
        "multiplier__integral_gain": 3e-4,
        "multiplier__derivative_gain": 0.05,
        "policy__temperature": 0.0,
    },
    # Its signal is that of replayed actions, so only a short replay tells of the present policy.
    "wcsac": {
        "multiplier__learning_rate": 1e-3,
        "multiplier__initial": 0.1,
        "multiplier__damping": 1.0,
        "policy__automatic_temperature": False,
        "replay_capacity": 500,
    },
}


@pytest.mark.parametrize("algo", BUT_SL_SAC)
def test_the_binding_constraint_is_kept(start: Start, algo: str) -> None:
    trainer = start("ProbeChoice-v0", algo, **(CHOICE | MULTIPLIERS[algo]))
    trainer.advance(7_000)
    mean_return, mean_cost = average_outcome(trainer)
    assert mean_cost <= 1.05 * Choice.LIMIT
    assert mean_return >= 0.85 * Choice.BEST_SAFE_RETURN


@pytest.mark.parametrize("algo", BUT_SL_SAC)
def test_resumed_and_repeated_runs_equal_undisturbed_ones(tmp_path: Path, algo: str) -> None:
    overrides: dict[str, Any] = {"multiplier__initial": 0.1}
    if algo == "td3-lag":
        overrides |= {"cost_critic__cost_scaling": "deviation"}
    if algo.startswith("td3"):
        overrides |= {"policy__temperature": 0.0}
    config = quick_config(algo=algo, **overrides)
    expected = undisturbed(tmp_path / "a", config)
    assert stopped(tmp_path / "b", config, 97, 263) == expected


@pytest.mark.parametrize("env", ["SafetyHopperVelocity-v1", "SafetyPointGoal1-v0"])
@pytest.mark.parametrize("algo", ALGOS)
def test_first_steps_on_a_real_task_are_finite(tmp_path: Path, algo: str, env: str) -> None:
    temperature = 0.0 if algo.startswith("td3") else 0.1
    config = small_config(
        env,
        algo,
        warmup_steps=30,
        batch_size=16,
        policy_delay=1,  # one kind of update, and so one compilation
        multiplier__initial=0.1,
        policy__temperature=temperature,
    )
    trainer = launch.start(config, tmp_path)
    before = jax.tree.leaves(jax.tree.map(np.array, trainer.state.policy))
    trainer.advance(60)
    after = jax.tree.leaves(jax.tree.map(np.array, trainer.state.policy))
    trainer.close()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(trainer.state))
    assert any(np.any(one != two) for one, two in zip(before, after, strict=True))
