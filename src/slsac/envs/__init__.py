"""Tasks with rewards and costs, all behind the ``SafeEnv`` interface."""

from slsac.envs.check import check_safe_env
from slsac.envs.gymnasium import duplicate_env
from slsac.envs.registry import env_source, family, list_envs, make_env

__all__ = ["check_safe_env", "duplicate_env", "env_source", "family", "list_envs", "make_env"]
