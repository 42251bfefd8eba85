"""slsac: safe reinforcement learning that controls the tail.

>>> from slsac import Agent
>>> agent = Agent("sl-sac", env="SafetyHopperVelocity-v1", seed=0, cost_limit=25.0)
>>> agent.learn(1_000_000)
"""

from typing import TYPE_CHECKING, Any

from slsac._version import __version__

if TYPE_CHECKING:
    from slsac.api import Agent
    from slsac.envs import check_safe_env, make_env

    load = Agent.load

__all__ = ["Agent", "__version__", "check_safe_env", "load", "make_env"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the command line's help needs no simulator, and
    a process that only simulates needs no JAX."""
    if name in ("Agent", "load"):
        from slsac.api import Agent

        return Agent if name == "Agent" else Agent.load
    if name in ("check_safe_env", "make_env"):
        from slsac import envs

        return getattr(envs, name)
    raise AttributeError(f"module 'slsac' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
