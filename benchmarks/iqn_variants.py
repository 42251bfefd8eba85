"""Which quantile critic is accurate, and at what cost: the variants on a tail in closed form.

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
from slsac.bench.timing import Record, table, write_page
from slsac.config import CostCriticConfig
from slsac.config.presets import SL_SAC
from slsac.envs.probe import HeavyTail
from slsac.types import Batch

LEARNING_RATE = 1e-3
VARIANTS = [
    {"merge": merge, "fractions": fractions, "stratified": True}
    for merge, fractions in itertools.product(("late", "hidden"), ("shared", "per-sample"))
] + [{"merge": "late", "fractions": "shared", "stratified": False}]

COLUMNS = (
    ("merge", "merge", ""),
    ("fractions", "fractions", ""),
    ("draw", "draw", ""),
    ("wasserstein", "Wasserstein-1 error", ""),
    ("cvar_1", "CVaR .1 error", ""),
    ("cvar_5", "CVaR .5 error", ""),
    ("crossings", "crossings", ""),
    ("milliseconds", "ms per update", ".1f"),
)


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


def spread(values: np.ndarray, digits: int) -> str:
    """Mean and standard deviation over seeds."""
    return f"{values.mean():.{digits}f} ± {values.std(ddof=1):.{digits}f}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--updates", type=int, default=800)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="page to write the table to")
    options = parser.parse_args()
    optimiser = replace(SL_SAC.cost_critic.optimiser, learning_rate=LEARNING_RATE)
    records = []
    for variant in VARIANTS:
        config = replace(SL_SAC.cost_critic, optimiser=optimiser, **variant)
        measured, times = [], []
        for seed in range(options.seeds):
            params, seconds = train(config, seed, options.updates)
            measured.append(errors(params))
            times.append(seconds)
            print(variant, seed, measured[-1], f"{1e3 * seconds:.1f} ms", file=sys.stderr)
        wasserstein, *shares = zip(*measured, strict=True)
        cvar_1, cvar_5, crossings = (f"{spread(100 * np.array(share), 1)} %" for share in shares)
        record: Record = {
            **variant,
            "draw": "stratified" if variant["stratified"] else "uniform",
            "wasserstein": spread(np.array(wasserstein), 3),
            "cvar_1": cvar_1,
            "cvar_5": cvar_5,
            "crossings": crossings,
            "milliseconds": 1e3 * np.median(times),
        }
        records.append(record)
    text = table(records, COLUMNS)
    print(text)
    if options.out:
        write_page(options.out, "iqn-variants", text)


if __name__ == "__main__":
    main()
