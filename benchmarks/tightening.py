"""What a tightened limit gains on a heavy tail, and what it costs.

`python benchmarks/tightening.py`: small agents on ProbeHeavyTail-v0, with and without tightening.
Shares over the limit and CVaR are exact for the efforts of the last 1,000 training episodes: they
average over all states and outcomes, not only those that occurred.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from slsac.config.overrides import with_overrides
from slsac.config.presets import preset
from slsac.envs.probe import HeavyTail
from slsac.runs.log import read_lines
from slsac.training import launch

COST_LIMIT = 8.5
SETTINGS = {
    "cost_limit": COST_LIMIT,
    "policy.hidden": (32, 32),
    "reward_critic.hidden": (32, 32),
    "cost_critic.hidden": (32, 32),
    "policy.optimiser.learning_rate": 1e-3,
    "reward_critic.optimiser.learning_rate": 3e-3,
    "cost_critic.optimiser.learning_rate": 3e-3,
    "policy.temperature": 1e-2,
    "polyak": 0.05,
    "warmup_steps": 200,
    "batch_size": 64,
    "replay_capacity": 10_000,
    "multiplier_warmup_steps": 0,
    "multiplier.initial": 0.0,
    "multiplier.learning_rate": 1e-3,
    "multiplier.window": 50,
    "evaluate_every_epochs": 1_000,
}


def train(seed: int, steps: int, largest: float) -> tuple[float, float, float, float]:
    """Return, share over the limit, CVaR at .5, and the enforced limit, of the last episodes."""
    changes = {"multiplier.tighten": largest > 0.0, "multiplier.largest_tightening": largest}
    config = with_overrides(
        preset("sl-sac", "ProbeHeavyTail-v0"),
        SETTINGS | changes | {"seed": seed, "steps": steps, "steps_per_epoch": 100},
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer = launch.start(config, Path(folder) / "run")
        trainer.advance(steps)
        trainer.close()
        episodes = read_lines(trainer.run / "episodes.jsonl")[-1_000:]
        epochs = read_lines(trainer.run / "progress.jsonl")[-10:]
    efforts = np.array([line["return"] for line in episodes])
    states = np.linspace(0.0, 1.0, 21)[:, None]
    over = (1.0 + HeavyTail.SHAPE * COST_LIMIT / HeavyTail.scale(states, efforts)) ** -4.0
    return (
        float(efforts.mean()),
        float(over.mean()),
        float(np.mean(HeavyTail.cvar(states, efforts, 0.5))),
        float(np.mean([line["signal_limit"] for line in epochs])),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4_000)
    options = parser.parse_args()
    print(f"limit {COST_LIMIT:g}, {options.steps} steps, {options.seeds} seeds: mean (each seed)\n")
    print("| largest tightening | enforced limit | return | over the limit | CVaR at .5 |")
    print("|---|---|---|---|---|")
    for largest in (0.0, 0.2, 0.5):
        rows = np.array([train(seed, options.steps, largest) for seed in range(options.seeds)])

        def cell(column: np.ndarray, digits: int, unit: str = "") -> str:
            each = ", ".join(f"{value:.{digits}f}" for value in column)
            return f"{column.mean():.{digits}f}{unit} ({each})"

        returns, over, cvar, limit = rows.T
        print(
            f"| {f'{largest:g}' if largest else 'off'} | {cell(limit, 2)} | {cell(returns, 2)} | "
            f"{cell(100 * over, 1, ' %')} | {cell(cvar, 2)} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
