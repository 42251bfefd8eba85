"""Which packages the tasks need, and what is said where one is missing or another version."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from slsac.envs import safety_gymnasium_packages as packages
from tests.support.paths import ROOT
from tests.support.sites import SIMULATORS, link_packages, pretend_version

MAKE_TWO = """
import sys
from slsac.envs import make_env
try:
    for env_id in ("SafetyHopperVelocity-v1", "SafetyPointGoal1-v0"):
        env = make_env(env_id)
        env.reset(0)
        env.step([0.0] * env.spec.action_size)
except ValueError as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


def run(code: str, *folders: Path, isolated: bool = False) -> subprocess.CompletedProcess[str]:
    """Run ``code`` where ``folders`` come first on the path, or are all there is of packages."""
    paths = os.pathsep.join(map(str, [*folders, ROOT / "src"]))
    return subprocess.run(
        [sys.executable, *(["-S"] if isolated else []), "-c", code],
        env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


@pytest.mark.parametrize("missing", ["mujoco", "safety-gymnasium"])
def test_a_missing_package_is_one_line_with_the_command(missing: str, tmp_path: Path) -> None:
    site = link_packages(tmp_path / "site", without=(missing,))
    done = run(MAKE_TWO, site, isolated=True)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"InvalidInput: this task needs {missing}, which is not installed; "
        "run `slsac setup safety-gymnasium`"
    ]


def test_a_package_that_the_tasks_import_names_the_command_too(tmp_path: Path) -> None:
    site = link_packages(tmp_path / "site", without=("xmltodict",))
    done = run(MAKE_TWO, site, isolated=True)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()[-1:]
    assert "No module named 'xmltodict'; run `slsac setup safety-gymnasium`" in line


def test_without_any_simulator_the_package_and_its_commands_import(tmp_path: Path) -> None:
    site = link_packages(tmp_path / "site", without=SIMULATORS)
    code = "import slsac.api, slsac.cli.parser, slsac.bench.sections, slsac.video, slsac.training"
    done = run(code, site, isolated=True)
    assert done.returncode == 0, done.stderr


def test_a_later_engine_is_allowed_and_said_once(tmp_path: Path) -> None:
    done = run(MAKE_TWO, pretend_version(tmp_path, "mujoco", "3.3.0"))
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if "reference engine" in line]
    assert said == [
        "slsac: mujoco is 3.3.0, not the reference engine (3.1.6): "
        "trajectories differ from the published ones"
    ]


@pytest.mark.parametrize(
    ("package", "version", "said"),
    [
        ("mujoco", "3.0.1", "mujoco is 3.0.1; it must be at least 3.1.6; "
                            "run `pip install mujoco==3.1.6`"),
        ("safety-gymnasium", "0.4.0", "safety-gymnasium is 0.4.0; it must be 1.0.0; "
                                      "run `slsac setup safety-gymnasium`"),
    ],
)  # fmt: skip
def test_a_version_that_cannot_work_is_refused_in_one_line(
    package: str, version: str, said: str, tmp_path: Path
) -> None:
    done = run(MAKE_TWO, pretend_version(tmp_path, package, version))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"InvalidInput: {said}"


def test_an_engine_in_pieces_is_one_line_with_the_command(tmp_path: Path) -> None:
    (tmp_path / "mujoco").mkdir()
    (tmp_path / "mujoco" / "__init__.py").write_text("import mujoco._structs")
    done = run(MAKE_TWO, pretend_version(tmp_path, "mujoco", "3.1.6"))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "InvalidInput: mujoco 3.1.6 cannot be imported: No module named 'mujoco._structs'; "
        "run `pip install --force-reinstall mujoco==3.1.6`"
    )


def test_setup_installs_what_the_extra_lists() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = [text.partition(";")[0] for text in project["optional-dependencies"]["safety"]]
    here = "mujoco==3.2.7" if sys.version_info >= (3, 13) else "mujoco==3.1.6"
    assert packages._needed() == [here, *(text for text in listed if "mujoco" not in text)]


def test_the_core_has_no_simulator() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert not [text for text in project["dependencies"] if text.startswith(SIMULATORS)]
    pinned = (ROOT / "requirements" / "core.txt").read_text()
    assert not any(name in pinned for name in SIMULATORS)


@pytest.mark.parametrize(
    ("earlier", "later"), [("3.1.6", "3.2.0"), ("3.9.0", "3.10.0"), ("2.3.1.post1", "3.1.6")]
)
def test_versions_are_ordered_by_their_numbers(earlier: str, later: str) -> None:
    assert packages._ordered(earlier) < packages._ordered(later)
