"""``slsac setup``: what an optional part needs beyond pip."""

from __future__ import annotations

import argparse

HELP = "install what an optional part needs beyond pip"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("part", choices=["safety-gymnasium", "metadrive"], help="optional part")


def run(options: argparse.Namespace) -> int:
    from slsac.envs import metadrive_assets, safety_gymnasium_packages

    part = metadrive_assets if options.part == "metadrive" else safety_gymnasium_packages
    part.prepare(print)
    return 0
