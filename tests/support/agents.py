"""Small agents that learn a probe task in seconds."""

from __future__ import annotations

from typing import Any

from slsac.config import Config, OnPolicyConfig
from slsac.config.overrides import with_overrides
from slsac.config.presets import preset

SMALL: dict[str, Any] = {
    "policy.hidden": (32, 32),
    "reward_critic.hidden": (32, 32),
    "cost_critic.hidden": (32, 32),
    "policy.optimiser.learning_rate": 1e-3,
    "reward_critic.optimiser.learning_rate": 3e-3,
    "cost_critic.optimiser.learning_rate": 3e-3,
    "policy.temperature": 0.0,
    "polyak": 0.05,
    "warmup_steps": 200,
    "batch_size": 64,
    "replay_capacity": 10_000,
    "multiplier_warmup_steps": 0,
    "multiplier.initial": 0.0,
    "evaluate_every_epochs": 1_000,
    "final_evaluation_episodes": 2,
}
"""Settings under which a probe task is learned in seconds."""

SMALL_ON_POLICY: dict[str, Any] = {
    "policy.hidden": (16, 16),
    "reward_critic.hidden": (16, 16),
    "cost_critic.hidden": (16, 16),
    "policy.optimiser.learning_rate": 3e-3,
    "reward_critic.optimiser.learning_rate": 1e-2,
    "cost_critic.optimiser.learning_rate": 1e-2,
    "worker_processes": 0,
    "steps_per_epoch": 400,
    "batch_size": 50,
    "passes": 10,
    "multiplier.initial": 0.0,
    "multiplier.window": 40,
    "evaluate_every_epochs": 1_000,
    "final_evaluation_episodes": 2,
}
"""The same for on-policy agents."""


def small_config(env: str, algo: str = "sl-sac", **overrides: Any) -> Config:
    """A small agent; dots in field names are written as two underscores."""
    named = {name.replace("__", "."): value for name, value in overrides.items()}
    config = preset(algo, env)
    small = SMALL_ON_POLICY if isinstance(config, OnPolicyConfig) else SMALL
    return with_overrides(config, small | named)
