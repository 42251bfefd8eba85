"""Files of a run are replaced whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slsac.runs import layout


def test_interrupted_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    layout.write_atomically(path, b"old")

    def crash(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("os.replace", crash)
        with pytest.raises(KeyboardInterrupt):
            layout.write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    layout.write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
