"""``slsac report``: everything about a set of runs in one HTML file."""

from __future__ import annotations

import argparse
from pathlib import Path

from slsac.cli.options import add_runs

HELP = "write everything about runs into one offline HTML file"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_runs(parser)
    parser.add_argument("--out", default="report.html", help="file to write (%(default)s)")


def run(options: argparse.Namespace) -> int:
    from slsac.report.html import write_report

    write_report(options.runs, Path(options.out))
    print(f"the report is in {options.out}; it is one file and needs no network")
    return 0
