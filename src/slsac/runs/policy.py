"""Loading what a run has learned. Needs neither the task nor the replay."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from slsac import algorithms
from slsac.algorithms.off_policy.agent import OffPolicyAgent
from slsac.algorithms.on_policy.agent import OnPolicyAgent
from slsac.config import Config
from slsac.errors import Failed
from slsac.runs import checkpoint, config_file
from slsac.runs.layout import CHECKPOINTS, POLICY
from slsac.runs.steps import steps_in_logs
from slsac.runs.tensors import load_hashed, load_tensors, tensors_of, tree_from
from slsac.types import EnvSpec


def load(run: Path) -> tuple[OffPolicyAgent | OnPolicyAgent, Any]:
    """The agent's functions and the newest policy of a run."""
    config, spec, _ = config_file.read(run)
    agent = algorithms.build(config, spec)
    return agent, load_tensors(run / POLICY, _shapes(agent).policy)


class TrainedRun(NamedTuple):
    """What a run has learned by one moment of training."""

    config: Config
    spec: EnvSpec
    agent: OffPolicyAgent | OnPolicyAgent
    """The agent's functions."""
    policy: Any
    policy_sha256: str
    """SHA-256 of the policy's file."""
    steps: int
    """Environment steps that the policy has learned from."""
    cost_critic: Any | None
    """From the checkpoint that holds the policy. None where there is no such checkpoint, as in a
    recorded run, and on-policy, where the critic values states and not actions."""
    facts: Mapping[str, Any]
    """What that checkpoint says beside its arrays."""
    config_edited: bool
    """The config was changed by hand since the run was made."""


def load_learned(run: Path) -> TrainedRun:
    """Reads each file of the run once; raises Failed if another policy is saved meanwhile."""
    (config, spec, _), stated = config_file.read_with_identity(run)
    agent = algorithms.build(config, spec)
    path, folder = run / POLICY, run / CHECKPOINTS
    before = _version(path)
    policy, digest = load_hashed(path, _shapes(agent).policy)
    unnumbered = [_load_readable(folder / name) for name in (checkpoint.FINAL, checkpoint.LAST)]
    saved = [each for each in unnumbered if each is not None]
    steps_saved = [int(each.facts.get("step", 0)) for each in saved]
    reached = max(checkpoint.newest_step(folder), *steps_saved, 0)
    steps = steps_in_logs(run, config, reached)
    cost_critic: Any = None
    facts: dict[str, Any] = {}
    if isinstance(agent, OffPolicyAgent):
        cost_critic, facts = _cost_critic_beside(policy, agent, folder, saved)
    if _version(path) != before:
        raise Failed(f"run {str(run)!r} saved another policy just now; try again")
    return TrainedRun(config, spec, agent, policy, digest, steps, cost_critic, facts, stated.edited)


def _cost_critic_beside(
    policy: Any, agent: OffPolicyAgent, folder: Path, loaded: list[checkpoint.Checkpoint]
) -> tuple[Any | None, dict[str, Any]]:
    """Cost critic and facts of a checkpoint that holds ``policy``; those ``loaded`` come first."""
    shapes = _shapes(agent)
    others = [name for name in shapes._fields if name not in ("policy", "cost_critic")]
    like = shapes._replace(**dict.fromkeys(others))
    wanted = tensors_of(policy)
    older = (_load_readable(folder / name) for name in reversed(checkpoint.step_names(folder)))
    for saved in itertools.chain(loaded, older):  # the older ones are read only if needed
        if saved is None:
            continue
        state = tree_from(saved.tensors, like, saved.path)
        held = tensors_of(state.policy)
        if all(np.array_equal(held[name], wanted[name]) for name in wanted):
            critic = tensors_of(state.cost_critic).values()
            finite = all(np.isfinite(part).all() for part in critic)
            return (state.cost_critic if finite else None), saved.facts
    return None, {}


def _load_readable(path: Path) -> checkpoint.Checkpoint | None:
    try:
        return checkpoint.load(path)
    except checkpoint.Damaged:
        return None


def _shapes(agent: OffPolicyAgent | OnPolicyAgent) -> Any:
    """The agent's state with shapes in place of arrays."""
    return jax.eval_shape(agent.init, jax.random.PRNGKey(0))


def _version(path: Path) -> tuple[int, int] | None:
    """Differs once the file has been replaced; costs no reading of it."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
