"""How well a network that has fitted the cost ahead knows places that it has not been to.

Plays a run's policy, and fits the discounted cost that followed each step of some episodes, once
from the observation alone and once with `nearness` of its closeness entries. Each episode has a
layout of its own, so episodes that were left out are places never seen. Prints a Markdown table,
means of three fits.

    python benchmarks/unseen_places.py RUN --page docs/unseen-places.md
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from slsac.bench.timing import Record, table, write_page
from slsac.certificate.calibration import discounted_sums
from slsac.config.presets import SL_SAC_2
from slsac.envs import make_env
from slsac.networks import MLP, activation, nearness
from slsac.runs.policy import TrainedRun, load_learned

EPISODES, LEFT_OUT = 240, 40
FITTED, FITS = (30, 60, 200), 3
UPDATES, BATCH = 3_000, 128
COLUMNS = (
    ("inputs", "inputs", ""),
    ("episodes", "episodes fitted", ""),
    ("known", "correlation in these", ".2f"),
    ("unseen", "in 40 unseen episodes", ".2f"),
    ("inside", "share of the cost ahead that is predicted inside hazards, unseen episodes", ".0%"),
)


class Played(NamedTuple):
    """Steps of many episodes, one after another."""

    inputs: dict[str, np.ndarray]
    ahead: np.ndarray
    """Discounted cost from each step on."""
    inside: np.ndarray
    episode: np.ndarray


def play(learned: TrainedRun) -> Played:
    """Two episodes in three with noise, one without, as in training."""
    agent, policy = learned.agent, learned.policy
    sample, predict = jax.jit(agent.sample), jax.jit(agent.predict)
    env = make_env(learned.config.env)
    rows, actions, ahead, inside, lengths = [], [], [], [], []
    key = jax.random.PRNGKey(0)
    for number in range(EPISODES):
        observation, costs, ended = env.reset(10_000 + number), [], False
        while not ended:
            key, noise = jax.random.split(key)
            action = predict(policy, observation)
            if number % 3:
                action = sample(policy, observation, noise)
            rows.append(observation)
            actions.append(np.asarray(action))
            step = env.step(actions[-1])
            costs.append(step.cost)
            observation, ended = step.observation, step.terminated or step.truncated
        ahead.append(discounted_sums(np.array(costs), SL_SAC_2.cost_critic.discount))
        inside.append(np.array(costs) > 0)
        lengths.append(len(costs))
    episode = np.repeat(np.arange(EPISODES), lengths)
    seen, acted = np.array(rows), np.array(actions)
    known = seen[episode < FITTED[0]]
    shifted = (seen - known.mean(0)) / np.maximum(known.std(0), 1e-2)
    near = nearness(seen[:, np.array(env.spec.closeness)], SL_SAC_2.closeness_rates)
    inputs = {
        "observation": np.hstack([shifted.clip(-10.0, 10.0), acted]),
        "observation and nearness": np.hstack([shifted.clip(-10.0, 10.0), near, acted]),
    }
    return Played(inputs, np.concatenate(ahead), np.concatenate(inside), episode)


def fit(played: Played, name: str, episodes: int, seed: int) -> np.ndarray:
    """A critic's network on the steps of the first ``episodes``: how well it knows them, how well
    the last ones, and what it predicts inside their hazards."""
    inputs = played.inputs[name].astype(np.float32)
    scale = played.ahead.std()
    wanted = (played.ahead / scale).astype(np.float32)
    network = MLP((inputs.shape[1], 256, 256, 1), key=jax.random.PRNGKey(seed))
    optimiser = optax.adam(1e-3, b1=0.5)
    state, activate = optimiser.init(network), activation(True)

    def loss(network: MLP, rows: jax.Array, goal: jax.Array) -> jax.Array:
        return jnp.mean(optax.huber_loss(network(rows, activate)[..., 0], goal, delta=1.0))

    @jax.jit
    def update(network: MLP, state: optax.OptState, rows: jax.Array, goal: jax.Array) -> tuple:
        change, state = optimiser.update(jax.grad(loss)(network, rows, goal), state, network)
        return optax.apply_updates(network, change), state

    rng = np.random.default_rng(seed)
    known, unseen = played.episode < episodes, played.episode >= EPISODES - LEFT_OUT
    for _ in range(UPDATES):
        drawn = rng.integers(known.sum(), size=BATCH)
        network, state = update(network, state, inputs[drawn], wanted[drawn])
    predicted = scale * np.asarray(jax.jit(lambda x: network(x, activate)[..., 0])(inputs))
    there = unseen & played.inside
    correlations = [
        np.corrcoef(predicted[part], played.ahead[part])[0, 1] for part in (known, unseen)
    ]
    return np.array([*correlations, predicted[there].mean() / played.ahead[there].mean()])


def row(played: Played, name: str, episodes: int) -> Record:
    figures = np.mean([fit(played, name, episodes, seed) for seed in range(FITS)], axis=0)
    measured = dict(zip(("known", "unseen", "inside"), figures.tolist(), strict=True))
    return {"inputs": name, "episodes": episodes, **measured}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--page", type=Path, help="also put the table into this page")
    options = parser.parse_args()
    played = play(load_learned(options.run))
    print(f"{played.inside.mean():.1%} of {len(played.inside):,} steps are inside hazards")
    records = [row(played, name, count) for count in FITTED for name in played.inputs]
    text = table(records, COLUMNS)
    print(text)
    if options.page:
        write_page(options.page, "unseen-places", text)


if __name__ == "__main__":
    main()
