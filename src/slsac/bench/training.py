"""Whole training, in turns with a peer's own loop, and how soon it begins."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, cast

from slsac.bench import PEERS
from slsac.bench.timing import Record, in_turns, ratio, seconds
from slsac.bench.update import floor_call, matrix_products
from slsac.config.overrides import with_overrides
from slsac.config.presets import off_policy_preset, preset
from slsac.errors import InvalidInput
from slsac.runs.layout import PROGRESS
from slsac.runs.log import read_lines
from slsac.training import launch
from slsac.training.off_policy import OffPolicyTrainer, learn


def _learn_a_while(trainer: OffPolicyTrainer) -> None:
    """As many updates as there are from one of the policy to the next."""
    for _ in range(trainer.config.policy_delay):
        learn([trainer], trainer.learner)


def training(
    algos: Sequence[str], env: str, rounds: int, steps: int, peer: Callable[[], float] | None
) -> list[Record]:
    """Whole training, the update alone and its products alone, beside a peer's training."""
    fill = 1_000
    with tempfile.TemporaryDirectory() as folder:
        trainers = {}
        calls: dict[str, Callable[[], Any]] = {}
        for algo in algos:
            config = with_overrides(
                off_policy_preset(algo, env),
                {"warmup_steps": fill, "evaluate_every_epochs": 1_000_000},
            )
            trainer = cast(
                OffPolicyTrainer, launch.start(config, Path(folder) / algo.replace("/", "-"))
            )
            trainer.advance(fill + 2 * config.policy_delay)
            trainers[algo] = trainer
            calls[f"{algo} floor"] = floor_call(matrix_products(config, trainer.spec))
            calls[f"{algo} update"] = functools.partial(_learn_a_while, trainer)
        speeds: dict[str, list[float]] = {name: [] for name in (*algos, "peer")}
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(rounds):
            for algo, trainer in trainers.items():
                taken = seconds(lambda t=trainer: t.advance(t.step + steps))  # type: ignore[misc]
                speeds[algo].append(steps / taken)
            for name, taken_by_call in in_turns(calls, 1, repeats=15).items():
                times[name] += taken_by_call
            if peer is not None:
                speeds["peer"].append(peer())
        for trainer in trainers.values():
            trainer.close()
    records: list[Record] = []
    for algo in algos:
        config = trainers[algo].config
        products = matrix_products(config, trainers[algo].spec)
        update = [t / config.policy_delay for t in times[f"{algo} update"]]
        floor = [t / 2 for t in times[f"{algo} floor"]]
        records.append(
            {
                "algo": algo,
                "steps_per_second": median(speeds[algo]),
                "update_ms": 1e3 * median(update),
                "floor_ms": 1e3 * median(floor),
                "gflop": 2e-9 * sum(s * r * i * c * times for s, r, i, c, times in products),
                "share_of_floor": ratio(floor, update),
                "against_peer": ratio(speeds[algo], speeds["peer"]) if peer is not None else None,
            }
        )
    if peer is not None:
        records.append({"algo": "peer", "steps_per_second": median(speeds["peer"])})
    return records


def peer_training(name: str, python: Path, env: str) -> Callable[[], float]:
    """A function that trains a peer in its own environment and returns its steps per second."""
    if not python.exists():
        raise InvalidInput(
            f"peer-python is {python}, which does not exist; benchmarks/README.md says how to "
            "make an environment for a peer"
        )
    script, algo = PEERS[name]
    return lambda: run_peer(python, script, algo, env, "500")["steps_per_second"]


def run_peer(python: Path, script: str, *arguments: str) -> dict[str, float]:
    """The figures that a peer's own loop reports, its steps per second among them."""
    path = Path(__file__).resolve().parents[3] / "benchmarks" / "peers" / script
    if not path.exists():
        raise InvalidInput(f"{script}, the peer's loop, comes only with a clone of slsac")
    done = subprocess.run([python, path, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise InvalidInput(f"{script} failed: {(done.stderr.splitlines() or ['?'])[-1]}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def on_policy(rounds: int, peer_python: Path | None) -> list[Record]:
    """PPO-Lagrangian, playing and learning whole epochs, in turns with OmniSafe's.

    The same settings on both sides, OmniSafe's own, and the same number of steps in an epoch; the
    first epoch of each, which compiles, is not timed.
    """
    steps, epochs = 4_000, 1
    records: list[Record] = []
    for env in ("SafetyPointGoal1-v0", "SafetyAntVelocity-v1"):
        ours: dict[int, list[dict[str, float]]] = {0: [], 2: []}
        peer: list[dict[str, float]] = []
        for _ in range(rounds):
            for workers, figures in ours.items():
                figures.append(epochs_of_ppo(env, steps, epochs, workers))
            if peer_python is not None:
                peer.append(
                    run_peer(
                        peer_python, "omnisafe_ppo_loop.py", "PPOLag", env, str(steps), str(epochs)
                    )
                )
        peer_speeds = [figure["steps_per_second"] for figure in peer]
        for workers, figures in ours.items():
            speeds = [figure["steps_per_second"] for figure in figures]
            records.append(
                {
                    "env": env,
                    "workers": workers,
                    "steps_per_second": median(speeds),
                    "passes": median(figure["passes"] for figure in figures),
                    "peer": median(peer_speeds) if peer else None,
                    "peer_passes": median(figure["passes"] for figure in peer) if peer else None,
                    "against_peer": ratio(speeds, peer_speeds) if peer else None,
                }
            )
    return records


def epochs_of_ppo(env: str, steps: int, epochs: int, workers: int) -> dict[str, float]:
    """Steps per second of ppo-lag/omnisafe over ``epochs`` epochs, after one that compiles, and
    the passes over an epoch's steps until its KL divergence stopped it."""
    config = with_overrides(
        preset("ppo-lag/omnisafe", env),
        {"steps_per_epoch": steps, "worker_processes": workers, "evaluate_every_epochs": 10**6},
    )
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        trainer = launch.start(config, run)
        trainer.advance(steps)
        taken = seconds(lambda: trainer.advance((1 + epochs) * steps))
        trainer.close()
        passes = [line["passes"] for line in read_lines(run / PROGRESS)][1:]
    return {"steps_per_second": epochs * steps / taken, "passes": sum(passes) / epochs}


def startup(env: str) -> Record:
    """Seconds from the command to the end of the first update, before and after it is cached."""
    with tempfile.TemporaryDirectory() as folder:

        def train(run: str) -> None:
            options = {"--warmup-steps": 300, "--steps": 302, "--final-evaluation-episodes": 0}
            flags = [str(part) for option in options.items() for part in option]
            command = [sys.executable, "-m", "slsac", "train", "--env", env, "--run"]
            done = subprocess.run(
                [*command, f"{folder}/{run}", *flags], capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise InvalidInput(f"slsac train failed: {(done.stderr.splitlines() or ['?'])[-1]}")

        first, again = (seconds(functools.partial(train, run)) for run in ("a", "b"))
    return {"env": env, "first": first, "again": again}
