"""Runs that start from what another run has learned: `slsac train --init RUN`.

The new run has its own limit, task, seed and length. It begins with the other's networks,
optimisers, multiplier and scales, at step 0 and with logs of its own. Its first steps are played by
the policy it was given, not at random.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slsac.config import Config, OffPolicyConfig
from slsac.config.overrides import differing, with_overrides
from slsac.display import Display
from slsac.errors import InvalidInput, RunDamaged, brief
from slsac.runs import checkpoint, config_file
from slsac.runs.layout import CHECKPOINTS, REPLAY
from slsac.training import launch
from slsac.training.off_policy import OffPolicyTrainer
from slsac.training.session import facts_that_fit
from slsac.types import EnvSpec

MEANING = (
    "algo", "units", "normalise_observations", "observation_clip", "closeness_rates",
    "cost_critic.kind", "cost_critic.cost_scaling", "policy.head", "policy_update",
    "reward_critic.layer_norm", "cost_critic.layer_norm",
)  # fmt: skip
"""What decides what the networks' inputs and outputs mean."""


def config_from(source: Path, overrides: Mapping[str, Any], *, keep_replay: bool = False) -> Config:
    """The configuration of ``source`` with ``overrides``.

    The multiplier moves as soon as learning begins, which is at once where the replay is kept.
    """
    given = {name.replace("-", "_"): value for name, value in overrides.items()}
    theirs = config_file.read(source).config
    if not isinstance(theirs, OffPolicyConfig):
        return with_overrides(theirs, given)
    config = with_overrides(theirs, ({"warmup_steps": 0} if keep_replay else {}) | given)
    begin = {"multiplier_warmup_steps": config.warmup_steps}
    return with_overrides(config, begin | given)


def start(
    config: Config,
    run: Path,
    source: Path,
    *,
    env: Any = None,
    keep_replay: bool = False,
    overwrite: bool = False,
    display: Display | None = None,
    env_timeout: float | None = None,
) -> launch.Trainer:
    """A trainer at step 0 of a new run that begins with what ``source`` has learned.

    Args:
        keep_replay: learn from the other run's transitions too; off-policy, for the same task.
        env_timeout: as in `slsac.training.launch.start`.
    """
    theirs, spec, recorded = config_file.read(source)
    if run.resolve() == source.resolve():
        raise InvalidInput(f"run is {run}, which --init names as well; pass --run with another")
    _require_same_meaning(config, theirs, spec, source)
    saved = _newest_checkpoint(source)

    def hand_over(trainer: launch.Trainer) -> None:
        seen = ("closeness",) if config_file.uses_closeness(config) else ()
        for name in ("observation_size", "action_size", *seen):
            ours, known = getattr(trainer.spec, name), getattr(spec, name)
            if ours != known:
                raise InvalidInput(
                    f"{name} of the env is {brief(ours)}; --init {source} has networks for "
                    f"{brief(known)}"
                )
        own, there = config.multiplier, theirs.multiplier
        try:
            with facts_that_fit(saved):
                trainer.start_from(saved)
                if isinstance(trainer, OffPolicyTrainer) and isinstance(theirs, OffPolicyConfig):
                    trainer.take_over_costs(theirs, spec.horizon, saved.facts)
                if (own.rule, own.initial) == (there.rule, there.initial):
                    trainer.session.lagrangian.restore(saved.facts)
        except RunDamaged as error:
            raise InvalidInput(
                f"--init {source} does not fit the new run: {error}; leave out fields that change "
                "the networks"
            ) from None
        if keep_replay:
            _hand_over_replay(trainer)

    def _hand_over_replay(trainer: launch.Trainer) -> None:
        if not isinstance(trainer, OffPolicyTrainer) or not isinstance(theirs, OffPolicyConfig):
            raise InvalidInput(f"algo is {config.algo}; --keep-replay needs an off-policy one")
        same = trainer.spec._replace(closeness=spec.closeness) == spec
        if not same or config.env != theirs.env:
            raise InvalidInput(
                f"env is {config.env}; --keep-replay needs the task of {source}, {theirs.env}"
            )
        if not (source / REPLAY).is_dir():
            raise InvalidInput(f"--init {source} has no replay; leave out --keep-replay")
        trainer.take_over_replay(theirs, source, saved.facts)

    origin = {
        "run": str(source),
        "steps": saved.facts["step"],
        "commit": recorded.get("commit"),
        "keep_replay": keep_replay,
    }
    return launch.start(
        config, run, env=env, overwrite=overwrite, display=display, env_timeout=env_timeout,
        origin=launch.Origin(hand_over, {"initialised_from": origin}),
    )  # fmt: skip


def _require_same_meaning(config: Config, theirs: Config, spec: EnvSpec, source: Path) -> None:
    changed = {name: pair for name, pair in differing(config, theirs).items() if name in MEANING}
    if not spec.closeness:
        changed.pop("closeness_rates", None)  # networks without such inputs fit any rates
    if changed:
        name, (ours, there) = next(iter(changed.items()))
        raise InvalidInput(
            f"{name} is {ours}; --init {source} learned with {there}, which the new run must keep"
        )


def _newest_checkpoint(source: Path) -> checkpoint.Checkpoint:
    if not checkpoint.step_names(source / CHECKPOINTS):
        raise InvalidInput(
            f"--init {source} keeps no checkpoint; a policy alone, without its critics, cannot be "
            "trained further"
        )
    recorded = config_file.read_identity(source).run

    def require_its_own(saved: checkpoint.Checkpoint) -> None:
        if recorded not in (None, saved.facts.get("run")) or "step" not in saved.facts:
            raise checkpoint.Damaged(f"{saved.path} belongs to another run")

    try:
        return checkpoint.load_newest(source / CHECKPOINTS, require_its_own)[0]
    except RunDamaged as error:
        raise InvalidInput(f"--init {source}: {error}") from None
