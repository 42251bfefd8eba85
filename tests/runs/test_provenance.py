"""The source digest that guards exact resume."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from slsac.runs import provenance


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the source to change."""
    copy = tmp_path / "slsac"
    shutil.copytree(provenance.PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    assert provenance.source_digest(copy) == provenance.source_digest()
    return copy


@pytest.mark.parametrize("file", ["report/table.py", "cli/main.py", "display.py", "video.py"])
def test_what_only_shows_or_reports_may_change(package: Path, file: str) -> None:
    (package / file).write_text((package / file).read_text() + "# another word\n")
    assert provenance.source_digest(package) == provenance.source_digest()


@pytest.mark.parametrize(
    "file",
    ["algorithms/multiplier.py", "training/replay.py", "envs/probe.py", "seeds.py", "langevin.py"],
)
def test_what_decides_bits_may_not(package: Path, file: str) -> None:
    (package / file).write_text((package / file).read_text() + "# another word\n")
    assert provenance.source_digest(package) != provenance.source_digest()


def test_every_room_that_training_imports_counts(package: Path) -> None:
    names = {path.name for path in package.iterdir() if path.name != "__pycache__"}
    shown = {"__init__.py", "__main__.py", "_version.py", "api.py", "bench", "certificate", "cli"}
    shown |= {"compilation.py", "display.py", "errors.py", "formatting.py", "py.typed", "report"}
    shown |= {"sweep", "video.py"}
    assert names == shown | set(provenance.SOURCE_THAT_DECIDES_BITS)
