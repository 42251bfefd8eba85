"""Evaluation: the same bits for any number of lanes, episodes and rows."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from slsac.algorithms.off_policy import policy as policies
from slsac.config.presets import preset
from slsac.envs import make_env
from slsac.envs.play import Lanes
from slsac.envs.probe import PROBES, Constant
from slsac.errors import EnvFailed
from slsac.evaluate import evaluate
from slsac.networks import row_by_row
from slsac.seeds import Branch, episode_seed
from slsac.stats.summary import Evaluation
from slsac.types import EnvSpec, SafeEnv


def trained_head(spec: EnvSpec) -> Any:
    """A policy of full size with large weights, so that its actions vary."""
    head = policies.build(preset("sl-sac", "SafetyHopperVelocity-v1").policy, spec)
    params = jax.tree.map(lambda leaf: 2.0 * leaf, head.init(jax.random.PRNGKey(0)))
    predict = jax.jit(row_by_row(head.mode))
    return lambda observations: np.asarray(predict(params, observations))


def one_by_one(env: SafeEnv, predict: Any, episodes: int, seed: int) -> Evaluation:
    """Evaluation in its plainest form, with vectors."""
    results = []
    for episode in range(episodes):
        observation = env.reset(episode_seed(seed, Branch.EVALUATION, episode))
        total, cost, length, over = 0.0, 0.0, 0, False
        while not over:
            step = env.step(predict(observation))
            observation = step.observation
            total, cost, length = total + step.reward, cost + step.cost, length + 1
            over = step.terminated or step.truncated
        results.append((total, cost, length))
    returns, costs, lengths = map(np.array, zip(*results, strict=True))
    return Evaluation(returns, costs, lengths)


def equal(left: Evaluation, right: Evaluation) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize("size", [11, 60, 376])
def test_rows_have_the_bits_of_single_observations(size: int) -> None:
    predict = trained_head(EnvSpec(size, 3, 1000, (-1.0,) * 3, (1.0,) * 3))
    observations = np.random.default_rng(0).normal(size=(10, size)).astype(np.float32)
    single = np.stack([predict(observation) for observation in observations])
    assert np.array_equal(predict(observations), single)
    assert np.array_equal(predict(observations[::-1]), single[::-1])
    assert np.array_equal(predict(observations[:3]), single[:3])


@pytest.mark.parametrize("env_id", ["SafetyHopperVelocity-v1", "SafetyCarGoal1-v0"])
def test_lockstep_equals_one_after_the_other(env_id: str) -> None:
    horizon = 1000 if "Hopper" in env_id else 30
    lanes = Lanes(lambda: make_env(env_id, horizon=horizon))
    predict = trained_head(make_env(env_id, horizon=horizon).spec)
    reference = one_by_one(make_env(env_id, horizon=horizon), predict, 7, seed=3)
    if "Hopper" in env_id:
        assert len(set(reference.lengths)) > 1, "lanes end at different times"
    for max_lanes in (1, 2, 4, None):
        assert equal(evaluate(lanes, predict, 7, 3, max_lanes=max_lanes), reference)
    fewer = evaluate(lanes, predict, 2, 3)
    assert equal(fewer, Evaluation(*(values[:2] for values in reference[:3])))
    assert equal(evaluate(make_env(env_id, horizon=horizon), predict, 2, 3), fewer)
    lanes.close()


def test_a_reward_that_is_not_finite_ends_an_evaluation() -> None:
    env = PROBES["ProbeChoice-v0"]()
    step = env.step
    env.step = lambda action: step(action)._replace(reward=float("nan"))  # type: ignore[method-assign]
    with pytest.raises(EnvFailed, match="a reward of nan"):
        evaluate(env, lambda observation: np.zeros(env.spec.action_size), 1, seed=0)


class Blind(Constant):
    """Sees nothing but nan."""

    def reset(self, seed: int) -> np.ndarray:
        return np.full_like(super().reset(seed), np.nan)


def test_an_evaluation_refuses_observations_that_are_not_finite() -> None:
    env = Blind()
    with pytest.raises(EnvFailed, match="observation"):
        evaluate(env, lambda observation: np.zeros(env.spec.action_size, np.float32), 2, 0)
