"""``slsac train``: begin a run. Any config field is a flag, as in ``--reward-critic.pairs 5``."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from slsac.cli.options import (
    add_callbacks,
    add_device,
    add_env_timeout,
    add_trust,
    callbacks,
)
from slsac.cli.progress import announce, train_to_end
from slsac.errors import InvalidInput

if TYPE_CHECKING:
    from slsac.config import Config
    from slsac.display import Terminal
    from slsac.training.launch import Trainer

HELP = "train an agent"
ALGO = "sl-sac-2"
"""The algorithm trained when --algo is not given."""
FLAGS = (
    "algo", "env", "steps", "seed", "seeds", "run", "overwrite", "from", "inexact", "init",
    "keep-replay", "keep-best", "stop-at", "track", "device", "env-timeout", "trust-env", "debug",
)  # fmt: skip
"""The command's own flags; all others are config fields."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Any config field is a flag too: --cost-limit 10, --reward-critic.pairs 5; "
        "docs/config.md lists them."
    )
    parser.add_argument("--algo", help=f"see `slsac algos` ({ALGO})")
    parser.add_argument("--env", help="see `slsac envs`")
    parser.add_argument("--steps", help="total environment steps (the algorithm's own)")
    parser.add_argument("--seed", help="seed of everything random")
    parser.add_argument(
        "--seeds", type=int, help="train this many seeds together (2 or more), from --seed up"
    )
    parser.add_argument("--run", help="run directory (runs/ALGO-ENV-SEED)")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing run")
    parser.add_argument(
        "--from", dest="source", type=Path, metavar="RUN",
        help="reuse RUN's steps until the multiplier moves; only --steps and when and how it moves "
        "may differ",
    )  # fmt: skip
    parser.add_argument(
        "--inexact", action="store_true", help="with --from: even if versions have changed"
    )
    parser.add_argument(
        "--init", type=Path, metavar="RUN",
        help="start from what RUN has learned, with its settings unless a flag changes them",
    )  # fmt: skip
    parser.add_argument(
        "--keep-replay", action="store_true", help="with --init: learn from RUN's transitions too"
    )
    add_callbacks(parser)
    add_device(parser)
    add_env_timeout(parser)
    add_trust(parser)


def parse_overrides(tokens: Sequence[str]) -> dict[str, str]:
    """``--a.b 1 --c=2`` as {"a.b": "1", "c": "2"}."""
    overrides = {}
    remaining = list(tokens)
    while remaining:
        flag = remaining.pop(0)
        if not flag.startswith("--"):
            raise InvalidInput(f"argument {flag!r} is unknown; flags begin with --")
        name, equals, value = flag[2:].partition("=")
        _refuse_misspelt(name)
        if not equals:
            if not remaining or remaining[0].startswith("--"):
                raise InvalidInput(f"--{name} has no value; write --{name} VALUE")
            value = remaining.pop(0)
        overrides[name] = value
    return overrides


def _refuse_misspelt(name: str) -> None:
    """Raise InvalidInput where ``name`` is nearest to one of `FLAGS`, but is none."""
    from slsac.config import OffPolicyConfig, OnPolicyConfig
    from slsac.config.overrides import field_names

    kinds = (OffPolicyConfig, OnPolicyConfig)
    fields = [field for kind in kinds for field in field_names(kind, optional_parts=True)]
    fields += [field.rpartition(".")[2] for field in fields]
    known = [*(field.replace("_", "-") for field in fields), *FLAGS]
    near = difflib.get_close_matches(name.replace("_", "-"), known, n=1)
    if near and near[0] in FLAGS and near[0] != name:
        raise InvalidInput(f"flag --{name} does not exist; did you mean --{near[0]}?")


