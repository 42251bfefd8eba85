"""Runs that share their beginning: `slsac train --from RUN`.

Until its rest is over the multiplier does not move, so runs that differ in its rule or signal alone
are the same run up to there. A branch takes those steps from a run that has made them, and ends
with the same bytes as a run that makes them itself.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from slsac.algorithms import multiplier as multipliers
from slsac.config import Config, OffPolicyConfig
from slsac.config.overrides import differing
from slsac.display import Display
from slsac.envs import env_source, with_timeout
from slsac.envs.sources import close_env
from slsac.errors import InvalidInput
from slsac.runs import checkpoint, config_file, identity, provenance
from slsac.runs.layout import CHECKPOINTS, EXACT_LOGS, POLICY, PROGRESS, REPLAY, TIMING
from slsac.runs.log import parse_lines, read_lines
from slsac.runs.steps import reached_step
from slsac.runs.tensors import save_arrays
from slsac.training import launch
from slsac.training.off_policy import OffPolicyTrainer
from slsac.training.replay import copy_sparsely

FREE = (
    "algo", "steps", "multiplier_warmup_steps", "multiplier.signal", "multiplier.rule",
    "multiplier.learning_rate", "multiplier.maximum", "multiplier.proportional_gain",
    "multiplier.integral_gain", "multiplier.derivative_gain", "multiplier.smoothing",
    "multiplier.derivative_delay", "multiplier.damping",
)  # fmt: skip
"""What has no effect before the multiplier moves."""
SIGNALS = {"empirical-cvar": "window_cvar", "mean": "window_mean"}
"""Signals that branches may have, and the column of progress.jsonl that each is."""


def start(
    config: Config,
    run: Path,
    source: Path,
    *,
    overwrite: bool = False,
    inexact: bool = False,
    display: Display | None = None,
    env_timeout: float | None = None,
) -> OffPolicyTrainer:
    """A trainer in a new run directory, at the end of what it shares with ``source``.

    Args:
        inexact: continue although versions or cores have changed, so that bits will differ.
    """
    theirs, spec, recorded = config_file.read(source)
    if run.resolve() == source.resolve():
        raise InvalidInput(f"run is {run}, which --from names as well; pass --run with another")
    launch.require_free(run, overwrite=overwrite)
    _require_alike(config, theirs, source)
    assert isinstance(config, OffPolicyConfig)
    changed = provenance.differences(recorded, provenance.describe())
    changed += launch.changes_by_hand(source)
    if "before_resume" in recorded:
        changed.append("it has itself been resumed with --inexact")
    if changed and not inexact:
        raise InvalidInput(
            f"--from {source} cannot be continued exactly here ({'; '.join(changed)}); pass "
            "--inexact to continue anyway"
        )
    shared = _shared_checkpoint(config, theirs, source)
    begun = multipliers.of_run(config, spec.horizon).init()
    if begun.value != shared.facts["multiplier"][0]:
        raise InvalidInput(
            f"multiplier.rule is {config.multiplier.rule}; it begins at {begun.value:g} where "
            f"{source} has {shared.facts['multiplier'][0]:g}"
        )
    tried = with_timeout(env_source(config.env, config), env_timeout)
    close_env(launch.tried_env(tried, config)[0])
    with launch.claimed(run, overwrite=overwrite) as lock:
        shutil.copytree(source / REPLAY, run / REPLAY, copy_function=copy_sparsely)
        facts = {**shared.facts, "run": identity.of_run(config, spec), "multiplier": begun}
        facts["log_offsets"] = _copy_logs(source, run, shared.facts, config.multiplier.signal)
        checkpoint.write(run / CHECKPOINTS, shared.path.name, shared.tensors, facts)
        save_arrays(run / POLICY, _part(shared.tensors, "policy"))
        origin = {"algo": theirs.algo, "steps": facts["step"], "commit": recorded.get("commit")}
        config_file.write(config, run, spec, {**recorded, "branched_from": origin})
        lock.release()
        # Within the block: where this fails, the run that is replaced comes back.
        trainer = launch.resume(
            run, inexact=inexact, trust_env=True, display=display, env_timeout=env_timeout
        )
    assert isinstance(trainer, OffPolicyTrainer)
    return trainer


def _part(tensors: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    """The arrays of one field of the agent's state, by their names within it."""
    prefix = f"{name}."
    return {key.removeprefix(prefix): tensors[key] for key in tensors if key.startswith(prefix)}


