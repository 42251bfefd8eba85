"""Sweeps: trials that were killed, on either backend, end with the bytes of undisturbed ones."""

from __future__ import annotations

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

from slsac.cli import main
from slsac.sweep import spec as grid
from tests.support.gated import FREE_EPISODES, GATED, closed
from tests.support.runs import everything, finished_steps
from tests.support.sweeps import SMALL_SPEC, TRIALS, write_spec
from tests.support.waiting import wait_for

DISTURBED = {"envs": [GATED], "steps": 1_200}
"""Trials that a test interrupts while they wait at the gate."""
DISTURBED_TRIALS = [f"sac-lag/{GATED.replace(':', '-')}/seed{seed}" for seed in (0, 1)]


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
    trials = grid.expand(grid.parse(SMALL_SPEC | DISTURBED), out)
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
    spec = write_spec(tmp_path, **DISTURBED)
    command = ["sweep", str(spec), "--out", str(out), "--workers", "2"]
    names = DISTURBED_TRIALS
    runs = [out / name for name in names]
    at_gate = 10 * FREE_EPISODES
    gate = tmp_path / "gate"

    with closed(gate):
        sweep = slsac(*command)
        wait_for(lambda: finished_steps(runs[0]) >= at_gate // 2, sweep)
        sweep.send_signal(signal.SIGINT)
        shown = sweep.communicate(timeout=240)[0]
        assert sweep.returncode == 130, shown
        assert "the same command continues" in shown
        assert not any(trainer_of(run) for run in runs)

        sweep = slsac(*command)
        wait_for(lambda: finished_steps(runs[0]) > at_gate, sweep)
        os.kill(wait_for(lambda: trainer_of(runs[0]), sweep), signal.SIGKILL)
        gate.unlink()
        shown = sweep.communicate(timeout=240)[0]
    assert sweep.returncode == 0, shown
    assert f"lost    {names[0]}: killed by SIGKILL" in shown
    assert "2 trials: 2 done" in shown
    assert {name: everything(out / name) for name in names} == sequential
    assert re.search(r"resuming at step [1-9]", (out / f"{names[0]}.log").read_text())

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
def gate(tmp_path: Path) -> Iterator[Path]:
    """A file; until it is deleted, disturbed trials wait at their gate."""
    with closed(tmp_path / "gate"):
        yield tmp_path / "gate"


@pytest.fixture
def machines(gate: Path) -> Iterator[TwoMachines]:
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
    machines: TwoMachines, gate: Path, tmp_path: Path, sequential: dict[str, dict[str, bytes]]
) -> None:
    out = tmp_path / "out"
    sweep = slsac(
        "sweep", str(write_spec(tmp_path, **DISTURBED)), "--out", str(out),
        "--backend", "ray", "--address", machines.address,
    )  # fmt: skip
    runs = [out / name for name in DISTURBED_TRIALS]

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

    gate.unlink()
    shown = sweep.communicate(timeout=400)[0]
    assert sweep.returncode == 0, shown
    for run in runs:
        assert f"lost    {run.relative_to(out)}: " in shown
    assert "2 trials: 2 done" in shown
    assert {name: everything(out / name) for name in DISTURBED_TRIALS} == sequential


def test_an_embedded_cluster_gives_the_same_bytes(
    tmp_path: Path, sequential: dict[str, dict[str, bytes]]
) -> None:
    pytest.importorskip("ray")
    out = tmp_path / "out"
    spec = write_spec(tmp_path, seeds=[0], **DISTURBED)
    sweep = slsac("sweep", str(spec), "--out", str(out), "--backend", "ray")
    shown = sweep.communicate(timeout=240)[0]
    assert sweep.returncode == 0, shown
    name = DISTURBED_TRIALS[0]
    assert everything(out / name) == sequential[name]


def test_a_cluster_that_is_not_there_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray")
    command = ["sweep", str(write_spec(tmp_path)), "--out", str(tmp_path / "out")]
    assert main([*command, "--backend", "ray", "--address", "nonsense"]) == 2
    shown = capsys.readouterr().err
    assert "no Ray cluster answers at 'nonsense'" in shown
    assert shown.count("\n") == 1
