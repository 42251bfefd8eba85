"""Flags that several commands share, and what they stand for."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any


def add_runs(parser: argparse.ArgumentParser) -> None:
    """The argument that `table`, `plot` and `report` share."""
    parser.add_argument("runs", nargs="+", type=Path, help="run directories, or folders above them")


def add_callbacks(parser: argparse.ArgumentParser) -> None:
    """The flags that `callbacks` reads."""
    parser.add_argument(
        "--keep-best", action="store_true",
        help="keep in RUN/best the policy with the highest return within the limit",
    )  # fmt: skip
    parser.add_argument(
        "--stop-at", type=float, metavar="RETURN",
        help="end when three evaluations in a row reach RETURN within the limit",
    )  # fmt: skip
    parser.add_argument(
        "--track", choices=["wandb"], help="also log to Weights & Biases (WANDB_MODE=offline)"
    )


def callbacks(options: argparse.Namespace) -> list[Any]:
    """The callbacks that the flags of `add_callbacks` ask for."""
    from slsac.training.callbacks import KeepBest, StopAt, WeightsAndBiases

    chosen: list[Any] = []
    if options.keep_best:
        chosen.append(KeepBest())
    if options.stop_at is not None:
        chosen.append(StopAt(options.stop_at))
    if options.track == "wandb":
        chosen.append(WeightsAndBiases())
    return chosen


def add_device(parser: argparse.ArgumentParser) -> None:
    """The flag that `slsac.compilation.use_device` reads."""
    parser.add_argument("--device", metavar="cpu|gpu[:N]", help="where to compute (JAX's choice)")


def add_trust(parser: argparse.ArgumentParser) -> None:
    """The flag for commands that open an env by what a run's files say."""
    parser.add_argument(
        "--trust-env", action="store_true",
        help="let the run's files name an env module in the working directory",
    )  # fmt: skip


def add_env_timeout(parser: argparse.ArgumentParser) -> None:
    """The flag for commands that train."""
    parser.add_argument(
        "--env-timeout", type=float, metavar="SECONDS",
        help="stop if a step or reset takes longer; the env runs in a process of its own",
    )  # fmt: skip


def say_if_edited(run: Path) -> None:
    """Say on stderr that figures are not of the run as it was trained."""
    from slsac.runs.config_file import read_identity
    from slsac.runs.layout import CONFIG

    if read_identity(run).edited:
        print(f"slsac: {run / CONFIG} was changed by hand since the run was made", file=sys.stderr)
