"""The table of SL-SAC 2 beside the baselines."""

from __future__ import annotations

from pathlib import Path

from slsac.report.read import find_runs
from tests.support.recorded import make_run
from tools.beside import rows


def test_runs_of_the_same_task_and_steps_stand_below_each_other(tmp_path: Path) -> None:
    make_run(tmp_path / "sl-sac-2" / "hopper" / "seed0", "sl-sac-2")
    make_run(tmp_path / "sl-sac-2" / "hopper" / "seed1", "sl-sac-2", seed=1)
    make_run(tmp_path / "sac-lag" / "hopper" / "seed0", "sac-lag")
    make_run(tmp_path / "equal-steps" / "wcsac" / "hopper" / "seed0", "wcsac")
    make_run(tmp_path / "equal-steps" / "sac-lag" / "hopper" / "seed0", "sac-lag")
    table = rows(find_runs([tmp_path]), tmp_path)
    # Training costs are 90, 80, ..., 0: seven of ten over 25, and 45 on average. The final
    # evaluation has costs of 0 and 40, so its worse half is 40. Five epochs last 40 s each.
    figures = ("200.0", "20.0", "40.0", "50 %", "7 of 10", "45.0", "0.06")
    assert table == [
        ("Hopper, 10,000", algo, *figures) for algo in ("sl-sac-2", "sac-lag", "wcsac")
    ]


def test_a_run_of_other_length_is_no_comparison(tmp_path: Path) -> None:
    make_run(tmp_path / "sl-sac-2" / "hopper" / "seed0", "sl-sac-2", steps=20_000)
    make_run(tmp_path / "equal-steps" / "wcsac" / "hopper" / "seed0", "wcsac")
    assert [line[1] for line in rows(find_runs([tmp_path]), tmp_path)] == ["wcsac"]
