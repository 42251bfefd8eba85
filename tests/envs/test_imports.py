"""A run's files name an env; they must not bring code of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slsac.cli import main
from slsac.envs.imports import import_installed, import_named, needs_trust
from slsac.errors import InvalidInput
from slsac.training import launch
from tests.support.runs import quick_config

MODULE = """
import pathlib
import gymnasium
pathlib.Path(__file__).with_name("was-here").touch()
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with a module, on the path as for ``python -m``."""
    (tmp_path / "pwn.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), *sys.path])
    yield tmp_path
    sys.modules.pop("pwn", None)


def test_a_module_of_the_working_directory_is_not_imported_on_a_files_word(here: Path) -> None:
    before = list(sys.path)
    with pytest.raises(InvalidInput, match=r"module 'pwn' is not installed; pass --trust-env"):
        import_installed("pwn:X-v0")
    assert not (here / "was-here").exists()
    assert sys.path == before


def test_it_does_not_stand_in_for_an_installed_one(here: Path) -> None:
    (here / "pwn.py").rename(here / "wave.py")  # of the standard library, and not imported yet
    sys.modules.pop("wave", None)
    import_installed("wave:X-v0")
    assert not (here / "was-here").exists()


def test_a_person_may_name_it(here: Path) -> None:
    import_named("pwn:X-v0")
    assert (here / "was-here").exists()


def test_a_module_that_fails_is_one_line(here: Path) -> None:
    (here / "pwn.py").write_text("import sys\nsys.exit(0)\n")
    with pytest.raises(InvalidInput, match="'pwn' cannot be imported: SystemExit: 0"):
        import_named("pwn:X-v0")


@pytest.mark.parametrize("command", ["evaluate", "certify", "resume"])
def test_commands_on_a_strangers_run_import_nothing_of_it(
    here: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    launch.start(quick_config(), here / "run").close()
    config = here / "run" / "config.json"
    config.write_text(config.read_text().replace('"ProbeChoice-v0"', '"pwn:X-v0"'))
    os.rename(here / "pwn.py", here / "run" / "pwn.py")
    os.chdir(here / "run")
    assert main([command, "."]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (here / "run" / "was-here").exists()


def test_running_as_a_module_leaves_the_working_directory_out(here: Path) -> None:
    (here / "rich.py").write_text(MODULE)
    done = subprocess.run(
        [sys.executable, "-m", "slsac", "table", "nothing"], capture_output=True, text=True
    )
    assert done.returncode == 2, done.stderr
    assert not (here / "was-here").exists()


@pytest.mark.parametrize("name", ["episodes.jsonl", "checkpoints"])
def test_a_run_with_links_is_not_resumed(tmp_path: Path, name: str) -> None:
    run = tmp_path / "run"
    launch.start(quick_config(), run).close()
    os.rename(run / name, tmp_path / "elsewhere")
    (run / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidInput, match="is a link"):
        launch.resume(run)


def test_only_a_module_of_the_working_directory_needs_trust(here: Path) -> None:
    (here / "nearby.py").write_text("")
    assert needs_trust("nearby:Task-v0")
    assert not needs_trust("gymnasium:Pendulum-v1")
    assert not needs_trust("custom:Mine")
