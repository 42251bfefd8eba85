"""Steps per second of whole training, the update alone, and its matrix products alone.

    make bench          or: python benchmarks/throughput.py --env SafetyAntVelocity-v1 --steps 600

Update and floor are measured in turns, several times, and medians are shown: the machine may be
busy with other things, and a ratio taken within one run suffers least from that.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
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
from slsac.train import Trainer
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


def measure(trainer: Trainer, steps: int) -> dict[str, float]:
    config = trainer.config
    trainer.advance(config.warmup_steps + 10)  # compiles both kinds of update
    products = matrix_products(config, trainer.spec)
    floor = floor_call(products)
    floor()

    def two_updates() -> None:
        trainer._learn()
        trainer._learn()
        jax.block_until_ready(trainer.state)

    whole, update, least = [], [], []
    for _ in range(5):
        started, first = time.perf_counter(), trainer.step
        trainer.advance(first + steps // 5)
        whole.append((trainer.step - first) / (time.perf_counter() - started))
        update.append(median_ms(two_updates, 15) / 2)
        least.append(median_ms(floor, 15) / 2)
    flops = 2 * sum(s * r * i * c * times for s, r, i, c, times in products)
    return {
        "training_steps_per_second": float(np.median(whole)),
        "update_ms": float(np.median(update)),
        "floor_ms": float(np.median(least)),
        "share_of_floor": float(np.median(np.array(least) / np.array(update))),
        "gflop_per_update": flops / 1e9,
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--algo", default="sl-sac")
    parser.add_argument("--env", default="SafetyAntVelocity-v1")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--fill", type=int, default=5_000, help="random steps before learning")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args()
    config = with_overrides(
        preset(options.algo, options.env),
        {"warmup_steps": options.fill, "evaluate_every_epochs": 1_000_000},
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer = rundir.start(config, Path(folder) / "run")
        result = measure(trainer, options.steps)
        trainer.close()
    share = 100 * result["share_of_floor"]
    print(f"{options.algo} on {options.env}, {provenance.available_cores()} cores")
    print(f"whole training   {result['training_steps_per_second']:8.1f} env steps/s")
    print(f"update alone     {result['update_ms']:8.2f} ms")
    print(
        f"matrix products  {result['floor_ms']:8.2f} ms, {result['gflop_per_update']:.2f} GFLOP; "
        f"the update has {share:.0f} % of their speed"
    )
    print(f"peak memory      {result['memory_mb']:8.0f} MB")
    if options.json:
        options.json.write_text(json.dumps(result | {"machine": provenance.describe()}, indent=2))


if __name__ == "__main__":
    main()
