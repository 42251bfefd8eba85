"""``slsac evaluate``: a trained policy's return and cost, as text, JSON or video."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from slsac.cli.options import add_device, add_trust, say_if_edited
from slsac.errors import InvalidInput

if TYPE_CHECKING:
    from slsac.api import Agent

HELP = "play seeded episodes with a trained policy"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="run directory")
    add_device(parser)
    parser.add_argument("--episodes", type=int, default=30, help="episodes (%(default)s)")
    parser.add_argument("--seed", type=int, help="episode seed (the run's own)")
    parser.add_argument("--stochastic", action="store_true", help="sample actions")
    parser.add_argument("--json", action="store_true", help="everything, on one line")
    parser.add_argument(
        "--record", action="store_true", help="write it to the run as its final evaluation"
    )
    parser.add_argument("--video", metavar="FILE.mp4", help="also film the first episodes")
    parser.add_argument("--video-episodes", type=int, help="episodes to film (1)")
    add_trust(parser)


def run(options: argparse.Namespace) -> int:
    import json

    from slsac.api import Agent
    from slsac.compilation import prepare
    from slsac.evaluate import require_episodes, require_recordable
    from slsac.formatting import sentence
    from slsac.runs.steps import trained_steps
    from slsac.stats.summary import as_record, summarise

    if options.video_episodes is not None and not options.video:
        raise InvalidInput("--video-episodes has no effect without --video")
    if options.video_episodes is not None:
        require_episodes(options.video_episodes, name="video_episodes")
    require_episodes(options.episodes)  # before minutes of filming
    if options.record:
        require_recordable(deterministic=not options.stochastic)
    prepare(options.device)
    agent = Agent.load(options.run, trust_env=options.trust_env)
    # Now: the run may learn more while the episodes are played.
    steps = trained_steps(Path(options.run))
    if options.video:
        _write_video(agent, options)
    result = agent.evaluate(
        options.episodes,
        seed=options.seed,
        deterministic=not options.stochastic,
        record=options.record,
    )
    say_if_edited(Path(options.run))
    config = agent.config
    summary = summarise(result, config.cost_limit, config.tail_fraction)
    about = {
        "run": str(options.run),
        "algo": config.algo,
        "env": config.env,
        "trained_steps": steps,
        "actions": "sampled" if options.stochastic else "deterministic",
        "seed": config.seed if options.seed is None else options.seed,
    }
    if options.json:
        print(json.dumps({**about, **summary, **as_record(result)}))
    else:
        print(
            f"{config.algo} on {config.env} after {steps:,} steps, "
            f"{about['actions']} actions: {sentence(summary)}"
        )
    agent.close()
    return 0


def _write_video(agent: Agent, options: argparse.Namespace) -> None:
    from slsac.video import NoVideo

    episodes = {} if options.video_episodes is None else {"episodes": options.video_episodes}
    try:
        frames = agent.video(
            options.video, seed=options.seed, deterministic=not options.stochastic, **episodes
        )
        print(f"slsac: {options.video} has {frames} frames", file=sys.stderr)
    except NoVideo as problem:
        # A machine that cannot draw can still give the figures, which come first.
        print(f"slsac: {problem}", file=sys.stderr)
