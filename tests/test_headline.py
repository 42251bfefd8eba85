"""The table that docs/results.md begins with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from slsac.report.read import Run, read_run
from slsac.report.table import summarise_runs
from tests.support.recorded import make_run
from tools.figures import RESULTS
from tools.headline import Held, best_baseline, best_safe, held


def evaluated(folder: Path, figures: Sequence[tuple[float, float]]) -> Run:
    """A run with an evaluation of this return and cost every 2,000 steps, and a final one."""
    run = make_run(folder)
    path = run / "evaluations.jsonl"
    first = json.loads(path.read_text().splitlines()[0])
    lines = [
        {**first, "step": 2_000 * number, "final": number > len(figures), "return_mean": value,
         "cost_mean": cost}
        for number, (value, cost) in enumerate([*figures, figures[-1]], 1)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return read_run(run)


def test_a_return_is_held_after_three_safe_evaluations_in_a_row(tmp_path: Path) -> None:
    figures = [(100.0, 0.0), (100.0, 26.0), (99.0, 0.0), (100.0, 25.0), (120.0, 0.0)]
    assert held(evaluated(tmp_path / "a", figures), 100.0) is None
    # The third of the last three is at step 10,000: five epochs of 40 seconds.
    assert held(evaluated(tmp_path / "b", figures), 99.0) == Held(10_000, 200 / 3600)


def test_the_best_published_figure_is_within_the_limit() -> None:
    best = best_safe("SafetySwimmerVelocity-v1", 25.0)
    # TD3-PID has 43.1 at 25.5 in the paper, and 29 at 22.5 in OmniSafe's table.
    assert best is not None
    assert (best.episode_return, best.cost) == (29.0, 22.5)


def test_baselines_after_equal_steps_count_and_ours_do_not() -> None:
    results = summarise_runs([RESULTS]).results
    found = best_baseline("SafetySwimmerVelocity-v1", results)
    assert found is not None
    assert found.group.algo == "wcsac"
    assert best_baseline("SafetyAntVelocity-v1", results) is None
