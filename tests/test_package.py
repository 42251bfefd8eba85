"""The wheel: what it holds, and that it works in a venv of its own.

Nothing is downloaded: the venv sees those of the packages here that the wheel's metadata ask for.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from slsac._version import __version__
from slsac.sweep.spec import experiments
from tests.support.paths import ROOT
from tests.support.sites import PRESENT, link_declared

ENV = '''
import gymnasium
import numpy as np

class Drift(gymnasium.Env):
    """A point that drifts away; beyond 1 each step costs 1."""
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.uniform(-0.1, 0.1)
        return np.array([self.place], np.float32), {}

    def step(self, action):
        self.place += 0.1 * float(action[0])
        cost = float(abs(self.place) > 1.0)
        return np.array([self.place], np.float32), self.place, False, False, {"cost": cost}

gymnasium.register("Drift-v0", Drift, max_episode_steps=50)
'''
SMALL = ["--warmup-steps", "200", "--batch-size", "32", "--replay-capacity", "1000"]


def run(*command: object, **options: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=600, **options
    )  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout + done.stderr
    return done  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    # Of a copy: setuptools leaves folders beside what it builds, and takes up those it finds.
    source = tmp_path_factory.mktemp("source")
    files = run("git", "ls-files", "-z", "src", cwd=ROOT).stdout.split("\0")
    for name in ["pyproject.toml", "README.md", "LICENSE", *filter(None, files)]:
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, source)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def fresh(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a venv with the wheel and the packages of the core."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=True)
    link_declared(site(folder), "slsac")
    run(folder / "bin" / "pip", "install", "--quiet", "--no-index", "--no-deps", wheel)
    return folder


def site(folder: Path) -> Path:
    return Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))


def test_the_wheel_holds_the_specs_the_templates_and_its_metadata(wheel: Path) -> None:
    assert wheel.name == f"slsac-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
        facts = opened.read(f"slsac-{__version__}.dist-info/METADATA").decode()
    assert {f"slsac/sweep/experiments/{name}.yaml" for name in experiments()} <= names
    assert {"slsac/py.typed", "slsac/report/published.csv"} <= names
    assert {"slsac/report/templates/report.html", "slsac/report/templates/report.js"} <= names
    assert all(name.startswith(("slsac/", f"slsac-{__version__}.dist-info/")) for name in names)
    for line in ("License-Expression: MIT", "Requires-Python: >=3.11", "Keywords: safe"):
        assert line in facts
    needed = [line for line in facts.splitlines() if line.startswith("Requires-Dist: ")]
    assert not [line for line in needed if "mujoco" in line and "safety" not in line]
    assert "Programming Language :: Python :: 3.13" in facts


def test_an_own_env_is_trained_and_evaluated_where_there_is_no_simulator(
    fresh: Path, tmp_path: Path
) -> None:
    (tmp_path / "drift.py").write_text(ENV)
    slsac = fresh / "bin" / "slsac"
    train = ["train", "--env", "drift:Drift-v0", "--steps", 500, "--run", "runs/drift", *SMALL]
    run(slsac, *train, cwd=tmp_path)
    told = run(slsac, "evaluate", "runs/drift", "--episodes", 3, "--json", "--trust-env",
               cwd=tmp_path)  # fmt: skip
    assert json.loads(told.stdout)["episodes"] == 3
    recorded = json.loads((tmp_path / "runs" / "drift" / "config.json").read_text())
    assert recorded["provenance"]["versions"]["mujoco"] is None
    listed = run(slsac, "sweep", "quick", "--dry-run", cwd=tmp_path).stdout
    assert "sl-sac/SafetyHopperVelocity-v1/seed0" in listed


def test_setup_installs_the_tasks_and_says_what_it_does(fresh: Path, tmp_path: Path) -> None:
    missing = subprocess.run(
        [fresh / "bin" / "slsac", "train", "--env", "SafetyPointGoal1-v0", "--run", "runs/goal"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert missing.returncode == 2
    assert missing.stderr.splitlines()[-1] == (
        "slsac: this task needs mujoco, which is not installed; run `slsac setup safety-gymnasium`"
    )
    # What the extra brings as it is here, and the package as a wheel: pip needs no index.
    link_declared(site(fresh), "slsac", "safety")
    wheels = tmp_path / "wheels"
    pack_installed("safety_gymnasium", wheels)
    offline = {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
    told = run(fresh / "bin" / "slsac", "setup", "safety-gymnasium", env=offline).stdout
    assert "pip install --no-deps safety-gymnasium==1.0.0" in told
    assert told.splitlines()[-1].startswith("the tasks of Safety-Gymnasium are ready")
    again = run(fresh / "bin" / "slsac", "setup", "safety-gymnasium", env=offline).stdout
    assert "safety-gymnasium 1.0.0 is here" in again
    code = (
        "from slsac import make_env\n"
        "env = make_env('SafetyCarButton1-v0')\n"
        "print(env.reset(0).shape, env.step([1.0, 1.0]).cost)"
    )
    assert run(fresh / "bin" / "python", "-c", code, cwd=tmp_path).stdout == "(88,) 0.0\n"


def pack_installed(package: str, folder: Path) -> None:
    """The installed files of a package as a wheel, which is a zip file with a name of its own."""
    folder.mkdir()
    (facts,) = PRESENT.glob(f"{package}-*.dist-info")
    version = facts.name.removeprefix(f"{package}-").removesuffix(".dist-info")
    with zipfile.ZipFile(folder / f"{package}-{version}-py3-none-any.whl", "w") as packed:
        for root in (PRESENT / package, facts):
            for path in root.rglob("*"):
                if path.is_file() and path.suffix != ".pyc":
                    packed.write(path, path.relative_to(PRESENT))
