"""Loading what a run has learned. Needs neither the task nor the replay."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from slsac import algorithms
from slsac.algorithms.off_policy.agent import OffPolicyAgent
from slsac.algorithms.on_policy.agent import OnPolicyAgent
from slsac.runs import checkpoint, config_file
from slsac.runs.layout import CHECKPOINTS, POLICY
from slsac.runs.tensors import load_tensors, tensors_of, tree_from


def load(run: Path) -> tuple[OffPolicyAgent | OnPolicyAgent, Any]:
    """The agent's functions and the newest policy of a run."""
    config, spec, _ = config_file.read(run)
    agent = algorithms.build(config, spec)
    like = jax.eval_shape(agent.init, jax.random.PRNGKey(0)).policy
    return agent, load_tensors(run / POLICY, like)


class PolicyAndCritic(NamedTuple):
    """An off-policy agent's functions, and a policy and cost critic of one moment of training."""

    agent: OffPolicyAgent
    policy: Any
    cost_critic: Any


def load_cost_critic(run: Path) -> PolicyAndCritic | None:
    """The newest policy with the cost critic of the same checkpoint.

    None where no checkpoint holds that policy, as in a recorded run, which keeps none.
    """
    agent, policy = load(run)
    if not isinstance(agent, OffPolicyAgent):
        return None
    whole = jax.eval_shape(agent.init, jax.random.PRNGKey(0))
    others = [name for name in whole._fields if name not in ("policy", "cost_critic")]
    like = whole._replace(**dict.fromkeys(others))
    wanted = tensors_of(policy)
    folder = run / CHECKPOINTS
    for name in (checkpoint.FINAL, *reversed(checkpoint.step_names(folder))):
        try:
            saved = checkpoint.load(folder / name)
        except checkpoint.Damaged:
            continue
        state = tree_from(saved.tensors, like, saved.path)
        held = tensors_of(state.policy)
        if all(np.array_equal(held[part], wanted[part]) for part in wanted):
            return PolicyAndCritic(agent, state.policy, state.cost_critic)
    return None
