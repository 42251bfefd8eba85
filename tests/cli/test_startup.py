"""Commands that list things or read results start fast: they import neither JAX nor a simulator."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import slsac
from slsac.cli.parser import COMMANDS
from tests.support.recorded import make_run

SLOW = {"jax", "jaxlib", "equinox", "optax", "gymnasium", "mujoco", "safety_gymnasium"}


def imported_by(code: str, *arguments: str) -> set[str]:
    """Top-level packages in a new process after ``code`` has run."""
    last = "print(json.dumps([name.partition('.')[0] for name in sys.modules]))"
    done = subprocess.run(
        [sys.executable, "-c", f"import json, sys\n{code}\n{last}", *arguments],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(json.loads(done.stdout.splitlines()[-1]))


def imported_by_command(*arguments: str) -> set[str]:
    return imported_by(
        "from slsac.cli import main\n"
        "try:\n    code = main(sys.argv[1:])\n"
        "except SystemExit as ended:\n    code = ended.code\n"
        "assert code == 0",
        *arguments,
    )


@pytest.mark.parametrize("command", ["--help", "--version", "algos", "envs"])
def test_lists_import_no_array_library_at_all(command: str) -> None:
    assert not imported_by_command(command) & (SLOW | {"numpy", "rich", "yaml"})


def test_every_command_shows_its_help_without_importing_its_room() -> None:
    code = "\n".join(
        [
            "from slsac.cli import main",
            "for command in sys.argv[1:]:",
            "    try:",
            "        main([command, '--help'])",
            "    except SystemExit as ended:",
            "        assert ended.code == 0",
        ]
    )
    assert not imported_by(code, *COMMANDS) & (SLOW | {"numpy", "rich", "yaml"})


@pytest.mark.parametrize(
    "command", [["table"], ["plot", "--out", "curves.svg"], ["report", "--out", "report.html"]]
)
def test_results_are_read_without_jax(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for algo in ("sl-sac", "wcsac"):
        for seed in (0, 1):
            make_run(tmp_path / "runs" / algo / str(seed), algo, seed=seed)
    monkeypatch.chdir(tmp_path)
    name, *flags = command
    assert not imported_by_command(name, "runs", *flags) & SLOW


def test_a_trial_claims_its_cores_before_jax_counts_them() -> None:
    # JAX splits its sums by the cores that it sees, so the claim must come first.
    code = "import slsac.cli.parser, slsac.sweep.child"
    assert not imported_by(code) & (SLOW | {"numpy"})


def test_importing_the_package_imports_no_simulator() -> None:
    assert not imported_by("import slsac") & (SLOW | {"numpy"})


def test_the_package_has_its_public_names() -> None:
    assert slsac.load == slsac.Agent.load
    assert callable(slsac.make_env)
    assert callable(slsac.check_safe_env)
    assert set(slsac.__all__) <= set(dir(slsac))
    with pytest.raises(AttributeError, match="module 'slsac' has no attribute 'make'"):
        _ = slsac.make  # type: ignore[attr-defined]
