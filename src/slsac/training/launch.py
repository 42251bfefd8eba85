"""Beginning a run, and continuing one: from a configuration or a run directory to a trainer."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from slsac import algorithms
from slsac.config import Config, OffPolicyConfig, OnPolicyConfig
from slsac.display import Display, Silent
from slsac.envs import (
    Copies,
    copies_of,
    env_source,
    import_installed,
    make_env,
    with_timeout,
)
from slsac.envs.contract import as_observation, as_step
from slsac.envs.sources import close_env
from slsac.errors import EnvFailed, InvalidInput, env_failures
from slsac.runs import checkpoint, config_file, provenance
from slsac.runs.layout import (
    ABOUT_POLICY,
    CONFIG,
    FOLDERS,
    LOCK,
    LOGS,
    MARKER,
    MOVING,
    POLICY,
    REPLACED,
)
from slsac.runs.lock import RunLock
from slsac.runs.steps import reached_step
from slsac.training.off_policy import OffPolicyTrainer
from slsac.training.on_policy import OnPolicyTrainer
from slsac.training.on_policy import check as check_on_policy
from slsac.training.session import Session
from slsac.types import EnvSpec, SafeEnv


class Trainer(Protocol):
    """A run in progress, whichever way it learns: what the command line and `Agent` work with."""

    session: Session
    """Where the run stands, its config and its files."""

    @property
    def config(self) -> Any:
        """An `OffPolicyConfig` or an `OnPolicyConfig`."""

    @property
    def run(self) -> Path: ...

    @property
    def spec(self) -> EnvSpec: ...

    @property
    def step(self) -> int: ...

    @property
    def state(self) -> Any:
        """All that is learned; ``state.policy`` is what `slsac.runs.policy.load` gives."""

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
        """Writes a checkpoint to continue from exactly."""

    def load_checkpoint(self) -> None:
        """Returns to the newest readable checkpoint, logs included."""

    def start_from(self, saved: checkpoint.Checkpoint) -> None:
        """Begins with what another run has learned."""

    def close(self) -> None:
        """Gives up the run directory and the environments."""


class Origin(NamedTuple):
    """Another run that a new one begins with."""

    hand_over: Callable[[Trainer], None]
    """Gives a new trainer what the other has learned."""
    record: dict[str, Any]
    """What config.json says of it, beside the run's own provenance."""


class Kind(NamedTuple):
    """How runs of one kind of config are trained."""

    trainer: Callable[..., Trainer]
    check: Callable[[Any, EnvSpec, Copies], None]
    """Raises InvalidInput where the config does not suit the task."""


KINDS: dict[type, Kind] = {
    OffPolicyConfig: Kind(OffPolicyTrainer, lambda config, spec, copies: None),
    OnPolicyConfig: Kind(OnPolicyTrainer, check_on_policy),
}


def start(
    config: Config,
    run: Path,
    *,
    env: Any = None,
    overwrite: bool = False,
    display: Display | None = None,
    together: int = 1,
    env_timeout: float | None = None,
    origin: Origin | None = None,
) -> Trainer:
    """Makes a new run directory and a trainer at step 0 in it.

    Args:
        env: an environment object or factory to use in place of the id that ``config`` names.
        together: how many seeds learn in one update; see `slsac.training.cohort`.
        env_timeout: seconds that a call of an environment may take; each then gets its own process.
        origin: another run that this one begins with; see `slsac.training.fine_tune`.
    """
    require_free(run, overwrite=overwrite)
    # Tried before anything is written: a bad env or config must leave everything as it was.
    source = with_timeout(env_source(config.env if env is None else env, config), env_timeout)
    training_env, copies = tried_env(source, config)
    _require_memory(config, training_env.spec)
    display = display or Silent()
    if note := getattr(training_env, "note", None):
        display.note(note)
    with claimed(run, overwrite=overwrite) as lock, contextlib.ExitStack() as opened:
        _close_after(opened, training_env, copies)
        trainer = KINDS[type(config)].trainer(
            config, run, training_env, copies, display, lock, new=True
        )
        opened.pop_all()
        opened.callback(trainer.close)
        trainer.session.journal.log.begin()
        if origin is not None:
            origin.hand_over(trainer)
        trainer.save_checkpoint()
        facts = provenance.describe(together) | (origin.record if origin is not None else {})
        config_file.write(config, run, trainer.spec, facts)
        opened.pop_all()
    return trainer


