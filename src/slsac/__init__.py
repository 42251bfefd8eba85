"""slsac: safe reinforcement learning that controls the tail.

>>> from slsac import Agent
>>> agent = Agent("sl-sac", env="SafetyHopperVelocity-v1", seed=0, cost_limit=25.0)
>>> agent.learn(1_000_000)
"""

from slsac._version import __version__
from slsac.api import Agent
from slsac.envs import check_safe_env, make_env

load = Agent.load

__all__ = ["Agent", "__version__", "check_safe_env", "load", "make_env"]
