"""Which modules an env id brings in: ``module:Id-v0`` names the one that registers the env.

A person may name a module of the working directory. A run's files may name installed ones only: a
folder from a stranger must not run code of its own.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import os
import sys
from collections.abc import Iterator

from slsac.errors import InvalidInput, env_failure


def import_named(env_id: str) -> None:
    """Import the module that an id names, from the working directory if it is not installed."""
    module = _module_of(env_id)
    if module is None or _imported(env_id, module):
        return
    sys.path.append(os.getcwd())  # where a user's module is; a console script does not add it
    if not _imported(env_id, module):
        raise InvalidInput(
            f"env {env_id!r}: module {module!r} cannot be imported: ModuleNotFoundError: it is "
            "neither installed nor in the working directory"
        )


def import_installed(env_id: str) -> None:
    """Import the module that a run's files name. Raise InvalidInput unless it is installed."""
    module = _module_of(env_id)
    if module is None:
        return
    with _without_working_directory():
        if not _imported(env_id, module):
            raise InvalidInput(
                f"env {env_id!r} is what the run's files name, and module {module!r} is not "
                "installed; pass --trust-env (trust_env=True) to import it from the working "
                "directory"
            )


def needs_trust(env_id: str) -> bool:
    """Whether `import_installed` would refuse an env that training has imported."""
    module, colon, _ = env_id.rpartition(":")
    if not colon or env_id.startswith("custom:"):
        return False
    with _without_working_directory():
        return importlib.machinery.PathFinder.find_spec(module.partition(".")[0]) is None


def _module_of(env_id: str) -> str | None:
    """The module that is still to be imported for an id; None where there is none."""
    module, colon, _ = env_id.rpartition(":")
    known = not colon or module in sys.modules or env_id.startswith("custom:")
    return None if known else module


def _imported(env_id: str, module: str) -> bool:
    """Import ``module``; False where there is no such module."""
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if f"{module}.".startswith(f"{error.name}."):
            return False  # it, or a package that it is said to be in
        raise _broken(env_id, module, error) from error
    except (Exception, SystemExit) as error:
        raise _broken(env_id, module, error) from error
    return True


def _broken(env_id: str, module: str, error: BaseException) -> InvalidInput:
    return InvalidInput(
        f"env {env_id!r}: module {module!r} cannot be imported: {env_failure(error)}"
    )


@contextlib.contextmanager
def _without_working_directory() -> Iterator[None]:
    before = list(sys.path)
    sys.path[:] = [path for path in before if path not in ("", os.getcwd())]
    try:
        yield
    finally:
        sys.path[:] = before
