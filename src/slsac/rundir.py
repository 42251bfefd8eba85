"""Run directories: how one is made, read back and continued.

``config.json``, ``progress.jsonl``, ``episodes.jsonl``, ``evaluations.jsonl``, ``timing.jsonl``,
``policy.safetensors``, and the folders ``checkpoints``, ``tensorboard`` and, if off-policy,
``replay``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from slsac import checkpoint, provenance
from slsac.agent import off_policy
from slsac.config import Config, OffPolicyConfig, OnPolicyConfig
from slsac.display import Display, Silent
from slsac.envs import Copies, copies_of, env_source, is_factory, make_env
from slsac.errors import EnvFailed, InvalidInput, env_failures
from slsac.lock import RunLock
from slsac.on_policy import agent as on_policy
from slsac.on_policy.train import Trainer as OnPolicyTrainer
from slsac.on_policy.train import check as check_on_policy
from slsac.overrides import from_dict, to_dict, with_overrides
from slsac.presets import preset
from slsac.records import Records
from slsac.runlog import read_lines
from slsac.train import Trainer as OffPolicyTrainer
from slsac.types import EnvSpec, SafeEnv

LATER_FIELDS = (
    "metadrive",
    "metadrive.lidar",
    "cost_critic.cost_scaling",
    "cost_critic.members",
    "cost_critic.risk_aversion",
    "cost_critic.risk_measure",
    "cost_critic.target_action",
    "multiplier.damping",
    "multiplier.derivative_delay",
    "multiplier.derivative_gain",
    "multiplier.integral_gain",
    "multiplier.largest_tightening",
    "multiplier.maximum",
    "multiplier.proportional_gain",
    "multiplier.smoothing",
    "multiplier.tighten",
    "multiplier.tightening_window",
    "policy.exploration_noise",
    "policy.target_noise",
    "policy.target_noise_clip",
    "policy.temperature_learning_rate",
)
"""Config fields that the first recorded runs do not know; any other that is missing was lost."""
BEFORE_METADRIVE = {"lidar": "distance"}
"""What runs did that are older than a field, where the field's preset has another value."""
MARKER = ".slsac-run"
LOGS = ("progress.jsonl", "episodes.jsonl", "evaluations.jsonl", "timing.jsonl")
FOLDERS = ("replay", "checkpoints", "tensorboard")
ABOUT_POLICY = (
    "calibration.json",
    "certificate.json",
    "certificate.html",
    "certificate-episodes.json",
)
"""What `slsac certify` leaves in a run's folder."""


class Trainer(Protocol):
    """A run in progress, whichever way it learns: what the command line and `Agent` work with."""

    run: Path
    spec: EnvSpec
    step: int
    config: Any
    """An `OffPolicyConfig` or an `OnPolicyConfig`; `Agent.learn` gives it more steps."""
    state: Any
    """All that is learned; ``state.policy`` is what `load_policy` gives."""
    records: Records

    @property
    def agent(self) -> Any:
        """The functions of the algorithm."""

    @property
    def schedule(self) -> str:
        """When learning takes place, for a person."""

    def advance(self, until: int) -> None:
        """Trains up to step ``until``."""

    def finish(self) -> None:
        """Writes the final state and policy, and the final evaluation."""

    def save_final(self) -> None:
        """Writes the present state, to predict with."""

    def save_checkpoint(self) -> None:
        """Writes a checkpoint to go on from exactly."""

    def load_checkpoint(self) -> None:
        """Goes back to the newest readable checkpoint, logs included."""

    def close(self) -> None:
        """Gives up the run directory and the environments."""


class Learner(NamedTuple):
    """What a kind of config is trained by, and how its agent's functions are built."""

    trainer: Callable[..., Trainer]
    build: Callable[..., off_policy.OffPolicyAgent | on_policy.OnPolicyAgent]
    check: Callable[[Any, EnvSpec, Copies], None]
    """An error where the config does not suit the task."""


LEARNERS: dict[type, Learner] = {
    OffPolicyConfig: Learner(OffPolicyTrainer, off_policy.build, lambda config, spec, copies: None),
    OnPolicyConfig: Learner(OnPolicyTrainer, on_policy.build, check_on_policy),
}


def start(
    config: Config,
    run: Path,
    *,
    env: Any = None,
    overwrite: bool = False,
    display: Display | None = None,
    together: int = 1,
) -> Trainer:
    """Makes a new run directory and a trainer at step 0 in it.

    Args:
        env: an environment object or factory to use in place of the id that ``config`` names.
        together: how many seeds learn in one update; see `slsac.cohort`.
    """
    require_free(run, overwrite=overwrite)
    # Tried before anything is written or deleted: a bad env or config must not cost an old run.
    source = config.env if env is None else env
    made, copies = tried_env(source, config)
    with contextlib.ExitStack() as opened:
        _close_after(opened, made, source)
        lock = claim(run)
        opened.callback(lock.release)
        trainer = LEARNERS[type(config)].trainer(
            config, run, made, copies, display or Silent(), lock, new=True
        )
        opened.pop_all()
        opened.callback(trainer.close)
        trainer.records.log.begin()
        trainer.save_checkpoint()
        write_config(config, run, trainer.spec, provenance.describe(together))
        opened.pop_all()
    return trainer


