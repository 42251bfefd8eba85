"""``slsac plot``: training curves as PNG, SVG or PDF."""

from __future__ import annotations

import argparse
from pathlib import Path

from slsac.cli.options import add_runs
from slsac.runs.layout import PROGRESS

HELP = "draw training curves"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_runs(parser)
    parser.add_argument("--out", required=True, help="file to write, .png, .svg or .pdf")
    parser.add_argument(
        "--of", nargs="+", metavar="NAME",
        help=f"what to draw (return cost): any name in {PROGRESS}, as in --of multiplier "
        "window_cvar reward_critic_loss",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    from slsac.report.curves import write_curves

    names = {} if options.of is None else {"names": options.of}
    write_curves(options.runs, Path(options.out), **names)
    print(f"curves are in {options.out}")
    return 0
