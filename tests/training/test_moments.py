"""Running moments of observations."""

from __future__ import annotations

import numpy as np
import pytest

from slsac.training.moments import RunningMoments


def test_running_moments_are_those_of_all_rows() -> None:
    rows = np.random.default_rng(0).normal(3.0, [0.1, 2.0, 50.0], size=(200, 3))
    moments = RunningMoments(3)
    for batch in np.split(rows, [1, 2, 10, 11, 100]):
        moments.add(batch)
    assert moments.mean == pytest.approx(rows.mean(axis=0))
    assert moments.deviation == pytest.approx(rows.std(axis=0), rel=1e-5)
    scaled = moments.normalise(rows, 1.5)
    assert scaled.dtype == np.float32
    assert np.abs(scaled).max() == 1.5
    again = RunningMoments(3)
    again.restore(moments.facts())
    assert np.array_equal(again.normalise(rows, 5.0), moments.normalise(rows, 5.0))


def test_one_observation_normalises_to_zero_and_not_to_infinity() -> None:
    moments = RunningMoments(2)
    moments.add(np.array([[7.0, -3.0]]))
    assert np.array_equal(moments.normalise(np.array([[7.0, -3.0]]), 5.0), [[0.0, 0.0]])
