"""The tightened limit, by hand and in training; tests/training/test_resume.py has it resumed."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from slsac.algorithms.tightening import Tightening
from slsac.envs.probe import Choice, HeavyTail
from slsac.errors import InvalidInput
from slsac.runs.log import read_lines
from slsac.training.off_policy import OffPolicyTrainer
from tests.support.agents import small_config

Start = Callable[..., OffPolicyTrainer]


def tightening(**overrides: object) -> Tightening:
    settings = {
        "multiplier__tighten": True,
        "multiplier__tightening_window": 2,
        "cost_critic__discount": 0.5,
        "tail_fraction": 0.25,
        "cost_limit": 24.0,
    }
    config = small_config("ProbeChoice-v0", **(settings | overrides))
    return Tightening(config, Choice().spec)


@jax.tree_util.Partial
def says_one(observation: jax.Array, action: jax.Array, fractions: jax.Array) -> jax.Array:
    return jnp.ones((1, fractions.shape[1]))


def play(made: Tightening, costs: list[float], *, terminated: bool) -> None:
    for cost in costs:
        made.step(np.zeros(2, np.float32), np.zeros(1, np.float32), cost)
    made.end_episode(says_one, terminated=terminated)


def test_share_by_hand() -> None:
    made = tightening()
    play(made, [1.0, 2.0], terminated=True)
    assert (made.quantile_error, made.share) == (None, 0.0)
    # Discounted costs 1 + 2/2 = 2 and 1; the critic says 1: delta is sqrt(1/2), its CVaR may be
    # off by sqrt(2), and 24 over ten steps are 2.4 * (2 - 2^-9) discounted.
    play(made, [0.0, 2.0], terminated=True)
    assert made.quantile_error == pytest.approx(0.5**0.5)
    assert made.share == pytest.approx(2**0.5 / (2.4 * (2 - 2**-9)))
    # The mean may be off by delta itself.
    mean = tightening(multiplier__signal="mean")
    mean.restore(made.facts())
    assert mean.share == pytest.approx(made.share / 2)


def test_the_window_forgets_and_the_cap_holds() -> None:
    made = tightening(multiplier__largest_tightening=0.3)
    for _ in range(2):
        play(made, [9.0], terminated=True)
    assert made.share == 0.3
    for _ in range(2):
        play(made, [1.0], terminated=True)
    assert (made.quantile_error, made.share) == (0.0, 0.0)


def test_an_episode_cut_off_early_does_not_count() -> None:
    made = tightening()
    play(made, [9.0] * 6, terminated=False)
    assert made.rows == []
    # 2^-7 is below a hundredth: nothing that weighs is missing.
    play(made, [1.0] + [0.0] * 6, terminated=False)
    assert len(made.rows) == 1


def test_a_critic_that_continues_after_the_end_is_not_held_to_an_episode_that_ended() -> None:
    made = tightening(cost_critic__after_termination="continued")
    play(made, [9.0], terminated=True)
    assert made.rows == []
    play(made, [1.0] + [0.0] * 6, terminated=True)
    assert len(made.rows) == 1


def test_off_it_remembers_nothing() -> None:
    made = tightening(multiplier__tighten=False)
    for _ in range(3):
        play(made, [9.0], terminated=True)
    assert (made.rows, made.share, made.metrics()) == ([], 0.0, {})


def test_it_needs_a_quantile_critic() -> None:
    with pytest.raises(InvalidInput, match=r"multiplier\.tighten is True; .*kind is quantile"):
        small_config("ProbeChoice-v0", "sac-lag", multiplier__tighten=True)


def test_a_heavy_tail_is_violated_less_often(start: Start) -> None:
    found = {}
    for tighten in (False, True):
        trainer = start(
            "ProbeHeavyTail-v0",
            cost_limit=8.5,
            policy__temperature=1e-2,
            multiplier__tighten=tighten,
            multiplier__learning_rate=1e-3,
            multiplier__window=50,
            reward_critic__pairs=1,
        )
        trainer.advance(2_000)
        last = read_lines(trainer.run / "episodes.jsonl")[-700:]
        efforts = np.array([line["return"] for line in last])
        # Averaged over states and chance, not the luck of these episodes.
        states = np.linspace(0.0, 1.0, 21)[:, None]
        scales = HeavyTail.scale(states, efforts)
        found[tighten] = float(np.mean((1.0 + 0.25 * 8.5 / scales) ** -4.0)), efforts.mean()
        epoch = read_lines(trainer.run / "progress.jsonl")[-1]
        assert (epoch["signal_limit"] < 8.5) == ("quantile_error" in epoch) == tighten
    assert found[True][0] < 0.93 * found[False][0]
    # The price: less effort, hence less return.
    assert found[True][1] < found[False][1]