def _require_alike(config: Config, theirs: Config, source: Path) -> None:
    if not isinstance(config, OffPolicyConfig) or not isinstance(theirs, OffPolicyConfig):
        raise InvalidInput(f"--from {source}: only off-policy runs have a beginning to share")
    others = {name: there for name, (_, there) in differing(config, theirs).items()}
    # A tightened limit follows the error of a tail or of a mean, as the signal is.
    free = set(FREE) - ({"multiplier.signal"} if config.multiplier.tighten else set())
    said = ", ".join(
        f"{name} ({there} there)" for name, there in others.items() if name not in free
    )
    if said:
        raise InvalidInput(
            f"--from {source} has another beginning: {said}; only steps and how the multiplier "
            "moves may differ"
        )
    for signal in (config.multiplier.signal, theirs.multiplier.signal):
        if signal not in SIGNALS:
            raise InvalidInput(
                f"multiplier.signal is {signal}; with --from it must be one of {', '.join(SIGNALS)}"
            )


def _shared_checkpoint(
    config: OffPolicyConfig, theirs: Config, source: Path
) -> checkpoint.Checkpoint:
    """The last one before the multiplier moves in either run."""
    assert isinstance(theirs, OffPolicyConfig)
    rest = min(config.multiplier_warmup_steps, theirs.multiplier_warmup_steps, config.steps)
    folder = source / CHECKPOINTS
    names = [name for name in checkpoint.step_names(folder) if checkpoint.step_of(name) <= rest]
    if not names or checkpoint.step_of(names[-1]) == 0:
        raise InvalidInput(
            f"--from {source} keeps no checkpoint between step 0 and step {rest:,}, where the "
            "multiplier begins to move"
        )
    if not (source / REPLAY).is_dir():
        raise InvalidInput(f"--from {source} has no replay; a recorded run cannot be branched off")
    if reached_step(source) > theirs.replay_capacity:
        raise InvalidInput(
            f"--from {source} is at step {reached_step(source):,} with a replay of "
            f"{theirs.replay_capacity:,}, which may have lost its first steps"
        )
    try:
        shared = checkpoint.load(folder / names[-1])
    except checkpoint.Damaged as error:
        raise InvalidInput(f"--from {source}: its checkpoint is damaged: {error}") from None
    if shared.facts.get("run") != config_file.read_identity(source).run:
        raise InvalidInput(f"--from {source}: {shared.path} belongs to another run")
    missing = {"step", "multiplier", "log_offsets"} - shared.facts.keys()
    if missing:
        raise InvalidInput(f"--from {source}: {shared.path} lacks {', '.join(sorted(missing))}")
    return shared


def _copy_logs(source: Path, run: Path, facts: dict[str, Any], signal: str) -> dict[str, int]:
    """Copies the logs up to the checkpoint; the signal becomes what it would have been here."""
    step, offsets, lengths = facts["step"], facts["log_offsets"], {}
    for file in EXACT_LOGS:
        name = file.removesuffix(".jsonl")
        data = (source / file).read_bytes()[: offsets[name]]
        if file == PROGRESS:
            lines = parse_lines(data, source / file)
            lines = [line | {"signal": line.get(SIGNALS[signal])} for line in lines]
            data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        (run / file).write_bytes(data)
        lengths[name] = len(data)
    times = [line for line in read_lines(source / TIMING) if line["step"] <= step]
    (run / TIMING).write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in times))
    return lengths
