"""Training curves: the arithmetic by hand, and pictures that are really written."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from slsac.cli import main
from slsac.report.curves import (
    colours,
    curves_figure,
    evaluation_band,
    logged,
    logged_band,
    looks,
    over_seeds,
    smoothed,
    training_band,
    window_steps,
)
from slsac.report.read import find_runs, group_runs
from slsac.report.table import marks
from tests.support.recorded import make_run


def test_a_window_holds_the_episodes_that_ended_in_it(tmp_path: Path) -> None:
    (run,) = find_runs([make_run(tmp_path / "run")])
    assert window_steps(run) == 4_000  # four episodes; a 50th of the run would be 200 steps
    grid = np.array([500, 1_000, 4_000, 10_000])
    # Returns are 0, 10, ..., 90 at 1,000, 2,000, ...: nothing yet, 0, then means of four.
    np.testing.assert_array_equal(smoothed(run, "return", grid), [np.nan, 0.0, 15.0, 75.0])


def test_a_long_run_is_smoothed_over_a_50th(tmp_path: Path) -> None:
    (run,) = find_runs([make_run(tmp_path / "run", steps=1_000_000, finished=False)])
    assert window_steps(run) == 20_000
    # It has come to step 10,000 and has no curve beyond the episode after that.
    assert np.isnan(smoothed(run, "return", np.array([12_000]))).all()


def test_mean_and_deviation_are_over_the_runs_that_have_a_value() -> None:
    band = over_seeds(np.array([1, 2, 3]), np.array([[1.0, 4.0, np.nan], [3.0, np.nan, np.nan]]))
    np.testing.assert_array_equal(band.mean, [2.0, 4.0, np.nan])
    np.testing.assert_array_equal(band.deviation, [np.sqrt(2.0), np.nan, np.nan])


def test_bands_over_two_seeds(tmp_path: Path) -> None:
    make_run(tmp_path / "a", returns=[10.0, 20.0])
    make_run(tmp_path / "b", returns=[30.0, 40.0], seed=1)
    ((group,), _) = group_runs(find_runs([tmp_path]))
    band = training_band(group, "cost")
    # The last four costs are 30, 20, 10, 0 in one run and one more in the other.
    assert (band.steps[-1], band.mean[-1]) == (10_000, 15.5)
    assert band.deviation[-1] == pytest.approx(np.sqrt(0.5))
    points = evaluation_band(group, "return_mean")
    assert points.steps.tolist() == [5_000, 10_000]
    assert points.mean.tolist() == [25.0, 25.0]
    assert logged_band(group, "multiplier").mean.tolist() == [0.0, 0.5, 1.0, 1.5, 2.0]


def test_a_figure_is_found_under_the_name_that_the_oldest_runs_gave_it() -> None:
    assert logged({"window_signal": 3}, "window_cvar") == 3.0
    assert logged({"window_signal": 3, "window_cvar": 4}, "window_cvar") == 4.0
    assert logged({"window_signal": 3, "window_cvar": None}, "window_cvar") is None
    assert logged({"window_signal": 3}, "multiplier") is None


def test_every_algorithm_has_a_colour_of_its_own(tmp_path: Path) -> None:
    for algo in ("sl-sac", "sac-lag", "sl-sac/tail-1", "sl-sac/pairs-1"):
        make_run(tmp_path / algo.replace("/", "-"), algo)
    chosen = colours(group_runs(find_runs([tmp_path]))[0])
    assert list(chosen) == ["sac-lag", "sl-sac", "sl-sac/pairs-1", "sl-sac/tail-1"]
    assert len(set(chosen.values())) == 4


def test_settings_of_one_algorithm_share_a_colour_and_differ_in_their_line(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    make_run(tmp_path / "b", cost_limit=5.0)
    make_run(tmp_path / "c", "sac-lag")
    groups = group_runs(find_runs([tmp_path]))[0]
    found = looks(groups, marks(groups))
    assert list(found) == ["sac-lag [a]", "sl-sac [a]", "sl-sac [b]"]
    plain, changed = found["sl-sac [a]"], found["sl-sac [b]"]
    assert (plain.colour, plain.marker) == (changed.colour, changed.marker)
    assert plain.line != changed.line


def test_a_task_has_one_row_whatever_the_settings(tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "a")
    make_run(tmp_path / "runs" / "b", cost_limit=5.0)
    assert main(["plot", str(tmp_path / "runs"), "--out", str(tmp_path / "x.svg")]) == 0
    text = (tmp_path / "x.svg").read_text()
    assert text.count("SafetyHopperVelocity-v1: return") == 1
    assert "limit 25" in text
    assert "limit 5" in text
    assert ">sl-sac [a]<" in text
    assert ">sl-sac [b]<" in text


def test_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(tmp_path / "runs" / "a")
    make_run(tmp_path / "runs" / "b", "sac-lag", "SafetyPointGoal1-v0")
    starts = {".svg": b"<?xml", ".png": b"\x89PNG", ".pdf": b"%PDF"}
    for suffix, start in starts.items():
        pictures = []
        for name in ("x", "y"):
            out = tmp_path / f"{name}{suffix}"
            assert main(["plot", str(tmp_path / "runs"), "--out", str(out)]) == 0
            pictures.append(out.read_bytes())
        assert pictures[0].startswith(start)
        assert pictures[0] == pictures[1]
    capsys.readouterr()
    assert main(["plot", str(tmp_path / "runs"), "--out", "x.gif"]) == 2
    assert "must end in .png, .svg or .pdf" in capsys.readouterr().err


def boxes(texts: Iterable[Text]) -> list[Bbox]:
    """Where texts with something in them are drawn, in pixels."""
    return [text.get_window_extent() for text in texts if text.get_text()]


@pytest.mark.parametrize("steps", [5_000, 1_000_000, 10_000_000])
def test_the_labels_of_an_axis_do_not_collide(tmp_path: Path, steps: int) -> None:
    make_run(tmp_path / "a", steps=steps)
    figure = curves_figure(group_runs(find_runs([tmp_path]))[0], ["return", "cost"])
    FigureCanvasAgg(figure).draw()
    for axis in figure.axes:
        labels = boxes(axis.get_xticklabels())
        assert len(labels) >= 4
        gaps = [right.x0 - left.x1 for left, right in itertools.pairwise(labels)]
        assert min(gaps) > 10.0


def test_the_labels_of_limits_stand_beside_the_panel_and_apart(tmp_path: Path) -> None:
    # 25 and its half are two pixels apart on an axis up to 2,000.
    for name, limit in (("a", 25.0), ("b", 12.5)):
        run = make_run(tmp_path / name, cost_limit=limit)
        log = run / "episodes.jsonl"
        log.write_text(log.read_text().replace('"cost": 90.0', '"cost": 2000.0'))
    figure = curves_figure(group_runs(find_runs([tmp_path]))[0], ["cost"])
    FigureCanvasAgg(figure).draw()
    (panel,) = figure.axes
    low, high = boxes(text for text in panel.texts if "limit" in text.get_text())
    assert min(low.x0, high.x0) > panel.get_window_extent().x1
    assert high.y0 > low.y1
    assert high.x1 < figure.bbox.x1


def test_any_logged_name_can_be_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(tmp_path / "runs" / "a")
    out = tmp_path / "x.svg"
    names = ["cost", "multiplier", "window_cvar"]
    assert main(["plot", str(tmp_path / "runs"), "--out", str(out), "--of", *names]) == 0
    text = out.read_text()
    for name in names:
        assert f"SafetyHopperVelocity-v1: {name}" in text
    assert "SafetyHopperVelocity-v1: return" not in text
    assert text.count("limit 25") == 2  # the cost's and the CVaR's; a multiplier has no such limit
    capsys.readouterr()
    assert main(["plot", str(tmp_path / "runs"), "--out", str(out), "--of", "lambda"]) == 2
    error = capsys.readouterr().err
    assert "--of 'lambda' is not logged; these runs have" in error
    assert "multiplier" in error


def test_one_epoch_is_a_point_on_the_axis_of_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "runs" / "a")
    log = run / "progress.jsonl"
    log.write_text(log.read_text().splitlines()[0] + "\n")
    figure = curves_figure(group_runs(find_runs([tmp_path]))[0], ["multiplier", "cost"])
    for axis in figure.axes:
        assert axis.get_xlim() == (0.0, 10_300.0)
    (line,) = figure.axes[0].get_lines()
    assert line.get_marker() == "o"
    log.write_text("")
    arguments = [str(tmp_path / "runs"), "--out", str(tmp_path / "x.svg"), "--of", "multiplier"]
    assert main(["plot", *arguments]) == 2
    assert "the rest is logged when an epoch ends, and none has yet" in capsys.readouterr().err