def _require_memory(config: Config, spec: EnvSpec) -> None:
    """Raise InvalidInput where the agent alone needs more memory than the machine has."""
    shapes = jax.eval_shape(algorithms.build(config, spec).init, jax.random.PRNGKey(0))
    needed = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
    present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > present:
        raise InvalidInput(
            f"the networks need {needed / 2**30:,.0f} GiB; this machine has "
            f"{present / 2**30:,.0f}: lower policy.hidden, reward_critic.hidden or "
            "cost_critic.hidden, or the number of critics"
        )


def tried_env(env: Any, config: Config) -> tuple[SafeEnv, Copies]:
    """The env after a reset and a step, and how to make others; raises if any of it fails."""
    source = env_source(env, config)
    tried = make_env(source)
    with contextlib.ExitStack() as opened:
        copies = copies_of(source)
        _close_after(opened, tried, copies)
        try:
            with env_failures():
                as_observation(tried.reset(0), tried.spec)
                as_step(tried.step(np.zeros(tried.spec.action_size, np.float32)), tried.spec)
        except EnvFailed as error:
            raise EnvFailed(f"the environment failed in its first step: {error}") from error
        KINDS[type(config)].check(config, tried.spec, copies)
        opened.pop_all()
    return tried, copies


def _close_after(opened: contextlib.ExitStack, env: SafeEnv, copies: Copies) -> None:
    """Has a failed start close the env that it made; one that it was given stays open."""
    if copies.ours:
        opened.callback(close_env, env)


@contextlib.contextmanager
def claimed(run: Path, *, overwrite: bool) -> Iterator[RunLock]:
    """A new, locked run directory, in place of a run that may be there.

    The old run's files stand aside until the block ends. If it fails they come back.
    """
    try:
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"run {str(run)!r} cannot be made: {error.strerror}") from None
    lock = RunLock(run)
    try:
        _undo_killed_start(run)
        # Again, now that nobody else can begin or finish a run here.
        require_free(run, overwrite=overwrite)
        # The marker says that what is here is ours: a start that was killed can be started again.
        (run / MARKER).touch()
        _set_aside(run)
        try:
            yield lock
        except BaseException:
            _give_way(run)
            raise
        shutil.rmtree(run / REPLACED, ignore_errors=True)
    except BaseException:
        lock.release()
        raise


RUN_FILES = (CONFIG, *LOGS, POLICY, *ABOUT_POLICY, *FOLDERS)


# A process may be killed between any two of these calls. While an old run's files are on their way,
# the folder aside is `MOVING`, and no file is deleted; `REPLACED` holds all of them.


def _set_aside(run: Path) -> None:
    """Moves a run's files to where `_give_way` finds them."""
    (run / MOVING).mkdir()
    for name in RUN_FILES:
        if (run / name).exists():
            os.replace(run / name, run / MOVING / name)
    os.replace(run / MOVING, run / REPLACED)


def _give_way(run: Path) -> None:
    """Puts the old run's files in the place of a new run that did not begin."""
    for name in RUN_FILES:  # the config first: with one, the new run has begun
        if (run / name).is_dir():
            shutil.rmtree(run / name)
        else:
            (run / name).unlink(missing_ok=True)
    os.replace(run / REPLACED, run / MOVING)
    _move_back(run)


def _move_back(run: Path) -> None:
    for path in sorted((run / MOVING).iterdir()):
        os.replace(path, run / path.name)
    (run / MOVING).rmdir()


def _undo_killed_start(run: Path) -> None:
    """Brings back the run that a start was about to replace when it was killed."""
    if (run / MOVING).exists():
        _move_back(run)
    elif (run / REPLACED).exists():
        if (run / CONFIG).exists():
            shutil.rmtree(run / REPLACED)
        else:
            _give_way(run)


def require_free(run: Path, *, overwrite: bool) -> None:
    """Raise InvalidInput unless a new run may be made in ``run``."""
    refuse_others_files(run)
    if (run / CONFIG).exists() and not overwrite:
        raise InvalidInput(
            f"run {str(run)!r} already holds a run; pass --overwrite (overwrite=True) to replace "
            f"it, or continue it with `slsac resume {run}`"
        )


