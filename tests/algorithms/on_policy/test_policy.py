"""The Gaussian policy: its density and divergence, and how it acts."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from slsac.algorithms.on_policy import policy as gaussian


def test_density_and_divergence_are_those_of_scipy() -> None:
    action, mean, log_std = np.array([0.3, -1.2]), np.array([0.1, 0.4]), np.array([-0.5, 0.3])
    new_mean, new_log_std = np.array([0.2, -0.1]), np.array([-0.2, 0.1])
    expected = norm.logpdf(action, mean, np.exp(log_std)).sum()
    assert float(gaussian.log_prob(action, mean, log_std)) == pytest.approx(expected, rel=1e-5)
    found = np.asarray(gaussian.divergence(mean, log_std, new_mean, new_log_std))
    for at in range(2):
        old = norm(mean[at], np.exp(log_std[at]))
        new = norm(new_mean[at], np.exp(new_log_std[at]))
        exact, _ = quad(lambda x: old.pdf(x) * (old.logpdf(x) - new.logpdf(x)), -15, 15)  # noqa: B023
        assert found[at] == pytest.approx(exact, abs=1e-5)
    entropy = norm.entropy(0, np.exp(log_std)).sum()
    assert float(gaussian.entropy(log_std)) == pytest.approx(entropy, rel=1e-5)


def test_the_policy_acts_alike_through_numpy_and_through_jax() -> None:
    policy = gaussian.init(60, 8, (64, 64), 0.0, jax.random.PRNGKey(0)).gaussian
    observation = np.random.default_rng(0).normal(size=(5, 60)).astype(np.float32)
    by_numpy = jax.tree.map(np.asarray, policy).network(observation, np.tanh)
    assert isinstance(by_numpy, np.ndarray)
    by_jax = np.asarray(gaussian.mean_action(policy, observation))
    assert by_numpy == pytest.approx(by_jax, abs=1e-5)
