"""Runs for the tests of tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.recorded import make_run


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """SL-SAC safe at 1,000; WCSAC safe at 900; SAC-Lag best but over the limit of 25."""
    folder = tmp_path / "runs"
    for algo, gained, paid in (("sl-sac", 1000, 10), ("wcsac", 900, 0), ("sac-lag", 2000, 60)):
        make_run(folder / algo, algo, returns=[gained] * 2, costs=[paid] * 2)
    return folder
