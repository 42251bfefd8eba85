"""``slsac envs``: the tasks by kind, with one line each."""

from __future__ import annotations

import argparse

from slsac.errors import InvalidInput

HELP = "list the tasks"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", nargs="*", metavar="WORD", help="only tasks with all of these: slsac envs goal car"
    )


def run(options: argparse.Namespace) -> int:
    from slsac.tasks import LEFT_OUT, grouped_envs

    groups = grouped_envs(options.words)
    if not groups:
        raise InvalidInput(
            f"no task has {' and '.join(map(repr, options.words))} in its id or its line; "
            "`slsac envs` lists all"
        )
    width = max(len(env_id) for lines in groups.values() for env_id, _ in lines)
    for heading, lines in groups.items():
        print(f"{heading}:")
        for env_id, description in lines:
            print(f"  {env_id:<{width}}  {description}")
    if not options.words:
        print("Safety-Gymnasium tasks left out:")
        for which, why in LEFT_OUT.values():
            print(f"  {which}: {why}")
    return 0
