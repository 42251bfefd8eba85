"""Run directories: how one is made, read back and continued.

``config.json``, ``progress.jsonl``, ``episodes.jsonl``, ``evaluations.jsonl``, ``timing.jsonl``,
``policy.safetensors``, and the folders ``checkpoints``, ``replay`` and ``tensorboard``.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from slsac import checkpoint, provenance
from slsac.agent import off_policy
from slsac.config import Config
from slsac.display import Display, Silent
from slsac.envs import duplicate_env, make_env
from slsac.errors import InvalidInput
from slsac.overrides import from_dict, to_dict, with_overrides
from slsac.presets import preset
from slsac.runlog import read_lines
from slsac.train import Trainer
from slsac.types import EnvSpec, SafeEnv


def start(
    config: Config,
    run: Path,
    *,
    env: Any = None,
    overwrite: bool = False,
    display: Display | None = None,
) -> Trainer:
    """Makes a new run directory and a trainer at step 0 in it.

    Args:
        env: an environment object or factory to use in place of the id that ``config`` names.
    """
    if run.exists() and not run.is_dir():
        raise InvalidInput(f"run {str(run)!r} is a file; it must be a directory")
    if (run / "config.json").exists() and not overwrite:
        raise InvalidInput(
            f"run {str(run)!r} already holds a run; pass --overwrite to replace it, or go on with "
            f"`slsac resume {run}`"
        )
    source = config.env if env is None else env
    # Made before anything is written or deleted: a bad env must not cost an old run.
    made = make_env(source)
    for name in ("replay", "checkpoints", "tensorboard"):
        shutil.rmtree(run / name, ignore_errors=True)
    for path in (*run.glob("*.jsonl"), run / "policy.safetensors", run / "config.json"):
        path.unlink(missing_ok=True)
    run.mkdir(parents=True, exist_ok=True)
    trainer = Trainer(config, run, made, _evaluation_env(source), display or Silent())
    trainer.log.rewind({})
    trainer.save_checkpoint()
    write_config(config, run, trainer.spec, provenance.describe())
    return trainer


def resume(
    run: Path,
    *,
    steps: int | None = None,
    env: Any = None,
    inexact: bool = False,
    display: Display | None = None,
) -> Trainer:
    """A trainer at the newest checkpoint of ``run``, ready to repeat and go on from there.

    Args:
        steps: a new total number of steps.
        inexact: go on although versions or cores have changed, so that bits will differ.
    """
    config, _, recorded = read_config(run)
    now = provenance.describe()
    changed = provenance.differences(recorded, now)
    if changed and not inexact:
        raise InvalidInput(
            f"run {str(run)!r} cannot be repeated exactly here ({'; '.join(changed)}); "
            "pass --inexact to go on all the same"
        )
    if steps is not None:
        config = with_overrides(config, {"steps": steps})
    source = config.env if env is None else env
    display = display or Silent()
    trainer = Trainer(config, run, make_env(source), _evaluation_env(source), display)
    trainer.load_checkpoint()
    facts = {**now, "before_resume": recorded} if changed else recorded
    write_config(config, run, trainer.spec, facts)
    return trainer


def is_complete(run: Path, steps: int) -> bool:
    """Whether the run has reached ``steps`` and its final evaluation is written."""
    evaluations = read_lines(run / "evaluations.jsonl")
    return any(line["final"] and line["step"] >= steps for line in evaluations[-1:])


def write_config(config: Config, run: Path, spec: EnvSpec, facts: dict[str, Any]) -> None:
    """``config.json``: the resolved configuration, the task's sizes, and the run's provenance."""
    values = {**to_dict(config), "spec": spec._asdict(), "provenance": facts}
    checkpoint.write_atomically(run / "config.json", json.dumps(values, indent=2).encode() + b"\n")


def read_config(run: Path) -> tuple[Config, EnvSpec, dict[str, Any]]:
    """What `write_config` wrote; fields that it did not know yet have their preset's value."""
    path = run / "config.json"
    if not path.exists():
        raise InvalidInput(
            f"run {str(run)!r} holds no run; it must be a directory with a config.json"
        )
    try:
        values = json.loads(path.read_text())
        facts, spec = values.pop("provenance"), EnvSpec(**values.pop("spec"))
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{path} cannot be read: {error}") from None
    known = to_dict(preset(values["algo"], values["env"]))
    return from_dict(_filled(values, known)), spec, facts


def _filled(values: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """``values`` with what it lacks taken from ``known``, at every level."""
    filled = known | values
    for name, part in known.items():
        if isinstance(part, dict) and isinstance(values.get(name), dict):
            filled[name] = _filled(values[name], part)
    return filled


def load_policy(run: Path) -> tuple[off_policy.OffPolicyAgent, Any]:
    """The agent's functions and the newest policy of a run; needs neither the task nor replay."""
    config, spec, _ = read_config(run)
    agent = off_policy.build(config, spec)
    like = jax.eval_shape(agent.init, jax.random.PRNGKey(0)).policy
    return agent, checkpoint.load_tensors(run / "policy.safetensors", like)


def _evaluation_env(source: Any) -> Callable[[], SafeEnv]:
    # An object is copied now: that it cannot be must not come out hours later.
    second = duplicate_env(source)
    return lambda: make_env(second)
