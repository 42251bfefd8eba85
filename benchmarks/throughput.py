"""Steps per second of whole training, the update alone, and its matrix products alone.

    make bench
    python benchmarks/throughput.py --algos sl-sac sac-lag --omnisafe PEER/bin/python

Update and floor are measured in turns, several times, and medians are shown: the machine may be
busy with other things, and a ratio taken within one run suffers least from that.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from slsac import provenance, rundir
from slsac.config import Config
from slsac.overrides import with_overrides
from slsac.presets import preset
from slsac.types import EnvSpec


def matrix_products(config: Config, spec: EnvSpec) -> list[tuple[int, int, int, int, float]]:
    """The products of one update on average, as (stack, rows, inner, columns, times).

    A layer costs one product forwards, and two backwards: for its weights and for its input. The
    first layer's input needs no gradient, except in the policy's update, where the action does.
    """
    batch, inputs = config.batch_size, spec.observation_size + spec.action_size
    often = 1.0 / config.policy_delay
    found: list[tuple[int, int, int, int, float]] = []

    def network(
        stack: int, sizes: tuple[int, ...], forward: float, weights: float, data: float,
        first_data: float,
    ) -> None:  # fmt: skip
        for layer, (rows, columns) in enumerate(itertools.pairwise(sizes)):
            found.append((stack, batch, rows, columns, forward))
            found.append((stack, rows, batch, columns, weights))
            found.append((stack, batch, columns, rows, data if layer else first_data))

    reward, cost, policy = config.reward_critic, config.cost_critic, config.policy
    # Targets and predictions always; once more through the critics for the policy.
    network(2 * reward.pairs, (inputs, *reward.hidden, 1), 2 + often, 1.0, 1 + often, often)
    network(1, (inputs, *cost.hidden), 2 + often, 1.0, 1 + often, often)
    if cost.kind == "quantile":
        found.append((1, batch, cost.hidden[-1], cost.quantiles, 2 + often + 2 * (1 + often)))
        found.append((1, cost.quantiles, cost.embedding, cost.hidden[-1], 2 + often + 1.0))
    network(
        1,
        (spec.observation_size, *policy.hidden, 2 * spec.action_size),
        1 + often,
        often,
        often,
        0.0,
    )
    return [product for product in found if product[-1] > 0]


def floor_call(products: list[tuple[int, int, int, int, float]]) -> Callable[[], Any]:
    """One jitted call with the products of two updates and nothing else."""
    rng = np.random.default_rng(0)
    pairs = []
    for stack, rows, inner, columns, times in products:
        for _ in range(round(2 * times)):
            # Operands of their own and whole results: nothing can be merged or left out.
            left = rng.normal(size=(stack, rows, inner)).astype(np.float32)
            right = rng.normal(size=(stack, inner, columns)).astype(np.float32)
            pairs.append((jnp.asarray(left), jnp.asarray(right)))
    run = jax.jit(lambda operands: [left @ right for left, right in operands])
    return lambda: jax.block_until_ready(run(pairs))


def median_ms(call: Callable[[], Any], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return 1e3 * float(np.median(times))


START, END = "<!-- throughput -->", "<!-- end of throughput -->"


class Subject:
    """One algorithm in training, measured in turns with the others."""

    def __init__(self, algo: str, env: str, fill: int, folder: Path) -> None:
        config = with_overrides(
            preset(algo, env), {"warmup_steps": fill, "evaluate_every_epochs": 1_000_000}
        )
        self.algo = algo
        self.trainer = rundir.start(config, folder / algo.replace("/", "-"))
        self.trainer.advance(fill + 10)  # compiles both kinds of update
        products = matrix_products(config, self.trainer.spec)
        self.gflop = 2e-9 * sum(s * r * i * c * times for s, r, i, c, times in products)
        self._floor = floor_call(products)
        self._floor()
        self.whole: list[float] = []
        self.update: list[float] = []
        self.floor: list[float] = []

    def measure(self, steps: int) -> None:
        trainer = self.trainer

        def updates() -> None:
            for _ in range(trainer.config.policy_delay):
                trainer._learn()
            jax.block_until_ready(trainer.state)

        started = time.perf_counter()
        trainer.advance(trainer.step + steps)
        self.whole.append(steps / (time.perf_counter() - started))
        self.update.append(median_ms(updates, 15) / trainer.config.policy_delay)
        self.floor.append(median_ms(self._floor, 15) / 2)

    def summary(self) -> dict[str, float]:
        return {
            "training_steps_per_second": float(np.median(self.whole)),
            "update_ms": float(np.median(self.update)),
            "floor_ms": float(np.median(self.floor)),
            "share_of_floor": float(np.median(np.array(self.floor) / np.array(self.update))),
            "gflop_per_update": self.gflop,
        }


def omnisafe_steps_per_second(python: Path, env: str) -> float:
    """OmniSafe's SACLag on the same task, in its own environment."""
    script = Path(__file__).parent / "peers" / "omnisafe_loop.py"
    done = subprocess.run(
        [python, script, "SACLag", env, "500"], capture_output=True, text=True, check=True
    )
    return float(json.loads(done.stdout.splitlines()[-1])["steps_per_second"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--algos", nargs="+", default=["sl-sac"])
    parser.add_argument("--env", default="SafetyAntVelocity-v1")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=120, help="training steps in a round")
    parser.add_argument("--fill", type=int, default=5_000, help="random steps before learning")
    parser.add_argument("--omnisafe", type=Path, help="Python of an environment with OmniSafe")
    parser.add_argument("--out", type=Path, help="page with a place for the table")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args()
    peer: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        subjects = [
            Subject(algo, options.env, options.fill, Path(folder)) for algo in options.algos
        ]
        for _ in range(options.rounds):
            for subject in subjects:
                subject.measure(options.steps)
            if options.omnisafe:
                peer.append(omnisafe_steps_per_second(options.omnisafe, options.env))
        for subject in subjects:
            subject.trainer.close()
    results: dict[str, Any] = {subject.algo: subject.summary() for subject in subjects}
    peer_speed = float(np.median(peer)) if peer else None
    cores = provenance.available_cores()
    lines = [
        f"{options.env}, {cores} cores, medians of {options.rounds} rounds:\n",
        "| algorithm | training steps/s | update ms | its matrix products ms (GFLOP) | "
        "share of the products' speed | against OmniSafe's SACLag |",
        "|---|---|---|---|---|---|",
    ]
    for algo, found in results.items():
        speed = found["training_steps_per_second"]
        ratio = f"{speed / peer_speed:.2f}x" if peer_speed else "-"
        lines.append(
            f"| {algo} | {speed:.1f} | {found['update_ms']:.1f} | {found['floor_ms']:.1f} "
            f"({found['gflop_per_update']:.2f}) | {100 * found['share_of_floor']:.0f} % | {ratio} |"
        )
    if peer_speed:
        lines.append(f"| OmniSafe 0.5.0 SACLag | {peer_speed:.1f} | | | | 1x |")
    print("\n".join(lines))
    if options.out:
        made_by = " ".join(
            ["--algos", *options.algos, f"--env {options.env} --rounds {options.rounds}"]
            + [f"--steps {options.steps} --fill {options.fill}"]
            + (["--omnisafe PEER/bin/python"] if options.omnisafe else [])
        )
        lines.append(f"\nMade by `python benchmarks/throughput.py {made_by}`.")
        before, _, rest = options.out.read_text().partition(START)
        text = "\n".join(lines)
        options.out.write_text(f"{before}{START}\n{text}\n{END}{rest.partition(END)[2]}")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\npeak memory of this process: {memory:.0f} MB")
    if options.json:
        results |= {"omnisafe_sac_lag": peer_speed, "memory_mb": memory}
        results |= {"env": options.env, "machine": provenance.describe()}
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
