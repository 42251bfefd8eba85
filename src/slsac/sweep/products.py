"""What a sweep makes of its finished trials: a table, curves and a report."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from slsac.errors import InvalidInput
from slsac.report.curves import write_curves
from slsac.report.html import write_report
from slsac.report.table import write_table
from slsac.runs.layout import EVALUATIONS


class Product(NamedTuple):
    write: Callable[[Sequence[Path], Path], object]
    files: tuple[str, ...]
    packages: tuple[str, ...] = ()
    """Optional packages that it needs in any case."""
    packages_for_seeds: tuple[str, ...] = ()
    """Those that it needs as well where there are several seeds."""


PRODUCTS = {
    "table": Product(
        write_table, ("table.md", "table.tex", "table.csv"), packages_for_seeds=("rliable",)
    ),
    "curves": Product(write_curves, ("curves.png", "curves.svg"), packages=("matplotlib",)),
    "report": Product(write_report, ("report.html",), packages_for_seeds=("rliable",)),
}


def require_packages(names: Iterable[str], seeds: int) -> None:
    """Raise InvalidInput unless every package for these products of ``seeds`` seeds is there."""
    for name in names:
        product = PRODUCTS[name]
        for package in product.packages + (product.packages_for_seeds if seeds > 1 else ()):
            if importlib.util.find_spec(package) is None:
                raise InvalidInput(
                    f"product {name!r} needs {package}; run `pip install 'slsac[report]'` or "
                    "take it out of the spec's products"
                )


def write_products(
    names: Iterable[str], runs: Sequence[Path], folder: Path, note: Callable[[str], None]
) -> None:
    """Write the products of finished ``runs``; files newer than the runs are left alone."""
    newest = max((run / EVALUATIONS).stat().st_mtime for run in runs)
    for name in names:
        product = PRODUCTS[name]
        for path in (folder / file for file in product.files):
            if not path.exists() or path.stat().st_mtime < newest:
                product.write(runs, path)
                note(f"wrote {path}")
