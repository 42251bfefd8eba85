"""The algorithms: pure functions on pytrees, chosen by a configuration.

``off_policy`` holds SL-SAC and the baselines that are compositions of the same parts;
``on_policy`` holds PPO-Lagrangian and CPO.
"""

from __future__ import annotations

from slsac.algorithms.off_policy import agent as off_policy
from slsac.algorithms.on_policy import agent as on_policy
from slsac.config import Config, OffPolicyConfig
from slsac.types import EnvSpec


def build(config: Config, spec: EnvSpec) -> off_policy.OffPolicyAgent | on_policy.OnPolicyAgent:
    """The configured agent's functions; both kinds have init, predict, sample and update."""
    if isinstance(config, OffPolicyConfig):
        return off_policy.build(config, spec)
    return on_policy.build(config, spec)
