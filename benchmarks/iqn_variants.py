"""Which quantile critic is right, and what it costs: the variants on a tail known in closed form.

Each variant is trained on the same stream of one-step transitions of the heavy-tail probe, for the
same number of updates, and compared with the true quantile function. Writes a Markdown table.

    python benchmarks/iqn_variants.py --out docs/iqn-variants.md
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

from slsac.algorithms.off_policy import cost_critic
from slsac.algorithms.optimisers import build_optimiser
from slsac.config import CostCriticConfig
from slsac.config.presets import SL_SAC
from slsac.envs.probe import HeavyTail
from slsac.types import Batch

LEARNING_RATE = 1e-3
VARIANTS = [
    {"merge": merge, "fractions": fractions, "stratified": True}
    for merge, fractions in itertools.product(("late", "hidden"), ("shared", "per-sample"))
] + [{"merge": "late", "fractions": "shared", "stratified": False}]


def train(config: CostCriticConfig, seed: int, updates: int) -> tuple[object, float]:
    """The trained critic, and seconds per update after compilation."""
    spec = HeavyTail().spec
    critic = cost_critic.build(config, spec, 0.5)
    optimiser = build_optimiser(config.optimiser, jax.random.PRNGKey(0))
    data_key, init_key, loss_key = jax.random.split(jax.random.PRNGKey(seed), 3)
    params = critic.init(init_key)
    batch_size = SL_SAC.batch_size

    @jax.jit
    def update(params: object, state: optax.OptState, step: jax.Array) -> tuple[object, object]:
        state_key, action_key, cost_key = jax.random.split(jax.random.fold_in(data_key, step), 3)
        observation = jax.random.uniform(state_key, (batch_size, 1))
        action = jax.random.uniform(action_key, (batch_size, 1), minval=-1.0, maxval=1.0)
        fraction = jax.random.uniform(cost_key, (batch_size,))
        cost = HeavyTail.quantile(observation[:, 0], (action[:, 0] + 1.0) / 2.0, fraction)
        zeros = jnp.zeros(batch_size)
        batch = Batch(observation, action, zeros, cost, observation, zeros + 1.0)
        gradient, _ = jax.grad(critic.loss, has_aux=True)(
            params, params, batch, action, jax.random.fold_in(loss_key, step)
        )
        changes, state = optimiser.update(gradient, state, params)
        return optax.apply_updates(params, changes), state

    state = optimiser.init(params)
    params, state = jax.block_until_ready(update(params, state, 0))
    started = time.perf_counter()
    for step in range(1, updates):
        params, state = update(params, state, step)
    jax.block_until_ready(params)
    return params, (time.perf_counter() - started) / (updates - 1)


def errors(params: object) -> tuple[float, float, float, float]:
    """Wasserstein-1 error, relative CVaR error at .1 and .5, share of crossing quantiles."""
    grid = np.linspace(0.0, 1.0, 5)
    states, efforts = (axis.ravel() for axis in np.meshgrid(grid, grid))
    fractions = (np.arange(400) + 0.5) / 400

    def predict(at: np.ndarray) -> np.ndarray:
        observation, action = states[:, None], 2.0 * efforts[:, None] - 1.0
        return np.asarray(
            params(jnp.float32(observation), jnp.float32(action), jnp.float32(at)[None])
        )

    values = predict(fractions)
    truth = HeavyTail.quantile(states[:, None], efforts[:, None], fractions)
    tail = []
    for tail_fraction in (0.1, 0.5):
        predicted = predict(1.0 - tail_fraction * (1.0 - fractions)).mean(axis=1)
        true = HeavyTail.cvar(states, efforts, tail_fraction)
        tail.append(float(np.mean(np.abs(predicted - true) / true)))
    crossings = float(np.mean(np.diff(values, axis=1) < 0.0))
    return float(np.mean(np.abs(values - truth))), tail[0], tail[1], crossings


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--updates", type=int, default=800)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    optimiser = replace(SL_SAC.cost_critic.optimiser, learning_rate=LEARNING_RATE)
    rows = []
    for variant in VARIANTS:
        config = replace(SL_SAC.cost_critic, optimiser=optimiser, **variant)
        found, times = [], []
        for seed in range(options.seeds):
            params, seconds = train(config, seed, options.updates)
            found.append(errors(params))
            times.append(seconds)
            print(variant, seed, found[-1], f"{1e3 * seconds:.1f} ms", file=sys.stderr)
        mean, spread = np.mean(found, axis=0), np.std(found, axis=0, ddof=1)
        cells = [
            f"{mean[0]:.3f} ± {spread[0]:.3f}",
            f"{100 * mean[1]:.1f} ± {100 * spread[1]:.1f} %",
            f"{100 * mean[2]:.1f} ± {100 * spread[2]:.1f} %",
            f"{100 * mean[3]:.1f} ± {100 * spread[3]:.1f} %",
            f"{1e3 * np.median(times):.1f}",
        ]
        draw = "stratified" if variant["stratified"] else "uniform"
        rows.append([variant["merge"], variant["fractions"], draw, *cells])
    header = ["merge", "fractions", "draw", "Wasserstein-1 error", "CVaR .1 error",
              "CVaR .5 error", "crossings", "ms per update"]  # fmt: skip
    lines = ["| " + " | ".join(row) + " |" for row in (header, ["---"] * len(header), *rows)]
    made_by = f"--updates {options.updates} --seeds {options.seeds} --out {options.out}"
    table = "\n".join(lines) + f"\n\nMade by `python benchmarks/iqn_variants.py {made_by}`.\n"
    print(table)
    if options.out:
        text = options.out.read_text() if options.out.exists() else "<!-- table -->\n"
        before, _, after = text.partition("<!-- table -->")
        after = after.partition("<!-- end of table -->")[2]
        options.out.write_text(
            f"{before}<!-- table -->\n{table}<!-- end of table -->{after or chr(10)}"
        )


if __name__ == "__main__":
    main()
