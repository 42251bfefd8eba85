"""Tasks with rewards and costs, all behind the ``SafeEnv`` interface."""

from slsac.envs.check import check_safe_env
from slsac.envs.imports import import_installed
from slsac.envs.registry import Copies, copies_of, env_source, make_env, require_known, with_timeout
from slsac.envs.sources import for_certificate, for_evaluation, is_factory
from slsac.tasks import family, list_envs

__all__ = ["Copies", "check_safe_env", "copies_of", "env_source", "family",
           "for_certificate", "for_evaluation", "import_installed", "is_factory", "list_envs",
           "make_env", "require_known", "with_timeout"]  # fmt: skip