def tried_env(env: Any, config: Config) -> tuple[SafeEnv, Copies]:
    """The env after a reset and a step, and how to make others; an error if any of it fails."""
    source = env_source(env, config)
    made = make_env(source)
    with contextlib.ExitStack() as opened:
        _close_after(opened, made, source)
        try:
            with env_failures():
                made.reset(0)
                made.step(np.zeros(made.spec.action_size, np.float32))
        except EnvFailed as error:
            raise EnvFailed(f"the environment failed in its first step: {error}") from error
        copies = copies_of(source)
        LEARNERS[type(config)].check(config, made.spec, copies)
        opened.pop_all()
    return made, copies


def _close_after(opened: contextlib.ExitStack, made: SafeEnv, source: Any) -> None:
    """Has a failed start close the env that it made; one that it was given stays open."""
    if isinstance(source, str) or is_factory(source):
        opened.callback(made.close)


def claim(run: Path) -> RunLock:
    """Makes ``run`` an empty run directory, whatever run was there, and locks it."""
    try:
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"run {str(run)!r} cannot be made: {error.strerror}") from None
    # The marker says that what is here is ours, and without its config a run is none: a start or
    # an overwrite that was killed half-way can be started again.
    (run / MARKER).touch()
    lock = RunLock(run)
    try:
        for name in ("config.json", *LOGS, "policy.safetensors", *ABOUT_POLICY):
            (run / name).unlink(missing_ok=True)
        for name in FOLDERS:
            shutil.rmtree(run / name, ignore_errors=True)
    except BaseException:
        lock.release()
        raise
    return lock


def require_free(run: Path, *, overwrite: bool) -> None:
    """An error unless a new run may be made in ``run``."""
    refuse_others_files(run)
    if (run / "config.json").exists() and not overwrite:
        raise InvalidInput(
            f"run {str(run)!r} already holds a run; pass --overwrite (overwrite=True) to replace "
            f"it, or go on with `slsac resume {run}`"
        )


def refuse_others_files(run: Path) -> None:
    """An error unless ``run`` is new, empty, or a run directory."""
    if run.exists() and not run.is_dir():
        raise InvalidInput(f"run {str(run)!r} is a file; it must be a directory")
    ours = (run / MARKER).exists() or (run / "config.json").exists()
    if run.exists() and not ours and any(run.iterdir()):
        raise InvalidInput(
            f"run {str(run)!r} holds other files; it must be a new or empty directory, or a run"
        )


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
    config, spec, recorded = read_config(run)
    now = provenance.describe()
    changed = provenance.differences(recorded, now)
    if changed and not inexact:
        raise InvalidInput(
            f"run {str(run)!r} cannot be repeated exactly here ({'; '.join(changed)}); "
            "pass --inexact (inexact=True) to go on all the same"
        )
    if steps is not None:
        config = with_steps(config, steps, begun=reached_step(run) > 0)
    source = env_source(config.env if env is None else env, config)
    made, learner = make_env(source), LEARNERS[type(config)]
    with contextlib.ExitStack() as opened:
        _close_after(opened, made, source)
        require_same_task(made.spec, spec)
        copies = copies_of(source)
        learner.check(config, made.spec, copies)
        lock = RunLock(run)
        opened.callback(lock.release)
        trainer = learner.trainer(config, run, made, copies, display or Silent(), lock, new=False)
        opened.pop_all()
        opened.callback(trainer.close)
        trainer.load_checkpoint()
        facts = {**now, "before_resume": recorded} if changed else recorded
        write_config(config, run, trainer.spec, facts)
        opened.pop_all()
    return trainer


def require_same_task(spec: EnvSpec, recorded: EnvSpec) -> None:
    """An error unless an env's sizes, bounds and horizon are those that a run was made with."""
    for name, ours, theirs in zip(EnvSpec._fields, spec, recorded, strict=True):
        if ours != theirs:
            raise InvalidInput(
                f"{name} of the env is {ours}; the run was made with {theirs}: pass the same env, "
                "as env= of Agent.load"
            )


def with_steps(config: Config, steps: int, *, begun: bool) -> Config:
    """``config`` with another number of steps in all.

    An error where the run has ``begun`` and its learning rate was chosen by that number.
    """
    decays = isinstance(config, OnPolicyConfig) and config.learning_rate_decays
    if begun and decays and steps != config.steps:
        raise InvalidInput(
            f"steps is {steps}; it must stay {config.steps} in this run, whose learning rate falls "
            "to 0 at its last step (clipped.learning_rate_decay is linear)"
        )
    return with_overrides(config, {"steps": steps})


