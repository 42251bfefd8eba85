"""The discount that follows what episodes last."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from slsac.algorithms.off_policy import reward_critic
from slsac.config.presets import SL_SAC, SL_SAC_2
from slsac.training.discount import Discount
from tests.support.batches import make_batch

FOLLOWING = replace(
    SL_SAC.reward_critic, discount=0.98, discount_span=0.2, largest_discount=0.995
)  # fmt: skip


def after(lengths: list[int], horizon: int = 1000) -> Discount:
    discount = Discount(FOLLOWING, horizon)
    for length in lengths:
        discount.end_episode(length)
    return discount


def test_it_looks_a_fifth_of_an_episode_ahead() -> None:
    # 1 / (1 - gamma) is a fifth of 500 steps, or of 1,000.
    assert after([500] * 3).value == pytest.approx(0.99)
    assert after([1000]).value == pytest.approx(0.995)


def test_it_stays_within_its_bounds() -> None:
    assert after([]).value == 0.98
    assert after([1]).value == 0.98
    assert after([20] * 100).value == 0.98
    assert after([4000], horizon=4000).value == 0.995


def test_old_episodes_fade() -> None:
    # 10,000 steps of whole episodes weigh e times what came before them.
    discount = after([250] * 400 + [1000] * 10)
    ends_before = 1.0 / (1.0 - np.exp(-0.025)) / np.e
    ends_since = (1.0 - np.exp(-1.0)) / (1.0 - np.exp(-0.1))
    mean = (250 * ends_before + 1000 * ends_since) / (ends_before + ends_since)
    assert discount.value == pytest.approx(1.0 - 1.0 / (0.2 * mean), abs=1e-5)


def test_a_fixed_discount_takes_no_notice_and_leaves_no_trace() -> None:
    discount = Discount(SL_SAC.reward_critic, 1000)
    discount.end_episode(1000)
    assert (discount.value, discount.facts(), discount.metrics()) == (0.99, {}, {})


def test_it_continues_from_a_checkpoint() -> None:
    saved, restored = after([300, 700, 20]), after([1000])
    restored.restore(saved.facts())
    for discount in (saved, restored):
        discount.end_episode(900)
    assert restored.value == saved.value != after([900]).value


def test_the_target_counts_the_next_value_by_the_batch_s_own_discount() -> None:
    batch = make_batch(2, reward=jnp.ones(2), terminated=jnp.zeros(2))
    ten = jnp.full(2, 10.0)
    batch = batch._replace(steps=jnp.array([1.0, 2.0]), reward_discount=jnp.full(2, 0.5))
    target = reward_critic.bellman_target(batch, 0.9, ten, 0.0 * ten)
    np.testing.assert_allclose(target, [1 + 5.0, 1 + 2.5])


def test_sl_sac_2_looks_a_hundred_steps_ahead_where_episodes_are_short() -> None:
    discount = Discount(SL_SAC_2.reward_critic, 1000)
    discount.end_episode(20)
    assert discount.value == 0.99
