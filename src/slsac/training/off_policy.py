"""The off-policy training loop in full view, for one run or for several seeds together.

Follow `advance`: act, store, learn, move the multiplier; log, evaluate and save where it is due.
A trainer has what belongs to one run: its environment, replay, multiplier and files. The learner is
what several seeds share.

Checkpoints are written between episodes, and each episode's reset is seeded from (seed, number). So
a checkpoint needs no simulator state, and a resumed run repeats an undisturbed one exactly.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from slsac.algorithms.off_policy import agent as agents
from slsac.algorithms.off_policy.cost_critic import rescaled
from slsac.algorithms.tightening import Tightening
from slsac.config import OffPolicyConfig
from slsac.display import Display
from slsac.envs import Copies
from slsac.envs.contract import as_observation, as_step
from slsac.envs.sources import close_env
from slsac.errors import env_failures
from slsac.networks import Normaliser, row_by_row
from slsac.runs import checkpoint
from slsac.runs.layout import REPLAY
from slsac.runs.lock import RunLock
from slsac.seeds import Branch, episode_seed, generator
from slsac.stats.summary import Evaluation
from slsac.training.discount import Discount
from slsac.training.episodes import RunningEpisode
from slsac.training.learner import Learner, SoloLearner, UpdateReport
from slsac.training.moments import RunningMoments
from slsac.training.replay import Lookahead, Replay
from slsac.training.session import Session, learned_by
from slsac.training.units import Units
from slsac.types import Batch, EnvSpec, SafeEnv


def advance(trainers: Sequence[OffPolicyTrainer], learner: Learner, until: int) -> None:
    """Trains every run up to step ``until``. All are at the same step throughout."""
    first = trainers[0]
    _start_clocks(trainers)
    with contextlib.ExitStack() as saving:
        for trainer in trainers:
            saving.enter_context(trainer.session.saved_if_stopped())
        while first.step < until and not first.session.callbacks.stopped_by:
            ended = take_step(trainers, learner)
            for trainer in trainers:
                trainer.session.display.tick(trainer.step)
            if first.step % first.config.steps_per_epoch == 0:
                # All are logged before one is evaluated: that is not anybody's training time.
                due = [trainer.end_epoch() for trainer in trainers]
                for trainer in itertools.compress(trainers, due):
                    trainer.evaluate_now(trainer.config.evaluation_episodes, final=False)
                _start_clocks(trainers)
            for trainer in itertools.compress(trainers, ended):
                trainer.close_episode()
            for trainer in trainers:
                trainer.session.callbacks.tell(trainer)


def take_step(trainers: Sequence[OffPolicyTrainer], learner: Learner) -> list[bool]:
    """One environment step of every run and what follows from it; True where an episode ended."""
    first = trainers[0]
    observations = [trainer.observation() for trainer in trainers]
    if first.step < first.config.warmup_steps and first.random_actions.wanted:
        actions: Sequence[np.ndarray] = [trainer.random_actions.draw() for trainer in trainers]
    else:
        actions = act(trainers, learner, observations)
    ended = [trainer.observe(action) for trainer, action in zip(trainers, actions, strict=True)]
    if first.step > first.config.warmup_steps:
        learn(trainers, learner)
    for trainer in trainers:
        trainer.move_multiplier()
    return ended


def act(
    trainers: Sequence[OffPolicyTrainer], learner: Learner, observations: Sequence[np.ndarray]
) -> Sequence[np.ndarray]:
    """The policies' actions: with noise, but for episodes that are played without."""
    quiet = [trainer.episode_is_noiseless() for trainer in trainers]
    if all(quiet):
        return learner.play(observations)
    explored = learner.explore(observations, trainers[0].step)
    if not any(quiet):
        return explored
    played = learner.play(observations)
    return [played[run] if is_quiet else explored[run] for run, is_quiet in enumerate(quiet)]


def learn(trainers: Sequence[OffPolicyTrainer], learner: Learner) -> None:
    """One update of every run, from a minibatch of its own."""
    moments = [trainer.normaliser() for trainer in trainers]
    if moments[0] is not None:
        learner.follow_observations(cast(list[Normaliser], moments))
    outcomes = learner.update(
        [trainer.sample() for trainer in trainers],
        [trainer.session.lagrangian.value for trainer in trainers],
        trainers[0].policy_is_due(),
    )
    for trainer, outcome in zip(trainers, outcomes, strict=True):
        trainer.note_update(outcome)


