"""SL-SAC on tasks whose answers are known: values, quantiles, CVaR, and the best safe policy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from slsac.certificate import certify
from slsac.certificate.contents import Calibration
from slsac.envs.probe import Choice, HeavyTail
from slsac.training import launch
from slsac.training.off_policy import OffPolicyTrainer
from tests.support.probes import (
    CHOICE,
    SOME_FRACTIONS,
    average_outcome,
    cost_quantiles,
    reward_values,
)

Start = Callable[..., OffPolicyTrainer]


def test_one_step_is_worth_its_reward_and_its_cost(start: Start) -> None:
    trainer = start("ProbeConstant-v0")
    trainer.advance(1_500)
    assert reward_values(trainer, np.ones(1)) == pytest.approx(np.ones(6), abs=0.02)
    assert cost_quantiles(trainer, np.ones(1), SOME_FRACTIONS) == pytest.approx(2.0, abs=0.1)


def test_a_run_with_two_cost_critics_learns_resumes_and_is_certified(start: Start) -> None:
    trainer = start("ProbeConstant-v0", cost_critic__members=2, reward_critic__pairs=1)
    trainer.advance(1_000)
    assert cost_quantiles(trainer, np.ones(1), SOME_FRACTIONS) == pytest.approx(2.0, abs=0.1)
    trainer.save_checkpoint()
    trainer.close()
    again = launch.resume(trainer.run)
    again.advance(1_010)
    again.save_final()
    again.close()
    certificate, _ = certify(trainer.run, 2)
    assert isinstance(certificate.calibration, Calibration)
    assert certificate.calibration.error.predicted_mean == pytest.approx(2.0, abs=0.1)
    assert certificate.calibration.realised_mean == 2.0


def test_a_chain_is_worth_its_discounted_sums(start: Start) -> None:
    trainer = start("ProbeChain-v0", reward_critic__discount=0.9, cost_critic__discount=0.9)
    trainer.advance(3_000)
    for state, (value, cost) in enumerate(((2.71, 3.24), (1.9, 3.6), (1.0, 4.0))):
        observation = np.eye(3)[state]
        assert reward_values(trainer, observation) == pytest.approx(np.full(6, value), abs=0.05)
        quantiles = cost_quantiles(trainer, observation, SOME_FRACTIONS)
        assert quantiles == pytest.approx(cost, rel=0.06)


@pytest.mark.parametrize(
    ("env", "value"), [("ProbeTerminated-v0", 1.0), ("ProbeTruncated-v0", 2.0)]
)
def test_only_termination_stops_bootstrapping(start: Start, env: str, value: float) -> None:
    trainer = start(env, reward_critic__discount=0.5, cost_critic__discount=0.5)
    trainer.advance(1_500)
    assert reward_values(trainer, np.ones(1)) == pytest.approx(np.full(6, value), abs=0.03)
    assert cost_quantiles(trainer, np.ones(1), SOME_FRACTIONS) == pytest.approx(value, abs=0.15)


def test_the_cost_critic_learns_a_heavy_tail(start: Start) -> None:
    trainer = start(
        "ProbeHeavyTail-v0",
        warmup_steps=3_000,
        batch_size=256,
        cost_critic__hidden=(128, 128),
        cost_critic__optimiser__learning_rate=1e-3,
    )
    # Random actions fill the replay, so that every effort has been tried when learning begins.
    trainer.advance(5_500)
    fractions = (np.arange(200) + 0.5) / 200
    for state, effort in ((0.2, 0.2), (0.5, 0.5), (0.8, 0.8)):
        observation, action = np.array([state]), 2.0 * effort - 1.0
        predicted = cost_quantiles(trainer, observation, fractions, action)
        middle = slice(20, 180)
        truth = HeavyTail.quantile(state, effort, fractions)
        assert predicted[middle] == pytest.approx(truth[middle], rel=0.25, abs=0.5)
        for tail_fraction in (0.5, 0.1):
            tail = 1.0 - tail_fraction * (1.0 - fractions)
            cvar = cost_quantiles(trainer, observation, tail, action).mean()
            true = HeavyTail.cvar(state, effort, tail_fraction)
            assert cvar == pytest.approx(true, rel=0.15)


def test_the_binding_constraint_is_kept_at_little_loss(start: Start) -> None:
    trainer = start("ProbeChoice-v0", multiplier__learning_rate=3e-4, **CHOICE)
    trainer.advance(8_000)
    mean_return, mean_cost = average_outcome(trainer)
    assert mean_cost <= Choice.LIMIT
    assert mean_return >= 0.95 * Choice.BEST_SAFE_RETURN
    assert trainer.session.lagrangian.state.value == pytest.approx(1.0, abs=0.15)


def test_without_a_multiplier_the_same_agent_violates(start: Start) -> None:
    trainer = start("ProbeChoice-v0", multiplier__learning_rate=0.0, **CHOICE)
    trainer.advance(3_000)
    result = trainer.evaluate_now(1, final=False)
    assert result.costs[0] > 10.0 * Choice.LIMIT
    assert result.returns[0] > 0.95 * 10.0
