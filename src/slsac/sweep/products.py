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


class Product(NamedTuple):
    write: Callable[[Sequence[Path], Path], object]
    files: tuple[str, ...]
    packages: tuple[str, ...] = ()
    """Optional packages that it needs."""


PRODUCTS = {
    "table": Product(write_table, ("table.md", "table.tex", "table.csv")),
    "curves": Product(write_curves, ("curves.png", "curves.svg"), packages=("matplotlib",)),
    "report": Product(write_report, ("report.html",)),
}


def require_packages(names: Iterable[str]) -> None:
    """Raise InvalidInput unless every package for these products is there."""
    for name in names:
        for package in PRODUCTS[name].packages:
            if importlib.util.find_spec(package) is None:
                raise InvalidInput(
                    f"product {name!r} needs {package}; run `pip install 'slsac[report]'` or "
                    "take it out of the spec's products"
                )


def write_products(
    names: Iterable[str], runs: Sequence[Path], folder: Path, note: Callable[[str], None]
) -> None:
    """Write the products of finished ``runs``, in place of any that are there."""
    for name in names:
        product = PRODUCTS[name]
        for path in (folder / file for file in product.files):
            product.write(runs, path)
            note(f"wrote {path}")
