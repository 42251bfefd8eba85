"""How much of a run's networks is dead: first-layer units that are 0 for every replayed state.

    python benchmarks/dead_units.py runs/metadrive-0

A ReLU that is 0 for every state never learns again. Needs a run's checkpoint and replay.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import jax
import numpy as np

from slsac.algorithms.off_policy import agent as off_policy
from slsac.config import OffPolicyConfig
from slsac.runs import checkpoint, config_file, layout
from slsac.runs.tensors import tensors_of, tree_from


def dead_share(weights: np.ndarray, biases: np.ndarray, inputs: np.ndarray) -> float:
    """Share of units that are 0 for every row of ``inputs``, over all members of an ensemble."""
    values = inputs @ weights + biases[..., None, :]
    return float((values <= 0.0).all(axis=-2).mean())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("--states", type=int, default=4_000)
    options = parser.parse_args()
    config, spec, _ = config_file.read(options.run)
    if not isinstance(config, OffPolicyConfig):
        raise SystemExit(
            f"{options.run} is a run of {config.algo}; only off-policy runs have replay"
        )
    agent = off_policy.build(config, spec)
    newest, _ = checkpoint.load_newest(options.run / layout.CHECKPOINTS)
    like = jax.eval_shape(agent.init, jax.random.PRNGKey(0))
    state = tree_from(newest.tensors, like, newest.path)

    rows = np.memmap(options.run / layout.REPLAY / "observations.bin", np.float32, "r")
    observations = rows.reshape(-1, spec.observation_size)[: newest.facts["step"]]
    rng = np.random.default_rng(0)
    observations = observations[rng.integers(0, len(observations), options.states)]
    actions = rng.uniform(-1.0, 1.0, (options.states, spec.action_size)).astype(np.float32)
    both = np.concatenate([observations, actions], axis=1)

    print(f"{config.algo} on {config.env}, step {newest.facts['step']:,}: dead first-layer units")
    parts = {"policy": observations, "reward_critics": both, "cost_critic": both}
    for name, inputs in parts.items():
        tensors = tensors_of(getattr(state, name))
        (first,) = (
            key
            for key, value in tensors.items()
            if key.endswith("weights[0]") and value.shape[-2] == inputs.shape[1]
        )
        weights, biases = tensors[first], tensors[first.replace("weights", "biases")]
        print(f"  {name}: {dead_share(weights, biases, inputs):.0%} of {biases.size}")


if __name__ == "__main__":
    main()