def run(options: argparse.Namespace) -> int:
    from slsac.compilation import prepare
    from slsac.display import Terminal
    from slsac.training import branch, fine_tune, launch

    _require_sense(options)
    config = _config(options)
    folder = Path(options.run or f"runs/{_default_name(config, options)}")
    prepare(options.device)
    chosen = callbacks(options)
    display = Terminal(config.steps, config.cost_limit)
    try:
        if options.seeds is not None:
            return _train_seeds(config, folder, options, display)
        trainer: Trainer
        if options.source is not None:
            trainer = branch.start(
                config, folder, options.source,
                overwrite=options.overwrite, inexact=options.inexact, display=display,
                env_timeout=options.env_timeout,
            )  # fmt: skip
            display.note(f"the first {trainer.step:,} steps are those of {options.source}")
        elif options.init is not None:
            trainer = fine_tune.start(
                config, folder, options.init,
                keep_replay=options.keep_replay, overwrite=options.overwrite, display=display,
                env_timeout=options.env_timeout,
            )  # fmt: skip
            display.note(f"begins with what {options.init} has learned")
        else:
            trainer = launch.start(
                config, folder, overwrite=options.overwrite, display=display,
                env_timeout=options.env_timeout,
            )  # fmt: skip
        announce(trainer, display)
        return train_to_end(trainer, display, chosen)
    finally:
        display.close()


def _require_sense(options: argparse.Namespace) -> None:
    """Raise InvalidInput where flags contradict each other or do nothing."""
    if options.inexact and options.source is None:
        raise InvalidInput("--inexact has no effect without --from")
    if options.trust_env and options.init is None:
        raise InvalidInput("--trust-env has no effect without --init")
    if options.keep_replay and options.init is None:
        raise InvalidInput("--keep-replay has no effect without --init")
    if options.init is not None and options.source is not None:
        raise InvalidInput("--init and --from cannot be combined: --from repeats a run's beginning")
    alone = {"--from": options.source, "--init": options.init, "--keep-best": options.keep_best,
             "--stop-at": options.stop_at, "--track": options.track}  # fmt: skip
    for flag, value in alone.items():
        if options.seeds is not None and value not in (None, False):
            raise InvalidInput(f"--seeds and {flag} cannot be combined: {flag} is for one seed")
    if options.env is None and options.init is None:
        raise InvalidInput("--env is missing; see `slsac envs`")
    if options.run == "":
        raise InvalidInput("run is ''; it must be the name of a directory")


def _config(options: argparse.Namespace) -> Config:
    from slsac.config.overrides import with_overrides
    from slsac.config.presets import preset
    from slsac.envs import import_installed
    from slsac.training import fine_tune

    own_flags = {name: getattr(options, name) for name in ("algo", "env", "seed", "steps")}
    given = {name: value for name, value in own_flags.items() if value is not None}
    if options.init is not None:
        overrides = options.overrides | given
        config = fine_tune.config_from(options.init, overrides, keep_replay=options.keep_replay)
        if options.env is None and not options.trust_env:
            import_installed(config.env)
        return config
    config = preset(given.pop("algo", ALGO), given.pop("env"))
    return with_overrides(config, options.overrides | given)


def _default_name(config: Config, options: argparse.Namespace) -> str:
    name = f"{config.algo}-{config.env}-{config.seed}".replace("/", "-").replace(":", "-")
    return name if options.init is None else f"{name}-from-{options.init.name}"


def _train_seeds(
    config: Config, folder: Path, options: argparse.Namespace, display: Terminal
) -> int:
    from slsac.display import Labelled
    from slsac.training import cohort
    from slsac.training.failures import MACHINE_FAILURES

    together = cohort.start(
        config, options.seeds, folder,
        overwrite=options.overwrite, display=lambda seed: Labelled(display, f"seed {seed}"),
        env_timeout=options.env_timeout,
    )  # fmt: skip
    announce(together.trainers[0], display)
    runs = " ".join(str(trainer.run) for trainer in together.trainers)
    display.note(f"{options.seeds} seeds are trained together: {runs}")
    try:
        together.advance(config.steps)
        together.finish()
    except KeyboardInterrupt:
        display.note(
            f"stopped at step {together.step:,}; continue each: slsac resume RUN --inexact"
        )
        return 130
    except MACHINE_FAILURES as error:
        together.trainers[0].session.failures.of_machine(together.step, error)
    finally:
        together.close()
    display.note(f"results are in {runs}")
    return 0
