"""The fast update against the one that is written to be read."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

from slsac.algorithms.off_policy import agent as off_policy
from slsac.algorithms.off_policy import reference
from slsac.bench.update import random_batch
from slsac.types import EnvSpec
from tests.support.agents import small_config


def in_double(array: Any) -> Any:
    return array.astype(np.float64) if array.dtype == np.float32 else array


SPEC = EnvSpec(11, 3, 1000, (-1.0,) * 3, (1.0,) * 3)


@pytest.fixture
def double_precision() -> Iterator[None]:
    """In single precision a ReLU at its kink goes one way here and the other way there."""
    with jax.enable_x64(True):
        yield


@pytest.mark.usefixtures("double_precision")
def test_the_update_stays_within_1e_5_of_the_reference_over_100_steps() -> None:
    config = small_config(
        "SafetyHopperVelocity-v1",
        policy__temperature=0.2,
        policy__optimiser__learning_rate=3e-4,
        reward_critic__optimiser__learning_rate=3e-4,
        cost_critic__optimiser__learning_rate=3e-4,
    )
    agent = off_policy.build(config, SPEC)
    fast = jax.jit(agent.update, static_argnums=3)
    plain = jax.jit(functools.partial(reference.update, config), static_argnums=3)
    start = jax.tree.map(in_double, jax.jit(agent.init)(jax.random.PRNGKey(0)))
    ours, theirs = start, start
    batch = jax.tree.map(in_double, random_batch(SPEC, config.batch_size))
    rng = np.random.default_rng(1)
    for number in range(1, 101):
        shuffled = jax.tree.map(lambda field: rng.permutation(field), batch)
        with_policy = number % config.policy_delay == 0
        ours, _ = fast(ours, shuffled, np.float64(0.7), with_policy)
        theirs = plain(theirs, shuffled, np.float64(0.7), with_policy)
    for name in ("policy", "reward_critics", "cost_critic", "target_policy",
                 "target_reward_critics", "target_cost_critic"):  # fmt: skip
        moved = 0.0
        pairs = zip(
            jax.tree.leaves(getattr(ours, name)), jax.tree.leaves(getattr(theirs, name)),
            jax.tree.leaves(getattr(start, name)), strict=True,
        )  # fmt: skip
        for one, other, before in pairs:
            np.testing.assert_allclose(one, other, atol=1e-5, err_msg=name)
            moved = max(moved, float(np.abs(one - before).max()))
        assert moved > (1e-3 if name.startswith("target") else 1e-2), name


@pytest.mark.parametrize("wrong", ["polyak", "tail_fraction"])
def test_another_algorithm_would_be_noticed(wrong: str) -> None:
    config = small_config("SafetyHopperVelocity-v1")
    other = small_config("SafetyHopperVelocity-v1", **{wrong: 0.2})
    agent = off_policy.build(config, SPEC)
    state = jax.jit(agent.init)(jax.random.PRNGKey(0))
    batch = random_batch(SPEC, config.batch_size)
    for number in range(1, 5):
        state, _ = agent.update(state, batch, np.float32(0.7), number % 2 == 0)
    ours, _ = agent.update(state, batch, np.float32(0.7), True)
    theirs = reference.update(other, state, batch, np.float32(0.7), True)
    name = "target_policy" if wrong == "polyak" else "policy"
    gap = max(
        float(np.abs(one - two).max())
        for one, two in zip(
            jax.tree.leaves(getattr(ours, name)), jax.tree.leaves(getattr(theirs, name)),
            strict=True,
        )
    )  # fmt: skip
    assert gap > 1e-5