def _start_clocks(trainers: Sequence[OffPolicyTrainer]) -> None:
    for trainer in trainers:
        trainer.session.journal.start_clock(trainer.step)


@jax.jit
def copied(state: agents.AgentState) -> agents.AgentState:
    """``state`` in memory of its own; an update takes over that of the state it is given."""
    return jax.tree.map(jnp.copy, state)


class RandomActions:
    """Uniform actions for the first steps; part of a checkpoint."""

    def __init__(self, seed: int, size: int) -> None:
        self._rng, self._size = generator(seed, Branch.WARMUP), size
        self.wanted = True
        """False where a policy that has learned elsewhere plays those steps."""

    def draw(self) -> np.ndarray:
        return self._rng.uniform(-1.0, 1.0, self._size).astype(np.float32)

    def facts(self) -> dict[str, Any]:
        by_policy = {} if self.wanted else {"warmup_by_policy": True}
        return {"warmup_rng": self._rng.bit_generator.state} | by_policy

    def restore(self, facts: Mapping[str, Any]) -> None:
        self._rng.bit_generator.state = facts["warmup_rng"]
        self.wanted = not facts.get("warmup_by_policy", False)


def replay_of(config: OffPolicyConfig, run: Path, spec: EnvSpec, *, create: bool) -> Replay:
    """The replay of a run, made or opened."""
    # Falling back to the checkpoint before the newest goes back two intervals at most.
    reserve = 2 * (config.checkpoint_every_steps + spec.horizon)
    return Replay(run / REPLAY, spec, config.replay_capacity, reserve, config.seed, create=create)


