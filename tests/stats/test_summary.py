"""Summaries of an evaluation, checked by hand, and its form in the logs."""

from __future__ import annotations

import json

import numpy as np
import pytest

from slsac.errors import InvalidInput
from slsac.stats.summary import (
    Evaluation,
    as_record,
    from_record,
    joined,
    stack_extras,
    summarise,
)

PLAYED = Evaluation(
    returns=np.array([10.0, 30.0, 20.0, 40.0]),
    costs=np.array([0.0, 4.0, 8.0, 12.0]),
    lengths=np.array([5, 6, 7, 8]),
    extras={"success": np.array([1.0, 0.0, 1.0, 1.0])},
)


def test_a_summary_by_hand() -> None:
    summary = summarise(PLAYED, cost_limit=8.0, tail_fraction=0.5)
    assert summary == {
        "episodes": 4,
        "return_mean": 25.0,
        # Deviations -15, 5, -5, 15: variance 500 / 3, divided by 4 episodes.
        "return_se": pytest.approx((500 / 12) ** 0.5),
        "return_cvar": 15.0,
        "cost_mean": 6.0,
        "cost_se": pytest.approx((80 / 12) ** 0.5),
        "cost_cvar": 10.0,
        # A cost of exactly the limit keeps it.
        "violation_rate": 0.25,
        "length_mean": 6.5,
        "cost_limit": 8.0,
        "tail_fraction": 0.5,
        "success_mean": 0.75,
    }


def test_a_single_episode_has_no_standard_error() -> None:
    single = Evaluation(np.array([1.0]), np.array([2.0]), np.array([3]))
    summary = summarise(single, cost_limit=1.0, tail_fraction=0.5)
    assert summary["return_se"] is None
    assert summary["cost_se"] is None


def assert_equal(left: Evaluation, right: Evaluation) -> None:
    np.testing.assert_equal(left._asdict(), right._asdict())


def test_an_evaluation_is_read_back_from_the_line_of_a_log() -> None:
    line = json.dumps({"step": 7, "final": True, "cost_mean": 6.0, **as_record(PLAYED)})
    assert_equal(from_record(json.loads(line)), PLAYED)


def test_parts_are_joined_in_order() -> None:
    def rows(start: int, end: int) -> Evaluation:
        extras = {name: values[start:end] for name, values in PLAYED.extras.items()}
        return Evaluation(*(values[start:end] for values in PLAYED[:3]), extras)

    assert_equal(joined([rows(0, 3), rows(3, 4)]), PLAYED)


def test_extras_become_arrays() -> None:
    assert stack_extras([{}, {}]) == {}
    stacked = stack_extras([{"success": 1.0}, {"success": 0.0}])
    np.testing.assert_array_equal(stacked["success"], [1.0, 0.0])
    with pytest.raises(InvalidInput, match="reports 'success' at the end of some episodes and not"):
        stack_extras([{"success": 1.0}, {}])
