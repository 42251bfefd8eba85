"""What a person sees of a sweep."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

from rich.console import Console

from slsac.config.overrides import with_overrides
from slsac.sweep import spec as grid
from slsac.sweep.schedule import ScheduledTrial, State
from slsac.sweep.view import View, cells
from tests.support.sweeps import SMALL_SPEC


def test_the_live_view_shows_what_matters_first_where_the_screen_is_small(tmp_path: Path) -> None:
    trials = grid.expand(grid.parse(SMALL_SPEC | {"seeds": [0, 1, 2, 3]}), tmp_path)
    states: tuple[State, ...] = ("done", "waiting", "failed", "running")
    schedule = {
        trial.name: ScheduledTrial(trial, state)
        for trial, state in zip(trials, states, strict=True)
    }
    schedule[trials[3].name].losses = 2
    trials[3].run.mkdir(parents=True)
    line = {"step": 400, "return": 3.0, "cost": 2.0, "multiplier": 0.5}
    (trials[3].run / "progress.jsonl").write_text(json.dumps(line) + "\n")
    (trials[3].run / "timing.jsonl").write_text('{"steps_per_second": 10.0}\n')
    screen = io.StringIO()
    view = View(schedule, Console(file=screen, force_terminal=True, width=120, height=6))
    view.refresh()
    view.close()
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    assert "4 trials: 1 running, 1 failed, 1 waiting, 1 done" in shown
    # 800 steps are left, at 10 steps/s.
    assert re.search(r"seed3 +running \(lost 2x\) +400/1,200 +3\.0 +2\.0 +0\.500 +10 +1m20s", shown)
    assert re.search(r"seed2 +failed", shown)
    assert "seed0" not in shown
    assert "seed1" not in shown


def test_the_live_view_tells_costs_below_one_apart(tmp_path: Path) -> None:
    (trial, _) = grid.expand(grid.parse(SMALL_SPEC), tmp_path)
    trial.run.mkdir(parents=True)
    (trial.run / "progress.jsonl").write_text('{"step": 400, "return": 3.0, "cost": 0.04}\n')
    small = grid.Trial(trial.name, trial.run, with_overrides(trial.config, {"cost_limit": 0.1}))
    for each in (trial, small):
        assert cells(ScheduledTrial(each, "running"))[2] == "0.04"
