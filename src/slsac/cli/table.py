"""``slsac table``: the paper's Table 1 from run directories."""

from __future__ import annotations

import argparse
from pathlib import Path

from slsac.cli.options import add_runs

HELP = "the paper's Table 1 from runs, and the figures behind it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_runs(parser)
    parser.add_argument("--out", help="file to write; its ending says the format")
    parser.add_argument(
        "--format",
        choices=("terminal", "markdown", "latex", "csv"),
        help="format (by the file's ending, or terminal)",
    )


def run(options: argparse.Namespace) -> int:
    from slsac.report.table import render, summarise_runs, write_table

    if options.out:
        write_table(options.runs, Path(options.out), options.format)
        print(f"the table is in {options.out}")
    else:
        print(render(summarise_runs(options.runs), options.format or "terminal"), end="")
    return 0
