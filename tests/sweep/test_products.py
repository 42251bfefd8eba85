"""What a sweep writes when its trials are done."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from slsac.cli import main
from slsac.sweep import spec as grid
from slsac.sweep.products import write_products
from tests.support.recorded import make_run
from tests.support.sweeps import SMALL_SPEC, write_spec


def test_products_are_written_once_the_trials_are_done(tmp_path: Path) -> None:
    spec = grid.parse(SMALL_SPEC | {"products": ["table", "curves", "report"]})
    trials = grid.expand(spec, tmp_path)
    for trial in trials:
        make_run(trial.run, "sac-lag", seed=trial.config.seed)
    told: list[str] = []
    write_products(spec.products, [trial.run for trial in trials], tmp_path, told.append)
    names = ["table.md", "table.tex", "table.csv", "curves.png", "curves.svg", "report.html"]
    assert told == [f"wrote {tmp_path / name}" for name in names]
    assert "| 200.0 ± 0.0 |" in (tmp_path / "table.md").read_text()
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "2 runs of 1 algorithm on 1 task" in (tmp_path / "report.html").read_text()
    # What a killed sweep left, or one of other seeds, does not stay.
    (tmp_path / "table.md").write_text("| 200")
    write_products(spec.products, [trials[0].run], tmp_path, told.append)
    assert "Means over 1 seed " in (tmp_path / "table.md").read_text()


@pytest.mark.parametrize(("product", "package"), [("curves", "matplotlib")])
def test_what_products_need_is_asked_for_before_training(
    tmp_path: Path,
    product: str,
    package: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    spec = write_spec(tmp_path, products=[product])
    assert main(["sweep", str(spec), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert f"product {product!r} needs {package}; run `pip install 'slsac[report]'`" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()