def reached_step(run: Path) -> int:
    """The last step that a checkpoint or the final state was saved at."""
    folder = run / "checkpoints"
    return max(checkpoint.newest_step(folder), checkpoint.final_step(folder))


def trained_steps(run: Path) -> int:
    """The steps that the run's policy has learned from."""
    epochs = [int(line["step"]) for line in read_lines(run / "progress.jsonl")]
    if isinstance(read_config(run)[0], OnPolicyConfig):
        return max(epochs, default=0)  # an epoch that is not whole teaches nothing
    # A recorded run keeps no checkpoint; it was complete, and its logs end where it did.
    evaluations = [int(line["step"]) for line in read_lines(run / "evaluations.jsonl")]
    return reached_step(run) or max(epochs + evaluations, default=0)


def completed_step(run: Path) -> int:
    """The step at which the run was finished and, if it asks for one, finally evaluated; or 0."""
    config, _, _ = read_config(run)
    if config.final_evaluation_episodes == 0:
        return checkpoint.final_step(run / "checkpoints")
    evaluations = read_lines(run / "evaluations.jsonl")
    return int(evaluations[-1]["step"]) if evaluations and evaluations[-1]["final"] else 0


def write_config(config: Config, run: Path, spec: EnvSpec, facts: dict[str, Any]) -> None:
    """``config.json``: the resolved configuration, the task's sizes, and the run's provenance."""
    values = {**to_dict(config), "spec": spec._asdict(), "provenance": facts}
    checkpoint.write_atomically(run / "config.json", json.dumps(values, indent=2).encode() + b"\n")


def read_config(run: Path) -> tuple[Config, EnvSpec, dict[str, Any]]:
    """What `write_config` wrote; fields that it did not know yet have their preset's value.

    See `LATER_FIELDS`.
    """
    path = run / "config.json"
    if not path.exists():
        raise InvalidInput(
            f"run {str(run)!r} holds no run; it must be a directory with a config.json"
        )
    try:
        values = json.loads(path.read_text())
        if not isinstance(values, dict):
            raise TypeError(f"it holds a {type(values).__name__}, not an object")
        facts, sizes = values.pop("provenance"), values.pop("spec")
        bounds = {name: tuple(sizes[name]) for name in ("action_low", "action_high")}
        spec = EnvSpec(**sizes | bounds)
        known = to_dict(preset(values["algo"], values["env"]))
        if known.get("metadrive"):
            known["metadrive"] |= BEFORE_METADRIVE
    except InvalidInput:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(f"{path} cannot be read: {type(error).__name__} {error}") from None
    try:
        return from_dict(_filled(values, known)), spec, facts
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None


def _filled(values: dict[str, Any], known: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """``values`` with the later fields that it lacks taken from ``known``, at every level."""
    later = {name: part for name, part in known.items() if prefix + name in LATER_FIELDS}
    filled = later | values
    for name, part in known.items():
        if isinstance(part, dict) and isinstance(values.get(name), dict):
            filled[name] = _filled(values[name], part, f"{prefix}{name}.")
    return filled


def load_policy(
    run: Path,
) -> tuple[off_policy.OffPolicyAgent | on_policy.OnPolicyAgent, Any]:
    """The agent's functions and the newest policy of a run; needs neither the task nor replay."""
    config, spec, _ = read_config(run)
    agent = LEARNERS[type(config)].build(config, spec)
    like = jax.eval_shape(agent.init, jax.random.PRNGKey(0)).policy
    return agent, checkpoint.load_tensors(run / "policy.safetensors", like)


def policy_digest(run: Path) -> str:
    """SHA-256 of the newest policy's file."""
    return hashlib.sha256((run / "policy.safetensors").read_bytes()).hexdigest()


def load_cost_critic(run: Path) -> tuple[off_policy.OffPolicyAgent, Any, Any] | None:
    """The agent's functions, its newest policy and the cost critic of the same checkpoint.

    None where no checkpoint holds that policy, as in a recorded run, which keeps none.
    """
    agent, policy = load_policy(run)
    if not isinstance(agent, off_policy.OffPolicyAgent):
        return None
    whole = jax.eval_shape(agent.init, jax.random.PRNGKey(0))
    others = [name for name in whole._fields if name not in ("policy", "cost_critic")]
    like = whole._replace(**dict.fromkeys(others))
    wanted = checkpoint.tensors_of(policy)
    folder = run / "checkpoints"
    for name in (checkpoint.FINAL, *reversed(checkpoint.step_names(folder))):
        try:
            found = checkpoint.load(folder / name)
        except checkpoint.Damaged:
            continue
        state = checkpoint.tree_from(found.tensors, like, found.path)
        held = checkpoint.tensors_of(state.policy)
        if all(np.array_equal(held[part], wanted[part]) for part in wanted):
            return agent, state.policy, state.cost_critic
    return None
