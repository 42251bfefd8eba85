"""Sweeps: trials that were killed, on either backend, end with the bytes of undisturbed ones."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from rich.console import Console

from slsac.cli import main
from slsac.config.overrides import with_overrides
from slsac.errors import InvalidInput
from slsac.runs import checkpoint, config_file
from slsac.runs.provenance import source_digest
from slsac.sweep import child, estimate, status
from slsac.sweep import spec as grid
from slsac.sweep.process import Job, Outcome, last_line
from slsac.sweep.products import write_products
from slsac.sweep.schedule import ScheduledTrial, State, make_job, run_trials
from slsac.sweep.view import View, cells
from slsac.training import launch
from tests.support.recorded import make_run
from tests.support.runs import everything, finished_steps
from tests.support.sweeps import SMALL_SPEC, write_spec
from tests.support.waiting import wait_for

TRIALS = ("sac-lag/ProbeChoice-v0/seed0", "sac-lag/ProbeChoice-v0/seed1")
DISTURBED_STEPS = 6_000
"""Of trials that a test interrupts: some seconds, so that none has ended before the blow falls."""


def slsac(*arguments: str) -> subprocess.Popen[str]:
    # A shell that runs the tests in its background has them and their children ignore Ctrl-C; a
    # handler of the parent's is none of the child's, which begins with the default again.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "slsac", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
    finally:
        signal.signal(signal.SIGINT, before)


def processes() -> dict[int, tuple[int, list[str]]]:
    """Parent and command line of every process, by its number."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_text().split("\0")
            state, parent, *_ = (path / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if state == "Z":  # has ended, and nobody has asked how
            continue
        found[int(path.name)] = (int(parent), command)
    return found


def trainer_of(run: Path) -> int | None:
    """The number of the process that trains ``run``."""
    for pid, (_, command) in processes().items():
        if "sweep-trial" in command and str(run) in command:
            return pid
    return None


@pytest.fixture(scope="module")
def sequential(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    """Every byte of both trials, trained one after the other by `slsac train` on one core."""
    out = tmp_path_factory.mktemp("sequential")
    trials = grid.expand(grid.parse(SMALL_SPEC | {"steps": DISTURBED_STEPS}), out)
    commands = [["train", *grid.train_arguments(trial)] for trial in trials]
    code = (
        "import json, os, sys; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))});"
        "from slsac.cli import main; sys.exit(max(map(main, json.loads(sys.argv[1]))))"
    )
    subprocess.run(
        [sys.executable, "-c", code, json.dumps(commands)], check=True, capture_output=True
    )
    return {trial.name: everything(trial.run) for trial in trials}


def test_interrupted_and_killed_local_trials_end_as_undisturbed_ones(
    tmp_path: Path, sequential: dict[str, dict[str, bytes]]
) -> None:
    out = tmp_path / "out"
    spec = write_spec(tmp_path, steps=DISTURBED_STEPS)
    command = ["sweep", str(spec), "--out", str(out), "--workers", "2"]
    runs = [out / name for name in TRIALS]

    sweep = slsac(*command)
    wait_for(lambda: finished_steps(runs[0]) >= 200, sweep)
    sweep.send_signal(signal.SIGINT)
    shown = sweep.communicate(timeout=240)[0]
    assert sweep.returncode == 130, shown
    assert "the same command continues" in shown
    assert not any(trainer_of(run) for run in runs)

    sweep = slsac(*command)
    wait_for(lambda: finished_steps(runs[0]) >= 450, sweep)
    os.kill(wait_for(lambda: trainer_of(runs[0]), sweep), signal.SIGKILL)
    shown = sweep.communicate(timeout=240)[0]
    assert sweep.returncode == 0, shown
    assert f"lost    {TRIALS[0]}: killed by SIGKILL" in shown
    assert "2 trials: 2 done" in shown
    assert {name: everything(out / name) for name in TRIALS} == sequential
    assert re.search(r"resuming at step [1-9]", (out / f"{TRIALS[0]}.log").read_text())

    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    sweep = slsac(*command)
    shown = sweep.communicate(timeout=240)[0]
    assert (sweep.returncode, shown) == (0, f"2 trials: 2 done, in {out}\n")
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before


def test_trials_end_with_a_sweep_that_is_killed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    spec = write_spec(tmp_path, steps=1_000_000, seeds=[0])
    sweep = slsac("sweep", str(spec), "--out", str(out))
    run = out / TRIALS[0]
    pid = wait_for(lambda: trainer_of(run), sweep)
    sweep.kill()
    sweep.communicate()
    wait_for(lambda: pid not in processes())


def test_a_failed_trial_is_reported_and_does_not_stop_the_others(tmp_path: Path) -> None:
    spec = write_spec(
        tmp_path,
        seeds=[0],
        steps=150,
        variants={"broken": {"cost_critic.cost_floor": 100}, "whole": {}},
    )
    out = tmp_path / "out"
    sweep = slsac("sweep", str(spec), "--out", str(out), "--workers", "1")
    shown = sweep.communicate(timeout=240)[0]
    assert sweep.returncode == 1, shown
    assert f"done    whole/{TRIALS[0]}" in shown
    *_, failed, summary = shown.splitlines()
    assert failed.startswith(f"failed  broken/{TRIALS[0]}: slsac: training stopped: the environ")
    assert "below cost_critic.cost_floor 100" in failed
    assert f"(log: {out}/broken/{TRIALS[0]}.log)" in failed
    assert summary.startswith("2 trials: 1 failed, 1 done")


def test_a_run_of_another_experiment_is_an_error_and_a_longer_one_goes_on(
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
    assert f"{TRIALS[0]}  new, 1,200 steps; 2m00s at 10 steps/s (median of 1, as" in lines[0]
    assert "td3-lag/ProbeChoice-v0/seed0  new, 1,200 steps; no run like it has been" in lines[1]
    # Three trials of 120 s on two workers: the third waits for the first.
    assert lines[-1].startswith("6 trials, 6 to run, 1 core(s) each, 2 at once: 4m00s of training")
    assert "for the 3 whose speed is known" in lines[-1]
    # A run that shared its process with another seed says nothing of one alone.
    config["provenance"]["together"] = 2
    (timed.run / "config.json").write_text(json.dumps(config))
    assert estimate.timed_runs([tmp_path / "out"]) == []
    assert estimate.makespan([3.0, 1.0, 1.0, 1.0], 2) == 3.0


def test_status_reads_the_ends_of_logs_and_the_final_evaluation(tmp_path: Path) -> None:
    trial = grid.expand(grid.parse(SMALL_SPEC), tmp_path)[0]
    assert status.read_figures(trial) == status.Figures(0, None, None, None, None)
    trial.run.mkdir(parents=True)
    line = {"step": 400, "return": 3.0, "cost": 2.0, "multiplier": 0.5}
    (trial.run / "progress.jsonl").write_text(json.dumps(line) + '\n{"step": 600, "ret')
    (trial.run / "timing.jsonl").write_text('{"step": 400, "steps_per_second": 100.0}\n')
    now = status.read_figures(trial)
    assert now == status.Figures(400, 3.0, 2.0, 0.5, 100.0)
    assert now.seconds_left(1_500) == 11.0
    final = {"step": 1_500, "final": True, "return_mean": 5.0, "cost_mean": 1.0}
    (trial.run / "evaluations.jsonl").write_text(json.dumps(final) + "\n")
    assert status.read_figures(trial) == status.Figures(1_500, 5.0, 1.0, 0.5, 100.0)
    (tmp_path / "long").write_text("x" * 100_000 + "\nlast\n")
    assert last_line(tmp_path / "long") == "last"


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
    assert cells(ScheduledTrial(trial, "running"))[2] == "0.0"
    assert cells(ScheduledTrial(small, "running"))[2] == "0.04"


def test_worker_processes_may_differ_from_the_run_that_is_there(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "cpo", worker_processes=0)
    config = with_overrides(config_file.read(run)[0], {"worker_processes": 2})
    assert status.is_done(grid.Trial("run", run, config), 2, inexact=False)


def test_products_are_written_once_the_trials_are_done(tmp_path: Path) -> None:
    spec = grid.parse(SMALL_SPEC | {"products": ["table", "curves", "report"]})
    trials = grid.expand(spec, tmp_path)
    for trial in trials:
        make_run(trial.run, "sac-lag", seed=trial.config.seed)
    told: list[str] = []
    write_products(spec.products, [trial.run for trial in trials], tmp_path, told.append)
    names = ["table.md", "table.tex", "table.csv", "curves.png", "curves.svg", "report.html"]
    assert told == [f"wrote {tmp_path / name}" for name in names]
    assert "| 200.0 ± 0.0 |" in (tmp_path / "table.md").read_text()
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "2 runs of 1 algorithm on 1 task" in (tmp_path / "report.html").read_text()
    # Nothing has changed since, so nothing is made again.
    write_products(spec.products, [trial.run for trial in trials], tmp_path, told.append)
    assert len(told) == 6


@pytest.mark.parametrize(("product", "package"), [("curves", "matplotlib"), ("report", "rliable")])
def test_what_products_need_is_asked_for_before_training(
    tmp_path: Path,
    product: str,
    package: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    spec = write_spec(tmp_path, products=[product])
    assert main(["sweep", str(spec), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert f"product {product!r} needs {package}; run `make install EXTRAS=report`" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_trials_on_one_machine_take_different_cores(tmp_path: Path) -> None:
    code = (
        "import sys, os; from pathlib import Path;"
        "from slsac.sweep.child import claim_cores;"
        "print(claim_cores(1, Path(sys.argv[1])), sorted(os.sched_getaffinity(0)), flush=True);"
        "sys.stdin.read()"
    )
    allowed = len(os.sched_getaffinity(0))
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(allowed + 1)
    ]  # fmt: skip
    claims = []
    for process in started:
        assert process.stdout is not None
        claims.append(process.stdout.readline().strip())
    for process in started:
        process.communicate("")
    cores = sorted(os.sched_getaffinity(0))
    for claim in claims:
        assert claim in [f"[{core}] [{core}]" for core in cores]
    # One more than there are cores: every core is taken, and one of them twice.
    assert len(set(claims)) == allowed
    with pytest.raises(InvalidInput, match=f"cores_per_trial is {allowed + 1}; this machine"):
        child.claim_cores(allowed + 1, tmp_path)


CLUSTER = """
import json, sys
from ray.cluster_utils import Cluster
cluster = Cluster(
    initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
)
second = cluster.add_node(num_cpus=1)
(raylet,) = second.all_processes["raylet"]
print(json.dumps([cluster.address, raylet.process.pid]), flush=True)
sys.stdin.readline()
cluster.remove_node(second, allow_graceful=False)
sys.stdin.read()
cluster.shutdown()
"""


class TwoMachines(NamedTuple):
    address: str
    raylet: int
    """The process on the second machine that all of its workers come from."""
    lose_second: Callable[[], None]


@pytest.fixture
def machines() -> Iterator[TwoMachines]:
    """A cluster of two machines with a core each, simulated by Ray's own processes."""
    pytest.importorskip("ray.cluster_utils")
    # In a process of its own: Ray forks, which a process in which JAX is at work must not.
    keeper = subprocess.Popen(
        [sys.executable, "-c", CLUSTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0"},
    )  # fmt: skip
    assert keeper.stdin is not None
    assert keeper.stdout is not None

    def lose_second() -> None:
        keeper.stdin.write("\n")
        keeper.stdin.flush()

    address, raylet = json.loads(keeper.stdout.readline())
    yield TwoMachines(address, raylet, lose_second)
    keeper.communicate("\n", timeout=120)


def ancestors(pid: int) -> list[int]:
    known, found = processes(), [pid]
    while found[-1] in known:
        found.append(known[found[-1]][0])
    return found


def test_trials_survive_the_loss_of_a_ray_worker_and_of_a_machine(
    machines: TwoMachines, tmp_path: Path, sequential: dict[str, dict[str, bytes]]
) -> None:
    out = tmp_path / "out"
    sweep = slsac(
        "sweep", str(write_spec(tmp_path, steps=DISTURBED_STEPS)), "--out", str(out),
        "--backend", "ray", "--address", machines.address,
    )  # fmt: skip
    runs = [out / name for name in TRIALS]

    def on_second(run: Path) -> bool:
        trainer = trainer_of(run)
        return trainer is not None and machines.raylet in ancestors(trainer)

    first, second = wait_for(
        lambda: next(((a, b) for a, b in (runs, runs[::-1]) if on_second(b)), None), sweep
    )

    def kill_ray_worker() -> None:
        trainer = trainer_of(first)
        assert trainer is not None
        parent = processes()[trainer][0]
        assert "ray::" in processes()[parent][1][0]
        os.kill(parent, signal.SIGKILL)

    blows = {first: kill_ray_worker, second: machines.lose_second}
    while blows:
        run = wait_for(lambda: next((r for r in blows if finished_steps(r) >= 100), None), sweep)
        blows.pop(run)()

    shown = sweep.communicate(timeout=400)[0]
    assert sweep.returncode == 0, shown
    for run in runs:
        assert f"lost    {run.relative_to(out)}: " in shown
    assert "2 trials: 2 done" in shown
    assert {name: everything(out / name) for name in TRIALS} == sequential


def test_an_embedded_cluster_gives_the_same_bytes(
    tmp_path: Path, sequential: dict[str, dict[str, bytes]]
) -> None:
    pytest.importorskip("ray")
    out = tmp_path / "out"
    spec = write_spec(tmp_path, seeds=[0], steps=DISTURBED_STEPS)
    sweep = slsac("sweep", str(spec), "--out", str(out), "--backend", "ray")
    shown = sweep.communicate(timeout=240)[0]
    assert sweep.returncode == 0, shown
    assert everything(out / TRIALS[0]) == sequential[TRIALS[0]]


def test_a_cluster_that_is_not_there_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray")
    command = ["sweep", str(write_spec(tmp_path)), "--out", str(tmp_path / "out")]
    assert main([*command, "--backend", "ray", "--address", "nonsense"]) == 2
    shown = capsys.readouterr().err
    assert "no Ray cluster answers at 'nonsense'" in shown
    assert shown.count("\n") == 1


class Losing:
    """A backend whose every trial is killed; one of them gets on in its ``gets_on``-th life."""

    slots = 1.0

    def __init__(self, run: Path, gets_on: int) -> None:
        self.submitted: list[str] = []
        self._run, self._gets_on = run, gets_on

    def submit(self, name: str, job: Job) -> None:
        self.submitted.append(name)

    def started(self, name: str) -> bool:
        return True

    def wait(self, seconds: float) -> list[tuple[str, Outcome]]:
        if len(self.submitted) == self._gets_on:
            checkpoint.write(self._run / "checkpoints", checkpoint.step_name(100), {}, {})
        return [(self.submitted[-1], Outcome("lost", "killed by SIGKILL"))]

    def stop(self) -> None:
        pass


@pytest.mark.parametrize(("gets_on", "lives"), [(0, 3), (2, 5)])
def test_a_trial_that_does_not_get_on_is_begun_again_so_many_times(
    tmp_path: Path, gets_on: int, lives: int
) -> None:
    (trial,) = grid.expand(grid.parse(SMALL_SPEC | {"seeds": [0]}), tmp_path)
    schedule = {trial.name: ScheduledTrial(trial, "waiting")}
    jobs = {trial.name: make_job(trial, cores=1, inexact=False)}
    backend = Losing(trial.run, gets_on)
    view = View(schedule, Console(file=io.StringIO()))
    run_trials(schedule, jobs, backend, view, retries=2)
    assert len(backend.submitted) == lives
    assert schedule[trial.name].state == "failed"
    assert schedule[trial.name].losses == lives


def test_a_trial_is_trained_by_the_source_that_its_sweep_was_started_from() -> None:
    child.require_same_source(source_digest())
    with pytest.raises(InvalidInput, match=r"slsac's source is \w+ on .*; it must be other"):
        child.require_same_source("other")
