"""The time that a sweep will take."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slsac.cli import main
from slsac.sweep import estimate
from slsac.sweep import spec as grid
from slsac.training import launch
from tests.support.sweeps import SMALL_SPEC, TRIALS, write_spec


def test_a_dry_run_estimates_from_runs_of_the_same_kind_and_says_where_there_are_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    timed = grid.expand(grid.parse(SMALL_SPEC | {"seeds": [7]}), tmp_path / "out")[0]
    launch.start(timed.config, timed.run).close()
    config = json.loads((timed.run / "config.json").read_text())
    config["provenance"]["cores"] = 1
    (timed.run / "config.json").write_text(json.dumps(config))
    # The first epoch has random steps and compilation in it and does not count.
    rates = [(200, 900.0), (400, 5.0), (600, 10.0), (800, 50.0)]
    (timed.run / "timing.jsonl").write_text(
        "".join(
            json.dumps({"step": step, "seconds": 1.0, "steps_per_second": rate}) + "\n"
            for step, rate in rates
        )
    )
    spec = write_spec(tmp_path, algos=["sac-lag", "td3-lag"], seeds=[0, 1, 2])
    command = ["sweep", str(spec), "--out", str(tmp_path / "out"), "--workers", "2", "--dry-run"]
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    # 1,200 steps at the median of 10 steps/s are 120 s.
    assert f"{TRIALS[0]}  new, 1,200 steps; 2m00s at 10 steps/s (median of 1, like" in lines[0]
    assert "td3-lag/ProbeChoice-v0/seed0  new, 1,200 steps; no run like it has been" in lines[1]
    # Three trials of 120 s on two workers: the third waits for the first.
    assert lines[-1].startswith("6 trials, 6 to run, 1 core(s) each, 2 at once: 4m00s of training")
    assert "for the 3 whose speed is known" in lines[-1]
    # A run that shared its process with another seed says nothing of one alone.
    config["provenance"]["together"] = 2
    (timed.run / "config.json").write_text(json.dumps(config))
    assert estimate.timed_runs([tmp_path / "out"]) == []
    assert estimate.makespan([3.0, 1.0, 1.0, 1.0], 2) == 3.0
