"""Calibration of cost critics, on points whose distribution is known."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest

from slsac.certificate import calibration
from slsac.certificate.calibration import Points, Trajectory
from slsac.certificate.contents import Calibration, NotCalibrated, QuantileError
from slsac.config import CostCriticConfig
from slsac.config.presets import preset
from slsac.envs.probe import Chain, Counts
from slsac.stats import distance

CONFIG = preset("sl-sac", "ProbeHeavyTail-v0").cost_critic


def test_discounted_sums_by_hand() -> None:
    sums = calibration.discounted_sums(np.array([1.0, 0.0, 4.0]), 0.5)
    np.testing.assert_array_equal(sums, [2.0, 2.0, 4.0])


def test_points_of_a_cut_off_episode_are_far_from_its_end() -> None:
    def of(steps: int, terminated: bool) -> np.ndarray:
        nothing = np.zeros((steps, 1))
        trajectory = Trajectory(nothing, nothing, np.zeros(steps), terminated)
        return calibration.usable_steps(trajectory, 0.9)

    # .9^43 = .0108 and .9^44 = .0097: 44 steps must be left.
    np.testing.assert_array_equal(of(50, terminated=False), np.arange(7))
    np.testing.assert_array_equal(of(50, terminated=True), np.arange(50))
    assert of(43, terminated=False).size == 0


def test_a_sampled_episode_is_recorded_and_repeats() -> None:
    def explore(observation: np.ndarray, key: jax.Array) -> np.ndarray:
        return np.asarray(jax.random.uniform(key, (1,), minval=-1.0))

    first, second = (calibration.play_sampled(Chain(), explore, 5, episode) for episode in (0, 1))
    assert first.terminated
    np.testing.assert_array_equal(first.observations, np.eye(3))
    np.testing.assert_array_equal(first.costs, [0.0, 0.0, 4.0])
    assert len(np.unique(first.actions)) == 3, "every step draws anew"
    assert not np.array_equal(first.actions, second.actions)
    again = calibration.play_sampled(Chain(), explore, 5, 1)
    np.testing.assert_array_equal(again.actions, second.actions)


def test_pooled_distance_by_hand() -> None:
    # Realised 0, 4, each half; predicted 0, 1, 3, 4, a quarter each: gaps 0, 1, 1, 0.
    realised, predicted = np.array([4.0, 0.0]), np.array([[3.0, 0.0], [1.0, 4.0]])
    assert distance.pooled_distance(realised, predicted, order=1) == 0.5
    assert distance.pooled_distance(realised, predicted, order=2) == pytest.approx(0.5**0.5)


def uniform_points(scale: float, seed: int = 0, episodes: int = 60) -> Points:
    """At state s the realised cost is uniform on [0, scale (1 + s)], ten points an episode."""
    rng = np.random.default_rng(seed)
    states = rng.uniform(size=(10 * episodes, 1))
    realised = scale * (1.0 + states[:, 0]) * rng.uniform(size=len(states))
    episode = np.repeat(np.arange(episodes), 10)
    return Points(states, np.zeros((len(states), 1)), realised, episode)


def uniform_critic(
    observation: np.ndarray, action: np.ndarray, fractions: np.ndarray
) -> np.ndarray:
    """The exact quantiles of `uniform_points` at scale 1."""
    return (1.0 + observation) * fractions


def error_of(points: Points) -> QuantileError:
    return calibration.quantile_error(
        points,
        uniform_critic,
        discount=CONFIG.discount,
        tail_fraction=0.25,
        horizon=20,
        confidence=0.95,
        rng=np.random.default_rng(1),
    )


def test_a_critic_that_is_right_is_reliable_and_off_by_chance_alone() -> None:
    error = error_of(uniform_points(1.0))
    assert error.observed == pytest.approx(error.nominal, abs=0.06)
    assert error.wasserstein < 0.05
    assert error.delta == pytest.approx(error.delta_if_perfect, rel=0.4)


def test_the_error_of_a_wrong_critic_is_measured() -> None:
    # Costs are twice the prediction: the quantile functions differ by (1 + s) tau, whose mean
    # square over s and tau is 7/3 * 1/3, and whose mean is 3/4.
    error = error_of(uniform_points(2.0))
    assert error.delta == pytest.approx((7 / 9) ** 0.5, rel=0.1)
    assert error.delta_interval[0] < (7 / 9) ** 0.5 < error.delta_interval[1] * 1.05
    assert error.delta > 4 * error.delta_if_perfect
    assert error.wasserstein == pytest.approx(0.75, rel=0.1)
    # A predicted quantile tau is the true one at tau / 2.
    assert error.observed == pytest.approx([tau / 2 for tau in error.nominal], abs=0.06)


def test_dependent_points_widen_the_interval() -> None:
    # The same points, once as 600 episodes and once as copies within 6.
    few = uniform_points(2.0, episodes=6)
    rows = np.tile(np.arange(60), 10)
    together = Points(*(column[rows] for column in few))
    apart = together._replace(episode=np.arange(600))
    wide, narrow = error_of(together).delta_interval, error_of(apart).delta_interval
    assert wide[1] - wide[0] > 1.5 * (narrow[1] - narrow[0])


def test_a_scalar_critic_has_a_bias_only() -> None:
    points = uniform_points(1.0)
    rng = np.random.default_rng(0)

    def says_two(observation: np.ndarray, action: np.ndarray, fractions: np.ndarray) -> np.ndarray:
        """The mean is (1 + 1/2) / 2."""
        return np.full((len(observation), 1), 2.0)

    error = calibration.mean_error(points, says_two, confidence=0.95, rng=rng)
    assert error.predicted_mean == 2.0
    assert error.bias == pytest.approx(1.25, abs=0.05)
    assert error.bias_interval[0] < 1.25 < error.bias_interval[1]


def calibrate(
    trajectories: list[Trajectory], config: CostCriticConfig
) -> Calibration | NotCalibrated:
    return calibration.calibrate(
        trajectories,
        uniform_critic,
        config,
        tail_fraction=0.25,
        horizon=20,
        confidence=0.95,
        seed=0,
        policy_sha256="0123",
    )


def test_the_bound_on_cvar_follows_from_delta_in_both_units() -> None:
    def explore(observation: np.ndarray, key: jax.Array) -> np.ndarray:
        return np.zeros(1, np.float32)

    trajectories = [calibration.play_sampled(Counts(), explore, 0, episode) for episode in range(8)]
    calibrated = calibrate(trajectories, CONFIG)
    assert isinstance(calibrated, Calibration)
    assert (calibrated.episodes, calibrated.points) == (8, 160)
    error = calibrated.error
    assert isinstance(error, QuantileError)
    assert error.cvar_error_bound == pytest.approx(2 * error.delta)
    # One unit of cost spread over 20 steps is worth (1 - .99^20) / .2 discounted.
    factor = (1 - 0.99**20) / 0.2
    assert error.cvar_error_bound_undiscounted == pytest.approx(2 * error.delta / factor)


def test_what_cannot_be_calibrated_says_why() -> None:
    nothing = np.zeros((20, 1))
    cut = [Trajectory(nothing, nothing, np.zeros(20), terminated=False)]
    scaled = replace(CONFIG, cost_scaling="deviation")
    for config, reason in ((CONFIG, "cut off by the clock"), (scaled, "scaled by 'deviation'")):
        refused = calibrate(cut, config)
        assert isinstance(refused, NotCalibrated)
        assert reason in refused.reason
        assert refused.policy_sha256 == "0123"
