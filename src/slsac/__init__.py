"""slsac: safe reinforcement learning that controls the tail.

>>> from slsac import Agent
>>> agent = Agent("sl-sac", env="SafetyHopperVelocity-v1", seed=0, cost_limit=25.0)
>>> agent.learn(1_000_000)
"""

from typing import TYPE_CHECKING, Any

from slsac._version import __version__
from slsac.envs import check_safe_env, make_env

if TYPE_CHECKING:
    from slsac.api import Agent

    load = Agent.load

__all__ = ["Agent", "__version__", "check_safe_env", "load", "make_env"]


def __getattr__(name: str) -> Any:
    """The agent when it is first asked for: processes that only simulate need no jax."""
    if name in ("Agent", "load"):
        from slsac.api import Agent

        return Agent if name == "Agent" else Agent.load
    raise AttributeError(f"module 'slsac' has no attribute {name!r}")
