"""The command line; `slsac --help` lists the commands."""

from slsac.cli.main import main

__all__ = ["main"]
