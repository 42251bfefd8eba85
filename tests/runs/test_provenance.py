"""What a run records of where it was trained: source, versions and processor."""

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


def test_another_source_or_processor_is_noticed() -> None:
    now = provenance.describe()
    assert provenance.differences(now, now) == []
    for name in ("source", "cpu", "backend", "cores", "xla_flags"):
        assert len(provenance.differences({**now, name: "another"}, now)) == 1
    older = {**now, "versions": {**now["versions"], "jax": "0.1"}}
    assert provenance.differences(older, now)[0].startswith("jax: 0.1 -> ")


def test_a_package_installed_since_decides_nothing() -> None:
    now = provenance.describe()
    without = {**now, "versions": {**now["versions"], "metadrive-simulator": None}}
    with_it = {**now, "versions": {**now["versions"], "metadrive-simulator": "0.4.3"}}
    assert provenance.differences(without, with_it) == []
    assert provenance.differences(with_it, without) == ["metadrive-simulator: 0.4.3 -> None"]


CPU_INFO = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 1
model name\t: AMD EPYC
cpu MHz\t\t: 2445.404
cache size\t: 512 KB
flags\t\t: fpu sse sse2 constant_tsc avx avx2

processor\t: 1
model name\t: of another core
"""


@pytest.mark.parametrize(
    ("before", "now", "same"),
    [
        ("avx avx2", "avx avx2 avx512f", False),
        ("512 KB", "1024 KB", False),
        ("model\t\t: 1", "model\t\t: 17", False),
        ("2445.404", "3100.000", True),
        ("constant_tsc", "constant_tsc ibpb", True),
        ("another core", "a third", True),
    ],
)
def test_processors_of_one_name_are_told_apart_by_what_decides_bits(
    tmp_path: Path, before: str, now: str, same: bool
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text(CPU_INFO)
    second.write_text(CPU_INFO.replace(before, now))
    assert second.read_text() != CPU_INFO
    names = [provenance.cpu_model(path) for path in (first, second)]
    assert (names[0] == names[1]) == same
    assert names[0].startswith("AMD EPYC, cpu family 25, model 1, instructions and cache ")
