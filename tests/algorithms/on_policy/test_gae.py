"""Advantages against a plain loop, and the three ways in which an episode's sum can stop."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from slsac.algorithms.on_policy.gae import advantages


def by_loop(
    reward: np.ndarray,
    value: np.ndarray,
    next_value: np.ndarray,
    terminated: np.ndarray,
    ended: np.ndarray,
    discount: float,
    trace_decay: float,
) -> np.ndarray:
    """The definition: sums of (gamma lambda)^k d_{t+k} up to the end of the episode."""
    found = np.zeros_like(reward)
    for env in range(reward.shape[1]):
        for start in range(len(reward)):
            for time in range(start, len(reward)):
                bootstrap = 0.0 if terminated[time, env] else next_value[time, env]
                error = reward[time, env] + discount * bootstrap - value[time, env]
                found[start, env] += (discount * trace_decay) ** (time - start) * error
                if ended[time, env]:
                    break
    return found


def test_equals_the_plain_loop() -> None:
    rng = np.random.default_rng(0)
    shape = (50, 3)
    reward, value, next_value = rng.normal(size=(3, *shape))
    ended = rng.uniform(size=shape) < 0.1
    ended[-1] = True
    terminated = ended & (rng.uniform(size=shape) < 0.5)
    assert 0 < terminated.sum() < ended.sum()
    arrays = [np.asarray(x, np.float32) for x in (reward, value, next_value, terminated, ended)]
    found = advantages(*map(jnp.asarray, arrays), discount=0.97, trace_decay=0.9)
    assert np.asarray(found) == pytest.approx(by_loop(*arrays, 0.97, 0.9), abs=1e-5)


@pytest.mark.parametrize(
    ("terminated", "ended", "first"),
    # With gamma = 1/2 and lambda = 1: d = 1 + next / 2 - 2, and the second row counts half.
    [
        pytest.param([0, 1], [0, 1], 1 + 2 - 2 + (1 - 2) / 2, id="terminated"),
        pytest.param([0, 0], [0, 1], 1 + 2 - 2 + (1 + 2 - 2) / 2, id="truncated"),
        pytest.param([1, 0], [1, 1], 1 - 2, id="terminated-at-once"),
        pytest.param([0, 0], [1, 1], 1 + 2 - 2, id="truncated-at-once"),
    ],
)
def test_a_time_limit_keeps_the_next_value_and_an_end_does_not(
    terminated: list[int], ended: list[int], first: float
) -> None:
    column = jnp.ones((2, 1))
    found = advantages(
        column, 2 * column, 4 * column,
        jnp.float32(terminated)[:, None], jnp.float32(ended)[:, None],
        discount=0.5, trace_decay=1.0,
    )  # fmt: skip
    assert float(found[0, 0]) == pytest.approx(first)
