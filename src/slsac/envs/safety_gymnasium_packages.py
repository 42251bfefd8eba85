"""The packages behind Safety-Gymnasium's tasks: `slsac setup safety-gymnasium` installs them.

Safety-Gymnasium 1.0.0 demands a gymnasium, a MuJoCo and a pygame that Python 3.11 cannot install,
so pip's resolver refuses it. Its task classes run on current versions: the package is installed
without its requirements, and what it really needs is the extra ``safety`` of slsac.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable

from slsac.errors import Failed, InvalidInput

VERSION = "1.0.0"
"""The only version of safety-gymnasium whose tasks are known to be the published ones."""
REFERENCE_ENGINE = "3.1.6"
"""The MuJoCo that repeats the trajectories of the stack that the tasks were published on."""
FAST_ENGINES = (REFERENCE_ENGINE, "3.2.7")
"""Engines on which fast stepping is tested to give the original's bits; on 4.0.0 it does not."""
COMMAND = "slsac setup safety-gymnasium"
EXTRA = re.compile(r"""^(?P<requirement>[^;]+);(?P<marker>.*)extra\s*==\s*['"]safety['"]""")


def require_ready() -> None:
    """Raise InvalidInput, with what to run, unless the tasks' packages are here and fit.

    A newer engine than the reference is allowed; a warning is printed once per process.
    """
    engine, package = _version("mujoco"), _version("safety-gymnasium")
    for name, version in (("mujoco", engine), ("safety-gymnasium", package)):
        if version is None:
            raise InvalidInput(f"this task needs {name}, which is not installed; run `{COMMAND}`")
    assert engine is not None
    if package != VERSION:
        raise InvalidInput(f"safety-gymnasium is {package}; it must be {VERSION}; run `{COMMAND}`")
    if _ordered(engine) < _ordered(REFERENCE_ENGINE):
        raise InvalidInput(
            f"mujoco is {engine}; it must be at least {REFERENCE_ENGINE}; "
            f"run `pip install mujoco=={REFERENCE_ENGINE}`"
        )
    try:
        import mujoco  # noqa: F401
    except ImportError as error:  # pip can leave it in pieces where another version was before
        raise InvalidInput(
            f"mujoco {engine} cannot be imported: {error}; "
            f"run `pip install --force-reinstall mujoco=={engine}`"
        ) from error
    if engine != REFERENCE_ENGINE:
        _say_once(
            f"slsac: mujoco is {engine}, not the reference engine ({REFERENCE_ENGINE}): "
            "trajectories differ from the published ones"
        )


def has_fast_engine() -> bool:
    """Whether the engine is one that `slsac.envs.fast_navigation` is tested on."""
    import mujoco

    return mujoco.__version__ in FAST_ENGINES


def prepare(note: Callable[[str], None]) -> None:
    """Install what is missing with this Python's pip; ``note`` receives a line on each step."""
    engine = _version("mujoco")
    needed = _needed()
    if engine is not None and _ordered(engine) >= _ordered(REFERENCE_ENGINE):
        # Somebody's own simulator may need it: a later engine is theirs to choose.
        needed = [requirement for requirement in needed if not requirement.startswith("mujoco")]
        note(f"mujoco {engine} is here and stays")
        if engine != REFERENCE_ENGINE:
            note(
                f"mujoco {engine} is not the reference engine ({REFERENCE_ENGINE}): trajectories "
                "differ from the published ones"
            )
    _install(needed, note)
    if _version("safety-gymnasium") == VERSION:
        note(f"safety-gymnasium {VERSION} is here")
    else:
        _install(["--no-deps", f"safety-gymnasium=={VERSION}"], note)
    note("the tasks of Safety-Gymnasium are ready; `slsac envs` lists them")


def _needed() -> list[str]:
    """The requirements of the extra ``safety`` that hold for this Python."""
    from_metadata = importlib.metadata.requires("slsac") or []
    found = [match for text in from_metadata if (match := EXTRA.match(text))]
    return [
        match["requirement"].strip() for match in found if _holds_here(match["marker"].strip(" ()"))
    ]


def _holds_here(marker: str) -> bool:
    """Whether a marker on the Python version, the only kind that the extra has, is true here."""
    condition = re.search(r"""python_version\s*(<|>=)\s*['"]([\d.]+)['"]""", marker)
    if condition is None:
        return True
    here = sys.version_info[:2]
    bound = _ordered(condition[2])
    return here < bound if condition[1] == "<" else here >= bound


def _install(arguments: list[str], note: Callable[[str], None]) -> None:
    note(f"pip install {' '.join(arguments)}")
    if importlib.util.find_spec("pip") is None:
        raise InvalidInput(
            "this Python has no pip; run `python -m ensurepip`, then "
            f"`{COMMAND}`, or install it with your own tool: {' '.join(arguments)}"
        )
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input"]
    done = subprocess.run(
        [*command, "--disable-pip-version-check", *arguments], capture_output=True, text=True
    )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        reason = (lines or done.stderr.strip().splitlines() or ["no message"])[-1]
        raise Failed(f"`pip install {' '.join(arguments)}` failed: {reason}")
    importlib.invalidate_caches()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _ordered(version: str) -> tuple[int, ...]:
    """The leading numbers of a version, to compare it by."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


@functools.cache
def _say_once(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
