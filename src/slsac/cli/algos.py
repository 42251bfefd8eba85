"""``slsac algos``: the algorithms, with one line each."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

HELP = "list the algorithms"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """This command has no arguments."""


def run(options: argparse.Namespace) -> int:
    from slsac.config.presets import ALGORITHMS

    print_list({name: algorithm.description for name, algorithm in ALGORITHMS.items()})
    return 0


def print_list(descriptions: Mapping[str, str]) -> None:
    """Print a line for each name, with the descriptions below each other."""
    width = max(map(len, descriptions))
    for name, description in descriptions.items():
        print(f"{name:<{width}}  {description}")
