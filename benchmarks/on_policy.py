"""Steps per second of PPO-Lagrangian or CPO, playing and learning, beside OmniSafe's.

    python benchmarks/on_policy.py --omnisafe PEER/bin/python
    python benchmarks/on_policy.py --algo cpo --envs SafetyAntVelocity-v1 --epoch-steps 20000

Both play and learn whole epochs of the same length with the same settings, in turns, so that a busy
machine disturbs both alike. The first epoch of each, which compiles, is not timed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from slsac import rundir
from slsac.overrides import with_overrides
from slsac.presets import preset

ENVS = ("SafetyPointGoal1-v0", "SafetyAntVelocity-v1")
PEER_NAMES = {"ppo-lag": "PPOLag", "cpo": "CPO"}


def our_steps_per_second(
    algo: str, env: str, epoch_steps: int, epochs: int, num_envs: int, worker_processes: int
) -> float:
    """Ours, timed over ``epochs`` epochs after one that compiles."""
    config = with_overrides(
        preset(algo, env),
        {
            "steps_per_epoch": epoch_steps,
            "num_envs": num_envs,
            "worker_processes": worker_processes,
            "evaluate_every_epochs": 1_000_000,
            "checkpoint_every_steps": 1_000_000_000,
        },
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer = rundir.start(config, Path(folder) / "run")
        trainer.advance(epoch_steps)
        started = time.perf_counter()
        trainer.advance((1 + epochs) * epoch_steps)
        seconds = time.perf_counter() - started
        trainer.close()
    return epochs * epoch_steps / seconds


def peer_steps_per_second(
    python: Path, algo: str, env: str, epoch_steps: int, epochs: int
) -> float:
    """OmniSafe's, in its own environment, with one environment as its settings have it."""
    script = Path(__file__).parent / "peers" / "omnisafe_ppo_loop.py"
    command = [python, script, PEER_NAMES[algo], env, str(epoch_steps), str(epochs)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1])["steps_per_second"])


def compare(
    algo: str,
    env: str,
    *,
    epoch_steps: int,
    epochs: int,
    rounds: int,
    num_envs: int,
    worker_processes: int,
    omnisafe: Path | None,
) -> dict[str, float | None]:
    """Medians over ``rounds`` in turns; the ratio is the median of the rounds' ratios."""
    ours, peer = [], []
    for _ in range(rounds):
        ours.append(
            our_steps_per_second(algo, env, epoch_steps, epochs, num_envs, worker_processes)
        )
        if omnisafe is not None:
            peer.append(peer_steps_per_second(omnisafe, algo, env, epoch_steps, epochs))
    return {
        "steps_per_second": float(np.median(ours)),
        "omnisafe_steps_per_second": float(np.median(peer)) if peer else None,
        "ratio": float(np.median(np.array(ours) / np.array(peer))) if peer else None,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--algo", choices=list(PEER_NAMES), default="ppo-lag")
    parser.add_argument("--envs", nargs="+", default=list(ENVS))
    parser.add_argument("--epoch-steps", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=2, help="timed in each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--num-envs", type=int, default=2)
    parser.add_argument("--worker-processes", type=int, default=2)
    parser.add_argument("--omnisafe", type=Path, help="Python of an environment with OmniSafe")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args(arguments)
    results = {}
    print("| task | steps/s | OmniSafe steps/s | ratio |\n|---|---|---|---|")
    for env in options.envs:
        found = compare(
            options.algo,
            env,
            epoch_steps=options.epoch_steps,
            epochs=options.epochs,
            rounds=options.rounds,
            num_envs=options.num_envs,
            worker_processes=options.worker_processes,
            omnisafe=options.omnisafe,
        )
        results[env] = found
        cells = (f"{value:.1f}" if value is not None else "-" for value in found.values())
        print(f"| {env} | {' | '.join(cells)} |", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
