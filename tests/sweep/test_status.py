"""How far a trial has come, and whether its run is of the same experiment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from slsac.cli import main
from slsac.config.overrides import with_overrides
from slsac.errors import InvalidInput
from slsac.runs import config_file
from slsac.sweep import spec as grid
from slsac.sweep import status
from slsac.sweep.process import last_line
from slsac.training import launch
from tests.support.recorded import make_run
from tests.support.sweeps import SMALL_SPEC, TRIALS, write_spec


def test_a_run_of_another_experiment_is_an_error_and_a_shorter_one_continues(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (trial,) = grid.expand(grid.parse(SMALL_SPEC | {"seeds": [0]}), tmp_path)
    launch.start(trial.config, trial.run).close()
    cores = config_file.read(trial.run)[2]["cores"]
    spec = write_spec(tmp_path, seeds=[0], cores_per_trial=cores, variants={})
    command = ["sweep", str(spec), "--out", str(tmp_path), "--dry-run"]
    assert main(command) == 0
    assert "1 trials, 1 to run" in capsys.readouterr().out

    values = yaml.safe_load(spec.read_text())
    values["overrides"]["common"]["polyak"] = 0.5
    spec.write_text(yaml.safe_dump(values))
    for arguments in (command, command[:-1]):
        assert main(arguments) == 2
        assert f"{TRIALS[0]}: polyak is 0.5 in the spec and 0.005 in" in capsys.readouterr().err

    def wanted(steps: int, cores: int) -> bool:
        asked = grid.Trial(trial.name, trial.run, with_overrides(trial.config, {"steps": steps}))
        return status.is_done(asked, cores, inexact=False)

    assert not wanted(2_000, cores)
    with pytest.raises(InvalidInput, match="steps is 100 in the spec and 1200 in the run"):
        wanted(100, cores)
    with pytest.raises(InvalidInput, match=f"cores_per_trial is {cores + 1} in the spec and"):
        wanted(1_200, cores + 1)


def test_status_reads_the_ends_of_logs_and_the_final_evaluation(tmp_path: Path) -> None:
    trial = grid.expand(grid.parse(SMALL_SPEC), tmp_path)[0]
    assert status.read_figures(trial) == status.Figures(0, None, None, None, None)
    trial.run.mkdir(parents=True)
    line = {"step": 400, "return": 3.0, "cost": 2.0, "multiplier": 0.5}
    (trial.run / "progress.jsonl").write_text(json.dumps(line) + '\n{"step": 600, "ret')
    (trial.run / "timing.jsonl").write_text(
        '{"step": 400, "seconds": 4.0, "steps_per_second": 100.0}\n'
    )
    now = status.read_figures(trial)
    assert now == status.Figures(400, 3.0, 2.0, 0.5, 100.0)
    assert now.seconds_left(1_500) == 11.0
    final = {"step": 1_500, "final": True, "return_mean": 5.0, "cost_mean": 1.0}
    final |= {"returns": [5.0], "costs": [1.0], "lengths": [10]}
    (trial.run / "evaluations.jsonl").write_text(json.dumps(final) + "\n")
    assert status.read_figures(trial) == status.Figures(1_500, 5.0, 1.0, 0.5, 100.0)
    (tmp_path / "long").write_text("x" * 100_000 + "\nlast\n")
    assert last_line(tmp_path / "long") == "last"


def test_worker_processes_may_differ_from_the_run_that_is_there(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "cpo", worker_processes=0)
    config = with_overrides(config_file.read(run)[0], {"worker_processes": 2})
    assert status.is_done(grid.Trial("run", run, config), 2, inexact=False)