class OffPolicyTrainer:
    """A run in progress."""

    def __init__(
        self,
        config: OffPolicyConfig,
        run: Path,
        env: SafeEnv,
        copies: Copies,
        display: Display,
        lock: RunLock,
        *,
        new: bool,
    ) -> None:
        """A trainer at step 0; `slsac.training.launch` makes one, new or to be resumed."""
        self.env, self._env_is_ours = env, copies.ours
        self.session = Session(config, run, env.spec, copies.apart_from(env), display, lock)
        self.agent = agents.build(config, env.spec)
        self.learner: Learner = SoloLearner(self.agent, config.seed)
        self._place = 0
        self._predict = jax.jit(row_by_row(self.agent.predict))
        self.replay = replay_of(config, run, env.spec, create=new)
        self.tightening = Tightening(config, env.spec)
        self.random_actions = RandomActions(config.seed, env.spec.action_size)
        self.discount = Discount(config.reward_critic, env.spec.horizon)
        self.units = Units(config, env.spec.horizon, self.discount)
        self.session.keep(
            self.replay, self.tightening, self.random_actions, self.discount, self.units
        )
        self.session.files.append(self.replay)
        self._moments: RunningMoments | None = None
        if config.normalise_observations:
            self._moments = RunningMoments(env.spec.observation_size)
            self.session.keep(self._moments)
        self._observation: np.ndarray | None = None
        self._episode = RunningEpisode()

    @property
    def config(self) -> OffPolicyConfig:
        return cast(OffPolicyConfig, self.session.config)

    @property
    def run(self) -> Path:
        return self.session.run

    @property
    def spec(self) -> EnvSpec:
        return self.session.spec

    @property
    def step(self) -> int:
        """Environment steps taken so far."""
        return self.session.clock.step

    @property
    def state(self) -> agents.AgentState:
        """Everything the agent has learned."""
        return self.learner.state_of(self._place)

    @property
    def schedule(self) -> str:
        """When learning begins and the limit is enforced, for a person."""
        steps, rest = self.config.steps, self.config.multiplier_warmup_steps
        warmup = self.config.warmup_steps
        actions = "random actions" if self.random_actions.wanted else "the policy it was given"
        if steps <= warmup:
            return (
                f"learning would begin after {warmup:,} steps of {actions}, so nothing is "
                f"learned in {steps:,} (lower --warmup-steps)"
            )
        text = f"learning begins after {warmup:,} steps of {actions}; "
        if rest < steps:
            return text + f"the multiplier acts after {rest:,} steps"
        return text + (
            f"the multiplier would act after {rest:,} steps, so nothing holds this run of "
            f"{steps:,} to its cost limit (lower --multiplier-warmup-steps)"
        )

    def join(self, learner: Learner, place: int) -> None:
        """From here on ``learner`` learns for this run, its ``place``-th."""
        self.learner, self._place = learner, place

    def advance(self, until: int) -> None:
        """Trains up to step ``until``, writing logs, evaluations and checkpoints on the way."""
        advance([self], self.learner, until)

    def observation(self) -> np.ndarray:
        """What the agent sees now; begins an episode where none is running."""
        if self._observation is None:
            self._observation = self._begin_episode()
        return self._observation

    def episode_is_noiseless(self) -> bool:
        """Whether the running episode is one that the evaluated policy plays."""
        every, episodes = self.config.noiseless_every, self.session.episodes
        if every is None or episodes.count % every != every - 1:
            return False
        return bool(episodes.lengths) and 2 * episodes.lengths[-1] >= self.spec.horizon

    def _begin_episode(self) -> np.ndarray:
        seed = episode_seed(self.config.seed, Branch.TRAINING, self.session.episodes.count)
        with self.session.failures.of_env(self.step), env_failures():
            observation = as_observation(self.env.reset(seed), self.spec)
        failures, episode = self.session.failures, self.session.episodes.count
        failures.check_step(self.step, episode, observation, 0.0, 0.0)
        self.replay.begin_episode(observation)
        self._see(observation)
        self._episode = RunningEpisode()
        return observation

    def _see(self, observation: np.ndarray) -> None:
        if self._moments is not None:
            self._moments.add(observation[None])

    def normaliser(self) -> Normaliser | None:
        """The moments of all observations so far; None where they are not normalised."""
        return None if self._moments is None else self._moments.normaliser()

    def observe(self, action: np.ndarray) -> bool:
        """Takes ``action`` in the environment and stores the step; True if it ends the episode."""
        with self.session.failures.of_env(self.step), env_failures():
            step = as_step(self.env.step(action), self.spec)
        self._check_step(step.observation, step.reward, step.cost)
        self.replay.add(action, step.reward, step.cost, step.terminated, step.observation)
        self.tightening.step(self.observation(), action, step.cost)
        self.units.add(step.reward, step.cost)
        self._see(step.observation)
        self._observation = step.observation
        self._episode.add(step)
        self.session.clock.step += 1
        ended = step.terminated or step.truncated
        self.session.failures.check_length(self._episode.length, self.spec.horizon, ended=ended)
        if ended:
            if self.tightening.on:
                self.tightening.end_episode(self.state.cost_critic, terminated=step.terminated)
            episode = self._episode.finished(step)
            self.discount.end_episode(episode.length)
            self.session.episodes.add(episode)
            self._episode = RunningEpisode()
            self.session.journal.end_episode(self.step, episode, self.spec.horizon)
        self.session.lagrangian.running_cost = self._episode.cost
        return ended

    def sample(self) -> Batch:
        config = self.config
        gamma = self.discount.value
        lookahead = Lookahead(config.lookahead_steps, gamma, config.cost_critic.discount)
        scaling = config.cost_critic.cost_scaling
        batch = self.units.scaled(self.replay.sample(config.batch_size, scaling, lookahead))
        if self.discount.follows_episodes:
            batch = batch._replace(reward_discount=np.full(config.batch_size, gamma, np.float32))
        return batch

    def policy_is_due(self) -> bool:
        """Whether the next update moves the policy and the targets too."""
        return (self.session.clock.updates + 1) % self.config.policy_delay == 0

    def note_update(self, outcome: UpdateReport) -> None:
        """Counts an update, logs it, and ends the run where it is not finite."""
        self.session.clock.updates += 1
        self.session.failures.check_update(self.step, outcome.broken)
        metrics = self.units.in_task_units(outcome.names, outcome.metrics)
        self.session.journal.add_metrics(outcome.names, metrics)
        if agents.CRITIC_SIGNAL in outcome.names:
            signal = metrics[outcome.names.index(agents.CRITIC_SIGNAL)]
            self.session.lagrangian.critic_signal = float(signal)

    def move_multiplier(self) -> None:
        if self.step > self.config.multiplier_warmup_steps:
            lagrangian = self.session.lagrangian
            lagrangian.move(self.tightening.share * lagrangian.limit)

    def end_epoch(self) -> bool:
        """Writes a line of progress; True where an evaluation is due."""
        lagrangian = self.session.lagrangian
        return self.session.journal.end_epoch(
            self.step,
            signal=lagrangian.signal,
            signal_limit=lagrangian.limit * (1.0 - self.tightening.share),
            multiplier=lagrangian.value,
            more=self.tightening.metrics() | self.discount.metrics(),
        )

    def close_episode(self) -> None:
        """Saves where it is due; only after an episode's last step."""
        self._observation = None
        self.session.mark(copied(self.state))
        if self.session.checkpoint_is_due:
            self.save_checkpoint()

    def evaluate_now(self, episodes: int, *, final: bool) -> Evaluation:
        """Deterministic episodes on environments of their own, written to evaluations.jsonl."""
        # Looked up once: in a cohort it has to be cut out of the states of all runs.
        policy = self.state.policy
        return self.session.evaluate(
            lambda rows: np.asarray(self._predict(policy, rows)), episodes, final=final
        )

    def finish(self) -> None:
        """Writes the final state and policy, and the final evaluation."""
        self.save_final()
        if self.config.final_evaluation_episodes:
            self.evaluate_now(self.config.final_evaluation_episodes, final=True)

    def save_final(self) -> None:
        """Writes the present state, which may be in the middle of an episode, to predict with."""
        self.session.save_final(self.state, self.units.facts())

    def save_checkpoint(self) -> None:
        """Writes a checkpoint; only between episodes."""
        assert self._observation is None, "a checkpoint holds no simulator state"
        self.session.save_checkpoint(self.state)

    def load_checkpoint(self) -> None:
        """Returns to the newest readable checkpoint, logs included."""
        assert isinstance(self.learner, SoloLearner), "a cohort is not resumed as one"
        self.learner.state = self.session.load_checkpoint(self.state)
        self._observation = None

    def start_from(self, saved: checkpoint.Checkpoint) -> None:
        """Begins with what another run has learned, and plays no random actions."""
        assert isinstance(self.learner, SoloLearner), "a cohort does not start from a run"
        self.learner.state = learned_by(saved, self.state)
        self.discount.restore(saved.facts)
        self.units.restore(saved.facts)
        if self._moments is not None:
            self._moments.restore(saved.facts)
        self.random_actions.wanted = False

    def take_over_costs(
        self, config: OffPolicyConfig, horizon: int, facts: Mapping[str, Any]
    ) -> None:
        """Restates the cost critics' predictions, learned under ``config``, in this run's unit."""
        theirs = Units(config, horizon, Discount(config.reward_critic, horizon))
        theirs.restore(facts)
        factor = theirs.cost / self.units.cost
        assert isinstance(self.learner, SoloLearner), "a cohort does not start from a run"
        state = self.learner.state
        self.learner.state = state._replace(
            cost_critic=rescaled(state.cost_critic, factor),
            target_cost_critic=rescaled(state.target_cost_critic, factor),
        )

    def take_over_replay(
        self, config: OffPolicyConfig, run: Path, facts: Mapping[str, Any]
    ) -> None:
        """Begins with the transitions of another run of the same task."""
        theirs = replay_of(config, run, self.spec, create=False)
        theirs.restore(facts)
        self.replay.take_over(theirs)

    def close(self) -> None:
        """Gives up the run directory and the environments."""
        with contextlib.ExitStack() as closing:  # the other too where one fails
            closing.callback(self.session.close)
            if self._env_is_ours:
                closing.callback(close_env, self.env)

    def _check_step(self, observation: np.ndarray, reward: float, cost: float) -> None:
        failures, episode = self.session.failures, self.session.episodes.count
        failures.check_step(self.step, episode, observation, reward, cost)
        critic = self.config.cost_critic
        floor = critic.cost_floor
        # The floor is one of the discounted sum: below 0, a step may take only its share of it.
        if floor is not None and cost < (floor if floor > 0 else (1 - critic.discount) * floor):
            failures.fail(
                f"the environment returned a cost of {cost} at step {self.step}, below "
                f"cost_critic.cost_floor {floor}"
                f"{f' times {1 - critic.discount:g}, its share of one step' if floor < 0 else ''}"
                "; set the floor to none for signed costs"
            )
