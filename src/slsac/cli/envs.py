"""``slsac envs``: the tasks, with one line each."""

from __future__ import annotations

import argparse

from slsac.cli.algos import print_list

HELP = "list the tasks"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It takes none."""


def run(options: argparse.Namespace) -> int:
    from slsac.tasks import list_envs

    print_list(dict(list_envs()))
    return 0
