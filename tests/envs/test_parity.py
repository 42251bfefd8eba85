"""The tasks behave as they did on the stack they were released with; see tests/data/parity."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from slsac.envs.safety_gymnasium import SafetyGymnasiumEnv
from slsac.tasks import IN_THE_PAPER
from tests.support.paths import ROOT

RECORDS = ROOT / "tests" / "data" / "parity"
EXACT_ENGINE = "3.1.6"
EPISODES = {"velocity": 20, "navigation": 4}


def in_unit_range(actions: np.ndarray, env: SafetyGymnasiumEnv) -> np.ndarray:
    low, high = np.array(env.spec.action_low), np.array(env.spec.action_high)
    return np.asarray(2 * (actions - low) / (high - low) - 1)


def random_episode(env: SafetyGymnasiumEnv, seed: int) -> tuple[float, float, int]:
    rng = np.random.default_rng(seed)
    env.reset(seed)
    total_reward, total_cost, length = 0.0, 0.0, 0
    while True:
        step = env.step(rng.uniform(-1.0, 1.0, env.spec.action_size))
        total_reward += step.reward
        total_cost += step.cost
        length += 1
        if step.terminated or step.truncated:
            return total_reward, total_cost, length


@pytest.mark.skipif(
    mujoco.__version__ != EXACT_ENGINE,
    reason=f"trajectories are compared on mujoco {EXACT_ENGINE}; this is {mujoco.__version__}",
)
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("env_id", IN_THE_PAPER)
def test_first_steps_equal_the_recorded_ones(env_id: str, seed: int) -> None:
    record = np.load(RECORDS / f"{env_id}.npz")
    env = SafetyGymnasiumEnv(env_id)
    actions = in_unit_range(record[f"act_{seed}"], env)
    observations = [env.reset(seed)]
    steps = [env.step(action) for action in actions[:5]]
    observations += [step.observation for step in steps]
    np.testing.assert_allclose(observations, record[f"obs_{seed}"][:6], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(
        [step.reward for step in steps], record[f"rew_{seed}"][:5], rtol=1e-6, atol=1e-6
    )
    assert [step.cost for step in steps] == record[f"cost_{seed}"][:5].tolist()
    assert [step.terminated for step in steps] == record[f"term_{seed}"][:5].tolist()
    env.close()


@pytest.mark.parametrize("env_id", IN_THE_PAPER)
def test_random_policy_has_the_recorded_statistics(env_id: str) -> None:
    recorded = np.load(RECORDS / f"{env_id}.npz")["random_policy_episodes"]
    env = SafetyGymnasiumEnv(env_id)
    played = np.array([random_episode(env, 100 + i) for i in range(EPISODES[env.family])])
    n, m = len(played), len(recorded)
    pooled = ((n - 1) * played.var(0, ddof=1) + (m - 1) * recorded.var(0, ddof=1)) / (n + m - 2)
    standard_error = np.sqrt(pooled * (1 / n + 1 / m))
    difference = np.abs(played.mean(0) - recorded.mean(0))
    for name, apart, error in zip(
        ("return", "cost", "length"), difference, standard_error, strict=True
    ):
        assert apart <= 4 * error + 1e-9, f"{name} is {apart:.4g} off; s.e. {error:.4g}"
    env.close()
