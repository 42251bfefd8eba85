"""The command line. Thin: parse, call one function, print.

Any config field is a flag of ``slsac train``: ``--cost-limit 10``, ``--reward-critic.pairs 5``.
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from slsac._version import __version__
from slsac.bench import SECTIONS
from slsac.errors import Failed, InvalidInput, TrainingFailed

if TYPE_CHECKING:
    # Commands import what they need: `slsac algos` must not wait for JAX.
    from slsac.config import Config
    from slsac.display import Terminal
    from slsac.training.launch import Trainer

Command = Callable[[argparse.Namespace], int]
TRAIN_SWITCHES = ("overwrite", "inexact")
"""Flags of `slsac train` that take no value."""


class Parser(argparse.ArgumentParser):
    """argparse, with errors of one line."""

    def error(self, message: str) -> NoReturn:
        raise InvalidInput(message)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit code."""
    try:
        options, rest = _parser().parse_known_args(arguments)
        if rest and options.command != "train":
            raise InvalidInput(f"argument {rest[0]!r} is unknown; see `slsac {options.command} -h`")
        if options.command == "train":
            options.overrides = parse_overrides(rest, TRAIN_SWITCHES)
        if options.command in ("train", "resume", "evaluate", "bench", "certify"):
            from slsac.compilation import use_cache

            use_cache()
        run: Command = options.run_command
        return run(options)
    except InvalidInput as error:
        print(f"slsac: {error}", file=sys.stderr)
        return 2
    except TrainingFailed as error:
        print(f"slsac: training stopped: {error}", file=sys.stderr)
        return 1
    except Failed as error:
        print(f"slsac: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("slsac: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 1
    except OSError as error:
        print(f"slsac: {error}", file=sys.stderr)
        return 1


def parse_overrides(tokens: Sequence[str], switches: Sequence[str] = ()) -> dict[str, str]:
    """``--a.b 1 --c=2`` as {"a.b": "1", "c": "2"}.

    Args:
        switches: flags without a value, which a misspelt one may have been meant for.
    """
    overrides = {}
    remaining = list(tokens)
    while remaining:
        flag = remaining.pop(0)
        if not flag.startswith("--"):
            raise InvalidInput(f"argument {flag!r} is unknown; flags begin with --")
        name, equals, value = flag[2:].partition("=")
        if not equals:
            if not remaining or remaining[0].startswith("--"):
                near = difflib.get_close_matches(name, switches, n=1)
                raise InvalidInput(
                    f"flag --{name} does not exist; did you mean --{near[0]}?"
                    if near
                    else f"--{name} has no value; write --{name} VALUE"
                )
            value = remaining.pop(0)
        overrides[name] = value
    return overrides


def train(options: argparse.Namespace) -> int:
    from slsac.config.overrides import with_overrides
    from slsac.config.presets import preset
    from slsac.display import Terminal
    from slsac.training import branch, launch

    if options.inexact and options.source is None:
        raise InvalidInput("--inexact has no effect without --from")
    overrides = options.overrides | {
        name: getattr(options, name)
        for name in ("seed", "steps")
        if getattr(options, name) is not None
    }
    config = with_overrides(preset(options.algo, options.env), overrides)
    name = f"{config.algo}-{config.env}-{config.seed}".replace("/", "-").replace(":", "-")
    if options.run == "":
        raise InvalidInput("run is ''; it must be the name of a directory")
    run = Path(options.run or f"runs/{name}")
    display = Terminal(config.steps, config.cost_limit)
    try:
        if options.seeds is not None:
            if options.source is not None:
                raise InvalidInput("--seeds and --from do not go together: a branch has one seed")
            return _train_seeds(config, options.seeds, run, options.overwrite, display)
        trainer: Trainer
        if options.source is not None:
            trainer = branch.start(
                config, run, options.source,
                overwrite=options.overwrite, inexact=options.inexact, display=display,
            )  # fmt: skip
            display.note(f"the first {trainer.step:,} steps are those of {options.source}")
        else:
            trainer = launch.start(config, run, overwrite=options.overwrite, display=display)
        _announce(trainer, display.note)
        return _train_to_end(trainer, display)
    finally:
        display.close()


def _train_seeds(
    config: Config, seeds: int, folder: Path, overwrite: bool, display: Terminal
) -> int:
    from slsac.display import Labelled
    from slsac.training import cohort

    together = cohort.start(
        config, seeds, folder,
        overwrite=overwrite, display=lambda seed: Labelled(display, f"seed {seed}"),
    )  # fmt: skip
    _announce(together.trainers[0], display.note)
    runs = " ".join(str(trainer.run) for trainer in together.trainers)
    display.note(f"{seeds} seeds are trained together: {runs}")
    try:
        together.advance(config.steps)
        together.finish()
    except KeyboardInterrupt:
        display.note(f"stopped at step {together.step:,}; continue each: slsac resume --inexact")
        return 130
    except OSError as error:
        together.trainers[0].records.fail(f"{error} at step {together.step}", error)
    finally:
        together.close()
    display.note(f"results are in {runs}")
    return 0


def resume(options: argparse.Namespace) -> int:
    from slsac.config.overrides import with_overrides
    from slsac.display import Terminal
    from slsac.runs import config_file
    from slsac.runs.steps import completed_step
    from slsac.training import launch

    run = Path(options.run)
    config, _, _ = config_file.read(run)
    if options.steps is not None:
        config = with_overrides(config, {"steps": options.steps})
    completed = completed_step(run)
    if completed >= config.steps:
        print(f"{run} is complete at step {completed:,}; pass --steps N to train on")
        return 0
    display = Terminal(config.steps, config.cost_limit)
    try:
        trainer = launch.resume(run, steps=options.steps, inexact=options.inexact, display=display)
        _announce(trainer, display.note)
        display.note(f"resuming at step {trainer.step:,}")
        return _train_to_end(trainer, display)
    finally:
        display.close()


def _announce(trainer: Trainer, note: Callable[[str], None]) -> None:
    from slsac.stats.bounds import discounted_cost_limit

    config, spec = trainer.config, trainer.spec
    discounted = discounted_cost_limit(config.cost_limit, config.cost_critic.discount, spec.horizon)
    note(
        f"{config.algo} on {config.env}, seed {config.seed}, {config.steps:,} steps; "
        f"observations {spec.observation_size}, actions {spec.action_size}, "
        f"episodes of up to {spec.horizon} steps"
    )
    note(
        f"cost limit {config.cost_limit:g} per episode, undiscounted ({discounted:.4g} discounted "
        f"at {config.cost_critic.discount:g}); tail fraction {config.tail_fraction:g}; "
        f"run directory {trainer.run}"
    )
    note(trainer.schedule)


def _train_to_end(trainer: Trainer, display: Terminal) -> int:
    try:
        trainer.advance(trainer.config.steps)
        if trainer.config.final_evaluation_episodes:
            display.note(f"evaluating {trainer.config.final_evaluation_episodes} episodes")
        trainer.finish()
    except KeyboardInterrupt:
        display.note(f"stopped at step {trainer.step:,}; continue: slsac resume {trainer.run}")
        return 130
    except OSError as error:
        trainer.records.fail(f"{error} at step {trainer.step}", error)
    finally:
        trainer.close()
    display.note(
        f"results are in {trainer.run}: config.json, progress.jsonl, episodes.jsonl, "
        f"evaluations.jsonl, policy.safetensors; look again with `slsac evaluate {trainer.run}`"
    )
    return 0


def evaluate(options: argparse.Namespace) -> int:
    from slsac.api import Agent
    from slsac.formatting import sentence
    from slsac.runs.steps import trained_steps
    from slsac.stats.summary import as_record, summarise

    if options.video_episodes is not None and not options.video:
        raise InvalidInput("--video-episodes has no effect without --video")
    agent = Agent.load(options.run)
    if options.video:
        _write_video(agent, options)
    result = agent.evaluate(
        options.episodes, seed=options.seed, deterministic=not options.stochastic
    )
    config = agent.config
    summary = summarise(result, config.cost_limit, config.tail_fraction)
    about = {
        "run": str(options.run),
        "algo": config.algo,
        "env": config.env,
        "trained_steps": trained_steps(Path(options.run)),
        "actions": "sampled" if options.stochastic else "deterministic",
        "seed": config.seed if options.seed is None else options.seed,
    }
    if options.json:
        print(json.dumps({**about, **summary, **as_record(result)}))
    else:
        print(
            f"{config.algo} on {config.env} after {about['trained_steps']:,} steps, "
            f"{about['actions']} actions: {sentence(summary)}"
        )
    agent.close()
    return 0


def _write_video(agent: Any, options: argparse.Namespace) -> None:
    from slsac.video import NoVideo

    try:
        asked = {} if options.video_episodes is None else {"episodes": options.video_episodes}
        frames = agent.video(options.video, seed=options.seed, **asked)
        print(f"slsac: {options.video} has {frames} frames", file=sys.stderr)
    except NoVideo as problem:
        # The figures are what was asked for first; a machine that cannot draw still gives them.
        print(f"slsac: {problem}", file=sys.stderr)


def table(options: argparse.Namespace) -> int:
    from slsac.report.table import render, summarise_runs, write_table

    runs = [Path(run) for run in options.runs]
    if options.out:
        write_table(runs, Path(options.out), options.format)
        print(f"the table is in {options.out}")
    else:
        print(render(summarise_runs(runs), options.format or "terminal"), end="")
    return 0


def plot(options: argparse.Namespace) -> int:
    from slsac.report.curves import write_curves

    asked = {} if options.of is None else {"names": options.of}
    write_curves([Path(run) for run in options.runs], Path(options.out), **asked)
    print(f"curves are in {options.out}")
    return 0


def report(options: argparse.Namespace) -> int:
    from slsac.report.html import write_report

    write_report([Path(run) for run in options.runs], Path(options.out))
    print(f"the report is in {options.out}; it is one file and needs no network")
    return 0


def sweep(options: argparse.Namespace) -> int:
    from slsac.sweep.command import run_sweep

    return run_sweep(options)


def setup(options: argparse.Namespace) -> int:
    from slsac.envs.metadrive_assets import prepare

    prepare(print)
    return 0


def certify(options: argparse.Namespace) -> int:
    from slsac.certificate import certify as certificate
    from slsac.display import counter

    run = Path(options.run)
    base = certificate.base_of(Path(options.out)) if options.out else None
    with counter() as tick:
        made, played = certificate.certify(
            run,
            options.episodes,
            deterministic=not options.stochastic,
            confidence=options.confidence,
            seed=options.seed,
            max_step_cost=options.max_step_cost,
            tick=tick,
        )
    page = certificate.write(made, played, run, base)
    print(certificate.text(made))
    print(f"\nwritten to {page}, and beside it the same as JSON and the raw episodes")
    return 0


def algos(options: argparse.Namespace) -> int:
    from slsac.config.presets import ALGORITHMS

    width = max(map(len, ALGORITHMS))
    for name, algorithm in ALGORITHMS.items():
        print(f"{name:<{width}}  {algorithm.description}")
    return 0


def envs(options: argparse.Namespace) -> int:
    from slsac.envs import list_envs

    rows = list_envs()
    width = max(len(name) for name, _ in rows)
    for name, description in rows:
        print(f"{name:<{width}}  {description}")
    return 0


def bench(options: argparse.Namespace) -> int:
    from slsac.bench.command import run_bench

    return run_bench(options)


def _parser() -> Parser:
    parser = Parser(prog="slsac", description="Safe reinforcement learning that controls the tail.")
    parser.add_argument("--version", action="version", version=f"slsac {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(
        name: str, run: Callable[[argparse.Namespace], int], text: str, **more: Any
    ) -> Parser:
        made = commands.add_parser(name, help=text, description=text, allow_abbrev=False, **more)
        made.set_defaults(run_command=run)
        return made

    made = command(
        "train", train, "train an agent",
        epilog="Any config field is a flag too: --cost-limit 10, --reward-critic.pairs 5; "
        "docs/config.md lists them.",
    )  # fmt: skip
    made.add_argument("--algo", default="sl-sac", help="see `slsac algos` (%(default)s)")
    made.add_argument("--env", required=True, help="see `slsac envs`")
    made.add_argument("--steps", help="environment steps in all (the algorithm's own)")
    made.add_argument("--seed", help="of everything random")
    made.add_argument("--seeds", type=int, help="train this many seeds together, from --seed on")
    made.add_argument("--run", help="run directory (runs/ALGO-ENV-SEED)")
    made.add_argument("--overwrite", action="store_true", help="replace a run that is there")
    made.add_argument("--from", dest="source", type=Path, metavar="RUN",
                      help="take the steps before the multiplier moves from a run that differs in "
                      "nothing else")  # fmt: skip
    made.add_argument("--inexact", action="store_true",
                      help="with --from: although versions changed")  # fmt: skip

    made = command("resume", resume, "continue a run exactly where it stopped")
    made.add_argument("run")
    made.add_argument("--steps", help="a new total number of steps")
    made.add_argument("--inexact", action="store_true", help="go on although versions changed")

    made = command("evaluate", evaluate, "play seeded episodes with a trained policy")
    made.add_argument("run")
    made.add_argument("--episodes", type=int, default=30, help="how many (%(default)s)")
    made.add_argument("--seed", type=int, help="of the episodes (the run's own)")
    made.add_argument("--stochastic", action="store_true", help="sample actions")
    made.add_argument("--json", action="store_true", help="everything, on one line")
    made.add_argument("--video", metavar="FILE.mp4", help="also film the first episodes")
    made.add_argument("--video-episodes", type=int, help="how many of them (1)")

    made = command("bench", bench, "measure this machine: training, update, tasks, a peer")
    made.add_argument("--algos", nargs="+", default=["sl-sac", "sac-lag"])
    made.add_argument("--env", default="SafetyAntVelocity-v1")
    made.add_argument("--rounds", type=int, default=5, help="turns that each subject takes")
    made.add_argument("--steps", type=int, default=120, help="training steps in a round")
    made.add_argument("--only", nargs="+", choices=SECTIONS, help="some sections (all)")
    made.add_argument("--peer", choices=("omnisafe", "sbx"), help="train it too, in turns")
    made.add_argument("--peer-python", type=Path, help="the Python of the peer's environment")
    made.add_argument("--json", type=Path, help="write the figures and the machine here")
    made.add_argument("--page", type=Path, help="Markdown page whose tables to replace")

    made = command("table", table, "the paper's Table 1 from runs, and the figures behind it")
    made.add_argument("runs", nargs="+", help="run directories, or folders above them")
    made.add_argument("--out", help="file to write; its ending says the format")
    made.add_argument("--format", choices=("terminal", "markdown", "latex", "csv"))

    made = command("plot", plot, "draw training curves")
    made.add_argument("runs", nargs="+", help="run directories, or folders above them")
    made.add_argument("--out", required=True, help="file to write, .png or .svg")
    made.add_argument(
        "--of", nargs="+", metavar="NAME",
        help="what to draw (return cost): any name in progress.jsonl, as in --of multiplier "
        "window_cvar reward_critic_loss",
    )  # fmt: skip

    made = command("report", report, "write everything about runs into one offline HTML file")
    made.add_argument("runs", nargs="+", help="run directories, or folders above them")
    made.add_argument("--out", default="report.html", help="file to write (report.html)")

    made = command("sweep", sweep, "train a grid of algorithms, tasks and seeds")
    made.add_argument("spec", type=Path, help="YAML file; see experiments/")
    made.add_argument("--out", type=Path, help="folder of the trials (runs/NAME)")
    made.add_argument("--backend", choices=("local", "ray"), default="local")
    made.add_argument("--workers", type=int, help="trials at once (as many as there is room for)")
    made.add_argument("--retries", type=int, default=3, help="of a trial killed without progress")
    made.add_argument("--inexact", action="store_true", help="go on although versions changed")
    made.add_argument("--address", help="of a running Ray cluster (RAY_ADDRESS, or a new one here)")
    made.add_argument("--gpus-per-trial", type=float, default=0.0, help="ray only")
    made.add_argument("--dry-run", action="store_true", help="list trials and estimated time")

    made = command("setup", setup, "fetch what an optional part needs besides its packages")
    made.add_argument("part", choices=["metadrive"])

    made = command("certify", certify, "state a trained policy's tail risk, and how surely")
    made.add_argument("run")
    made.add_argument("--episodes", type=int, default=200, help="how many (%(default)s)")
    made.add_argument("--stochastic", action="store_true", help="sample actions")
    made.add_argument("--confidence", type=float, default=0.95, help="of each bound (%(default)s)")
    made.add_argument("--seed", type=int, help="of the episodes (the run's own)")
    made.add_argument("--max-step-cost", type=float, help="largest cost of a step, if not known")
    made.add_argument("--out", help="file to write (certificate.html in RUN)")

    command("algos", algos, "list the algorithms")
    command("envs", envs, "list the tasks")
    return parser


if __name__ == "__main__":
    sys.exit(main())
