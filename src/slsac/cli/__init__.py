"""The command line; `slsac --help` lists the commands. Each has a module here of its name.

A command's module imports what it needs when it runs, so that `slsac --help` and `slsac table` do
not wait for JAX.
"""

from slsac.cli.main import main

__all__ = ["main"]
