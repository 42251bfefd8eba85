"""Run directories made by hand, with figures that a reader can check."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from slsac.config.overrides import with_overrides
from slsac.config.presets import preset
from slsac.runs import config_file, layout
from slsac.stats.summary import Evaluation, as_record, summarise
from slsac.types import EnvSpec

HOPPER = "SafetyHopperVelocity-v1"
SPEC = EnvSpec(11, 3, 1000, (-1.0,) * 3, (1.0,) * 3)
FACTS = {"cores": 2, "python": "3.11.7", "versions": {"slsac": "0.1.0"}, "commit": "0123456789ab"}


def make_run(
    folder: Path,
    algo: str = "sl-sac",
    env: str = HOPPER,
    seed: int = 0,
    *,
    returns: Sequence[float] = (100.0, 300.0),
    costs: Sequence[float] = (0.0, 40.0),
    extras: Mapping[str, Sequence[float]] | None = None,
    finished: bool = True,
    ended: int | None = None,
    provenance: Mapping[str, Any] = FACTS,
    **overrides: Any,
) -> Path:
    """A run of 10,000 steps whose final evaluation had these episodes.

    Args:
        ended: the step at which a callback has ended it.
    """
    named = {name.replace("__", "."): value for name, value in overrides.items()}
    config = with_overrides(preset(algo, env), {"seed": seed, "steps": 10_000} | named)
    folder.mkdir(parents=True)
    config_file.write(config, folder, SPEC, dict(provenance))
    # Ten episodes of 1,000 steps: returns 0, 10, ..., 90 and costs 90, 80, ..., 0, both + seed.
    episodes = [
        {"step": 1000 * (i + 1), "return": 10.0 * i + seed, "cost": 90.0 - 10.0 * i + seed,
         "length": 1000}
        for i in range(10)
    ]  # fmt: skip
    progress = [
        {"step": 2000 * (i + 1), "multiplier": 0.5 * i, "window_cvar": 50.0 - 10.0 * i}
        for i in range(5)
    ]
    timing = [
        {"step": line["step"], "seconds": 40.0, "steps_per_second": 50.0} for line in progress
    ]
    played = Evaluation(np.array(returns), np.array(costs), np.full(len(costs), 1000))
    played = played._replace(extras={name: np.array(each) for name, each in (extras or {}).items()})
    summary = summarise(played, config.cost_limit, config.tail_fraction)
    evaluations = [{"step": 5_000, "final": False, **summary, **as_record(played)}]
    if finished:
        evaluations.append({**evaluations[0], "step": ended or config.steps, "final": True})
    logs = zip(layout.LOGS, (progress, episodes, evaluations, timing), strict=True)
    for name, lines in logs:
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder
