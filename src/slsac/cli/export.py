"""``slsac export``: a trained policy as ONNX or ``.npz``, to be played without slsac."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "write a trained policy as ONNX or .npz"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="run directory")
    parser.add_argument("file", metavar="FILE.onnx|FILE.npz", help="file to write")


def run(options: argparse.Namespace) -> int:
    from slsac.compilation import prepare
    from slsac.runs.export import TRIED, export

    prepare("cpu")
    exported = export(Path(options.run), Path(options.file))
    compared = (
        "not compared with the run's policy, since onnxruntime is not installed"
        if exported.error is None
        else f"at most {exported.error:.1g} from the run's policy on {TRIED:,} observations"
    )
    print(
        f"{options.file}: observation of {exported.observation_size} numbers -> action of "
        f"{exported.action_size}, in the env's units; {compared}"
    )
    return 0
