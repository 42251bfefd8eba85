"""``slsac sweep-trial``: what a sweep starts for each of its trials."""

from __future__ import annotations

import argparse

HELP = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="for whoever looks at the list of processes")


def run(options: argparse.Namespace) -> int:
    from slsac.cli.parser import parse, run_command
    from slsac.sweep.child import prepare, take_job

    return run_command(parse(prepare(take_job())))
