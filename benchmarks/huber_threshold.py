"""What the threshold of the quantile Huber loss does to a critic that learns from its own targets.

Within the threshold kappa the loss is quadratic, and its minimiser is an expectile, not a quantile.
The cost critic is trained to convergence on one-state tasks whose discounted cost has a known
distribution, once for each kappa; a scalar critic is trained beside it. Writes a Markdown table.

    python benchmarks/huber_threshold.py --page docs/huber-threshold.md
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from slsac.algorithms.off_policy import cost_critic
from slsac.bench.timing import Record, table, write_page
from slsac.config import CostCriticConfig
from slsac.config.presets import SAC_LAG, SL_SAC
from slsac.stats.tail import empirical_cvar
from slsac.types import Batch, EnvSpec

DISCOUNT, TAIL_FRACTION, BATCH, POLYAK = 0.99, 0.5, 64, 0.05
THRESHOLDS = (1.0, 0.3, 0.1, 0.03)
SPEC = EnvSpec(1, 1, 1000, (-1.0,), (1.0,))
COLUMNS = (
    ("task", "task", ""),
    ("critic", "critic", ""),
    ("mean", "mean", ".2f"),
    ("deviation", "standard deviation", ".2f"),
    ("cvar", "CVaR at .5", ".2f"),
)


class Task(NamedTuple):
    """Each step costs 1 with probability ``risk``; if ``ends``, such a step is the last."""

    name: str
    risk: float
    ends: bool

    def draw(self, rng: np.random.Generator, episodes: int) -> np.ndarray:
        """Discounted costs-to-go, by simulation over 2,000 steps."""
        if self.ends:
            return DISCOUNT ** (rng.geometric(self.risk, episodes) - 1.0)
        total = np.zeros(episodes)
        for step in range(2_000):
            total += DISCOUNT**step * (rng.uniform(size=episodes) < self.risk)
        return total


TASKS = (
    Task("cost in 2.5 % of steps", 0.025, ends=False),
    Task("failure in 0.3 % of steps ends it", 0.003, ends=True),
)


def train(config: CostCriticConfig, task: Task, seed: int, updates: int) -> tuple[float, ...]:
    """Mean, standard deviation and CVaR of the trained critic; of a scalar critic, the mean."""
    config = replace(config, hidden=(64, 64), discount=DISCOUNT, cost_scaling="none")
    critic = cost_critic.build(config, SPEC, TAIL_FRACTION)
    optimiser = optax.adam(optax.exponential_decay(1e-3, updates // 3, 0.2))
    states, state = jnp.zeros((BATCH, 1)), jnp.zeros((1, 1))

    def step(carry: tuple, key: jax.Array) -> tuple[tuple, None]:
        params, target, state = carry
        cost_key, loss_key = jax.random.split(key)
        cost = (jax.random.uniform(cost_key, (BATCH,)) < task.risk).astype(jnp.float32)
        ended = cost if task.ends else jnp.zeros(BATCH)
        batch = Batch(states, states, cost, cost, states, ended)
        gradient, _ = jax.grad(critic.loss, has_aux=True)(params, target, batch, states, loss_key)
        changes, state = optimiser.update(gradient, state, params)
        params = optax.apply_updates(params, changes)
        return (params, optax.incremental_update(params, target, POLYAK), state), None

    @jax.jit
    def learn(params: object, keys: jax.Array) -> object:
        return jax.lax.scan(step, (params, params, optimiser.init(params)), keys)[0][1]

    init_key, data_key = jax.random.split(jax.random.PRNGKey(seed))
    params = learn(critic.init(init_key), jax.random.split(data_key, updates))
    if config.kind == "scalar":
        return (float(critic.charge(params, state, state, init_key)[0]),)
    fractions = (jnp.arange(400) + 0.5)[None] / 400
    quantiles = np.asarray(params(state, state, fractions))[0]
    cvar = empirical_cvar(quantiles, TAIL_FRACTION)
    return float(quantiles.mean()), float(quantiles.std()), cvar


def measure(task: Task, seeds: int, updates: int) -> list[Record]:
    """A row for the truth and one for each critic, averaged over seeds."""
    truth = task.draw(np.random.default_rng(0), 400_000)
    rows = {"truth": (truth.mean(), truth.std(), empirical_cvar(truth, TAIL_FRACTION))}
    critics = {
        f"quantile, kappa {kappa:g}": replace(SL_SAC.cost_critic, huber_threshold=kappa)
        for kappa in THRESHOLDS
    } | {"scalar": SAC_LAG.cost_critic}
    for name, config in critics.items():
        learned = [train(config, task, seed, updates) for seed in range(seeds)]
        rows[name] = tuple(np.mean(learned, axis=0))
        print(task.name, name, learned, flush=True)
    figures = ("mean", "deviation", "cvar")
    return [
        {"task": task.name, "critic": name, **dict(zip(figures, map(float, row), strict=False))}
        for name, row in rows.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--updates", type=int, default=12_000)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    records = [row for task in TASKS for row in measure(task, options.seeds, options.updates)]
    text = table(records, COLUMNS)
    print(text)
    if options.page:
        write_page(options.page, "huber-threshold", text)


if __name__ == "__main__":
    main()
