"""``slsac resume``: continue a run."""

from __future__ import annotations

import argparse
from pathlib import Path

from slsac.cli.options import add_callbacks, add_device, add_env_timeout, add_trust, callbacks
from slsac.errors import InvalidInput

HELP = "continue a run exactly where it stopped"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="run directory")
    add_device(parser)
    add_callbacks(parser)
    parser.add_argument("--steps", help="a new total number of steps")
    parser.add_argument(
        "--inexact", action="store_true", help="continue even if versions have changed"
    )
    add_trust(parser)
    add_env_timeout(parser)


def run(options: argparse.Namespace) -> int:
    from slsac.cli.progress import announce, train_to_end
    from slsac.compilation import prepare
    from slsac.config.overrides import with_overrides
    from slsac.display import Terminal
    from slsac.runs import config_file
    from slsac.runs.steps import completed_step, reached_step
    from slsac.training import launch

    folder = Path(options.run)
    config = config_file.read(folder).config
    if options.steps is not None:
        config = with_overrides(config, {"steps": options.steps})
    completed = completed_step(folder)
    if options.steps is not None and config.steps < completed:
        raise InvalidInput(
            f"steps is {config.steps}; {folder} is complete at step {completed}: pass --steps "
            f"above {completed} to train it further, or start a new run"
        )
    if completed and reached_step(folder) == 0:
        kept = (
            f"{folder} is complete at step {completed:,} and keeps no checkpoint: it can be "
            "evaluated, certified and exported, but not trained further"
        )
        if options.steps is not None:
            raise InvalidInput(f"steps is {config.steps}; {kept}")
        print(kept)
        return 0
    if completed >= config.steps:
        print(f"{folder} is complete at step {completed:,}; pass --steps N to train it further")
        return 0
    prepare(options.device)
    chosen = callbacks(options)
    display = Terminal(config.steps, config.cost_limit)
    try:
        trainer = launch.resume(
            folder,
            steps=options.steps,
            inexact=options.inexact,
            trust_env=options.trust_env,
            display=display,
            env_timeout=options.env_timeout,
        )
        announce(trainer, display)
        display.note(f"resuming at step {trainer.step:,}")
        return train_to_end(trainer, display, chosen)
    finally:
        display.close()
