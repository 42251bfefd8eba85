"""Statistics over seeds: hand-made figures, and data that would expose a swapped axis."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from slsac.report.aggregate import (
    bootstrap_interval,
    group_results,
    improvements,
    probability_of_improvement,
    spreads_over_seeds,
    trimmed_means,
)
from slsac.report.read import find_runs, group_runs
from tests.support.recorded import HOPPER, make_run

ANT = "SafetyAntVelocity-v1"


def test_the_interquartile_mean_drops_a_quarter_at_each_end() -> None:
    scores = np.array([[0.0], [10.0], [20.0], [30.0], [40.0], [50.0], [60.0], [1e6]])
    assert trimmed_means(scores).tolist() == [35.0]
    assert trimmed_means(np.array([[1.0], [2.0], [6.0]])).tolist() == [3.0]


def test_the_interquartile_mean_is_rliables() -> None:
    from rliable import metrics

    for runs in (1, 2, 4, 5, 9):
        column = np.random.default_rng(runs).normal(size=(runs, 1))
        assert trimmed_means(column)[0] == pytest.approx(metrics.aggregate_iqm(column))


def test_a_bootstrap_never_mixes_tasks() -> None:
    # [runs, tasks]: three runs near 1 on one task and near 1,000 on the other. Drawn over the
    # wrong axis, resamples would mix the two and the intervals reach from 1 to 1,000.
    scores = np.array([[1.0, 1000.0], [2.0, 1001.0], [3.0, 1002.0]])
    first, second = spreads_over_seeds(scores)
    assert first.mean == 2.0
    assert first.standard_error == pytest.approx(1 / np.sqrt(3))
    assert first.interval is not None
    assert second.interval is not None
    assert 1.0 <= first.interval[0] < 2.0 < first.interval[1] <= 3.0
    assert 1000.0 <= second.interval[0] < 1001.0 < second.interval[1] <= 1002.0
    # 27 resamples of three: the mean 1 (and 3) has probability 1/27, more than the 2.5 % cut.
    assert first.interval == (1.0, 3.0)


def test_one_seed_has_no_interval() -> None:
    (only,) = spreads_over_seeds(np.array([[5.0]]))
    assert only == (5.0, None, 5.0, None)


def test_probability_of_improvement_is_of_the_same_task() -> None:
    # On the first task both runs of ours are better, on the second both are worse: one half.
    # With the axes swapped it would be one quarter.
    ours = np.array([[3.0, 0.0], [4.0, 0.0]])
    theirs = np.array([[1.0, 5.0], [2.0, 5.0]])
    assert probability_of_improvement(ours, theirs).tolist() == [0.5]
    assert probability_of_improvement(ours.T, theirs.T).tolist() == [0.25]
    assert probability_of_improvement(ours, ours).tolist() == [0.5]


def test_probability_of_improvement_is_rliables() -> None:
    from rliable import metrics

    draw = np.random.default_rng(0)
    ours, theirs = draw.integers(0, 5, (5, 3)), draw.integers(0, 5, (4, 3))
    expected = metrics.probability_of_improvement(ours, theirs)
    assert probability_of_improvement(ours, theirs)[0] == pytest.approx(expected)


def test_intervals_repeat_and_leave_numpys_state_alone() -> None:
    scores = np.random.default_rng(0).normal(size=(5, 2))
    np.random.seed(7)
    expected = np.random.random()
    np.random.seed(7)
    first = bootstrap_interval([scores], trimmed_means)
    assert np.random.random() == expected
    np.testing.assert_array_equal(bootstrap_interval([scores], trimmed_means), first)


def test_results_come_from_raw_episodes(tmp_path: Path) -> None:
    costs = [0.0, 10.0, 20.0, 30.0, 40.0]
    make_run(tmp_path / "a", costs=costs, returns=[1.0] * 5, tail_fraction=0.4)
    make_run(tmp_path / "b", costs=[0.0] * 5, returns=[3.0] * 5, tail_fraction=0.4, seed=1)
    groups, notes = group_runs(find_runs([tmp_path]))
    (one,) = group_results(groups)
    assert notes == []
    assert one.episode_return.mean == 2.0
    assert one.episode_return.standard_error == 1.0
    # The worst 40 % of the first run's five episodes are 30 and 40; two of five are over 25.
    assert [run.summary["cost_cvar"] for run in one.finished] == [35.0, 0.0]
    assert one.cvar.mean == 17.5
    assert one.violation_rate.mean == pytest.approx(0.2)
    assert one.cost.mean == 10.0
    assert one.safe
    assert one.steps_per_second == 50.0


def test_an_unfinished_run_does_not_count(tmp_path: Path) -> None:
    make_run(tmp_path / "a", returns=[1.0, 1.0])
    make_run(tmp_path / "b", returns=[9.0, 9.0], seed=1, finished=False)
    (one,) = group_results(group_runs(find_runs([tmp_path]))[0])
    assert (len(one.group.runs), len(one.finished), one.episode_return.mean) == (2, 1, 1.0)


def test_improvement_pairs_the_tasks_that_both_have(tmp_path: Path) -> None:
    for env, ours, theirs in ((HOPPER, 5.0, 1.0), (ANT, 1.0, 5.0)):
        for seed in (0, 1):
            make_run(tmp_path / f"o{env}{seed}", "sl-sac", env, seed, returns=[ours + seed] * 2,
                     costs=[0.0, 0.0])  # fmt: skip
            make_run(tmp_path / f"t{env}{seed}", "sac-lag", env, seed, returns=[theirs + seed] * 2)
    make_run(tmp_path / "one", "wcsac", HOPPER, 0)  # one seed: no comparison
    found = group_results(group_runs(find_runs([tmp_path]))[0])
    (pair,) = improvements(found, "sl-sac")
    assert pair.theirs == "sac-lag"
    assert set(pair.tasks) == {HOPPER, ANT}
    assert pair.higher_return == 0.5
    assert pair.higher_return_interval == (0.5, 0.5)
    assert pair.lower_cost == 1.0


def test_an_interval_does_not_depend_on_what_else_is_in_the_table() -> None:
    scores = np.random.default_rng(0).normal(size=(10, 4))
    alone = [spreads_over_seeds(scores[:, [i]])[0].interval for i in range(4)]
    assert [spread.interval for spread in spreads_over_seeds(scores)] == alone


def test_an_interval_is_as_wide_as_rliables() -> None:
    scores = np.random.default_rng(0).normal(size=(10, 1))
    (ours,) = spreads_over_seeds(scores)
    low, high = bootstrap_interval([scores], trimmed_means)
    # Ends of 2,000 resamples have a standard error of about .02 here.
    assert ours.interval == pytest.approx((low[0], high[0]), abs=0.1)
