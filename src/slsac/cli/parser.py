"""The commands and their flags, put together."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from typing import Any, NoReturn, Protocol

from slsac._version import __version__
from slsac.cli import (
    algos,
    bench,
    certify,
    envs,
    evaluate,
    export,
    plot,
    report,
    resume,
    setup,
    sweep,
    sweep_trial,
    table,
    train,
)
from slsac.errors import InvalidInput, unknown_name


class Command(Protocol):
    """What a command's module holds."""

    HELP: str
    """One line for `slsac --help`; empty for a command that people do not type."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, options: argparse.Namespace) -> int:
        """Do the work and return the exit code."""
        ...


COMMANDS: dict[str, Command] = {
    "train": train,
    "resume": resume,
    "evaluate": evaluate,
    "certify": certify,
    "export": export,
    "table": table,
    "plot": plot,
    "report": report,
    "sweep": sweep,
    "bench": bench,
    "setup": setup,
    "algos": algos,
    "envs": envs,
    "sweep-trial": sweep_trial,
}


class Parser(argparse.ArgumentParser):
    """argparse, with errors of one line."""

    def error(self, message: str) -> NoReturn:
        if unknown := re.match(r"argument COMMAND: invalid choice: '(.*?)' \(", message):
            raise unknown_name("command", unknown[1], [n for n, c in COMMANDS.items() if c.HELP])
        if missing := re.fullmatch(r"the following arguments are required: (.*)", message):
            raise InvalidInput(f"missing: {missing[1]}; see `{self.prog} --help`")
        if wrong := re.fullmatch(r"argument --(\S+): invalid (int|float) value: (.*)", message):
            kind = {"int": "a whole number", "float": "a number"}[wrong[2]]
            raise InvalidInput(f"{wrong[1]} is {wrong[3]}; it must be {kind}")
        raise InvalidInput(message)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of one command."""
    for argument in arguments:
        if not _may_be_a_path(argument):
            raise InvalidInput(f"argument {argument!r} holds a character that no path can have")
    options, rest = _parser().parse_known_args(arguments)
    if options.command == "train":
        options.overrides = train.parse_overrides(rest)
    elif rest:
        raise InvalidInput(f"argument {rest[0]!r} is unknown; see `slsac {options.command} -h`")
    return options


def _may_be_a_path(text: str) -> bool:
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def run_command(options: argparse.Namespace) -> int:
    """Run the command that ``options`` are of and return its exit code."""
    return COMMANDS[options.command].run(options)


def _parser() -> Parser:
    parser = Parser(prog="slsac", description="Safe reinforcement learning that controls the tail.")
    parser.add_argument("--version", action="version", version=f"slsac {__version__}")
    _add_debug(parser)
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        # argparse leaves a command out of the list if it is not given the keyword `help`.
        listed: dict[str, Any] = {"help": command.HELP} if command.HELP else {}
        subparser = subparsers.add_parser(
            name, description=command.HELP, allow_abbrev=False, **listed
        )
        command.add_arguments(subparser)
        _add_debug(subparser)
    return parser


def _add_debug(parser: Parser) -> None:
    """The flag is `main`'s, which looks for it before anything is parsed."""
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
