"""The Ray backend, on a cluster of two machines that is simulated by Ray's own processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_resume import everything, finished_steps
from test_sweep import TRIALS, processes, sequential, slsac, trainer_of, wait_for, write_spec

from slsac.cli import main

cluster_utils = pytest.importorskip("ray.cluster_utils")
__all__ = ["sequential"]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head and a second machine, with a core each."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    made = cluster_utils.Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    made.second = made.add_node(num_cpus=1)
    yield made
    made.shutdown()


def ancestors(pid: int) -> list[int]:
    known, found = processes(), [pid]
    while found[-1] in known:
        found.append(known[found[-1]][0])
    return found


def test_trials_survive_the_loss_of_a_worker_and_of_a_machine(
    cluster: Any, tmp_path: Path, sequential: dict[str, dict[str, bytes]]
) -> None:
    out = tmp_path / "out"
    sweep = slsac(
        "sweep", str(write_spec(tmp_path)), "--out", str(out),
        "--backend", "ray", "--address", cluster.address,
    )  # fmt: skip
    runs = [out / name for name in TRIALS]
    (raylet,) = cluster.second.all_processes["raylet"]

    def on_second(run: Path) -> bool:
        trainer = trainer_of(run)
        return trainer is not None and raylet.process.pid in ancestors(trainer)

    first, second = wait_for(
        lambda: next(((a, b) for a, b in (runs, runs[::-1]) if on_second(b)), None), sweep
    )
    wait_for(lambda: finished_steps(first) >= 200, sweep)
    trainer = trainer_of(first)
    assert trainer is not None
    task = processes()[trainer][0]
    assert "ray::" in processes()[task][1][0]
    os.kill(task, signal.SIGKILL)

    wait_for(lambda: finished_steps(second) >= 200, sweep)
    assert on_second(second)
    cluster.remove_node(cluster.second, allow_graceful=False)

    shown = sweep.communicate(timeout=240)[0]
    assert sweep.returncode == 0, shown
    for run in runs:
        assert f"lost    {run.relative_to(out)}: " in shown
    assert "2 trials: 2 done" in shown
    assert {name: everything(out / name) for name in TRIALS} == sequential


def test_an_embedded_cluster_gives_the_same_bytes(
    tmp_path: Path, sequential: dict[str, dict[str, bytes]]
) -> None:
    out = tmp_path / "out"
    spec = write_spec(tmp_path, seeds=[0])
    sweep = slsac("sweep", str(spec), "--out", str(out), "--backend", "ray")
    shown = sweep.communicate(timeout=240)[0]
    assert sweep.returncode == 0, shown
    assert everything(out / TRIALS[0]) == sequential[TRIALS[0]]


def test_a_cluster_that_is_not_there_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["sweep", str(write_spec(tmp_path)), "--out", str(tmp_path / "out")]
    assert main([*command, "--backend", "ray", "--address", "nonsense"]) == 2
    shown = capsys.readouterr().err
    assert "no Ray cluster answers at 'nonsense'" in shown
    assert shown.count("\n") == 1
