"""``slsac setup``: files that an optional part needs and its packages do not bring."""

from __future__ import annotations

import argparse

HELP = "fetch what an optional part needs besides its packages"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("part", choices=["metadrive"])


def run(options: argparse.Namespace) -> int:
    from slsac.envs.metadrive_assets import prepare

    prepare(print)
    return 0