def _is_ours(run: Path) -> bool:
    """Whether the marker, or a config that is a run's, says that slsac made this directory."""
    if (run / MARKER).exists():
        return True
    try:
        config_file.read(run)
    except InvalidInput:
        return False
    return True


def refuse_others_files(run: Path) -> None:
    """Raise InvalidInput unless ``run`` is new, empty, or a run directory."""
    if run.exists() and not run.is_dir():
        raise InvalidInput(f"run {str(run)!r} is a file; it must be a directory")
    if run.exists() and not _is_ours(run) and any(path.name != LOCK for path in run.iterdir()):
        raise InvalidInput(
            f"run {str(run)!r} holds other files; it must be a new or empty directory, or a run"
        )


def resume(
    run: Path,
    *,
    steps: int | None = None,
    env: Any = None,
    inexact: bool = False,
    trust_env: bool = False,
    display: Display | None = None,
    env_timeout: float | None = None,
) -> Trainer:
    """A trainer at the newest checkpoint of ``run``, ready to continue exactly from there.

    Args:
        steps: a new total number of steps.
        inexact: continue although versions or cores have changed, so that bits will differ.
        trust_env: import the module that the run's files name from the working directory too.
        env_timeout: as in `start`.
    """
    config, spec, recorded = config_file.read(run)
    refuse_links(run)
    if env is None and not trust_env:
        import_installed(config.env)
    now = provenance.describe()
    changed = provenance.differences(recorded, now) + changes_by_hand(run)
    if changed and not inexact:
        raise InvalidInput(
            f"run {str(run)!r} cannot be repeated exactly here ({'; '.join(changed)}); "
            "pass --inexact (inexact=True) to continue anyway"
        )
    if steps is not None:
        config = config_file.with_steps(config, steps, begun=reached_step(run) > 0)
    source = with_timeout(env_source(config.env if env is None else env, config), env_timeout)
    training_env, kind = make_env(source), KINDS[type(config)]
    with contextlib.ExitStack() as opened:
        copies = copies_of(source)
        _close_after(opened, training_env, copies)
        config_file.require_same_task(training_env.spec, spec, config)
        kind.check(config, training_env.spec, copies)
        lock = RunLock(run)
        opened.callback(lock.release)
        trainer = kind.trainer(
            config, run, training_env, copies, display or Silent(), lock, new=False
        )
        opened.pop_all()
        opened.callback(trainer.close)
        trainer.load_checkpoint()
        if changed:
            # A checkpoint from before runs had an identity now gets one, and the config after it:
            # one with an identity goes with no checkpoint that has none.
            trainer.save_checkpoint()
        origin = {**now, "before_resume": recorded} if changed else recorded
        config_file.write(config, run, trainer.spec, origin)
        opened.pop_all()
    return trainer


def refuse_links(run: Path) -> None:
    """Raise InvalidInput if any of a run's files is a link: writing to it would write elsewhere."""
    for name in (*RUN_FILES, LOCK):
        if (run / name).is_symlink():
            raise InvalidInput(f"{run / name} is a link; a run that is written to must hold none")


def changes_by_hand(run: Path) -> list[str]:
    """Signs that the config of ``run`` is not as slsac wrote it."""
    identity = config_file.read_identity(run)
    if identity.run is None:
        return [f"{CONFIG} has no identity: it is from an older version, or was changed by hand"]
    return [f"{CONFIG} was changed by hand"] if identity.edited else []


def train(trainer: Trainer, until: int, callbacks: Sequence[Any] = ()) -> None:
    """Trains to step ``until`` or to where a callback ends it, and makes the final evaluation.

    Args:
        callbacks: see `slsac.training.callbacks.Callback`.
    """
    session = trainer.session
    session.callbacks.begin(callbacks)
    try:
        session.journal.log.withdraw_final()
        trainer.advance(until)
        if session.callbacks.stopped_by and trainer.step < until:
            session.display.note(
                f"{session.callbacks.stopped_by} ended training at step {trainer.step:,}"
            )
        trainer.finish()
        session.callbacks.tell(trainer)
    finally:
        session.callbacks.end(trainer)
