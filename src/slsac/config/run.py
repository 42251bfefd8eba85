"""The configuration of a whole run, off-policy or on-policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slsac.config.checks import require, require_above_zero, require_at_least, require_choices
from slsac.config.parts import (
    ClippedConfig,
    CostCriticConfig,
    GaussianPolicyConfig,
    MetaDriveConfig,
    MultiplierConfig,
    PolicyConfig,
    RewardCriticConfig,
    TrustRegionConfig,
    ValueCriticConfig,
)


@dataclass(frozen=True)
class RunConfig:
    """The fields that every run has; clocks count environment steps, over all environments.

    A base class because the fields of a run stand side by side in ``config.json`` and on the
    command line; as a part of its own they would move one level down.
    """

    algo: str
    """Name of a preset, as `slsac algos` lists them."""
    env: str
    """Task id, as `slsac envs` lists them, any Gymnasium id, or ``module:Id-v0``."""
    seed: int
    """Seed of everything random."""
    steps: int
    """Environment steps in all. On-policy: a multiple of num_envs, and steps after the last whole
    epoch are not learned from."""
    cost_limit: float
    """Limit on an episode's undiscounted cost: on the mean of the worst tail_fraction of episodes,
    or of all where multiplier.signal is mean. Single episodes may exceed it."""
    tail_fraction: float
    """Share eps of worst outcomes that CVaR averages; 1 is the plain mean."""
    batch_size: int
    """Transitions in a minibatch."""
    steps_per_epoch: int
    """Steps between two lines of progress.jsonl. On-policy: also between two updates."""
    evaluate_every_epochs: int
    """Epochs between two evaluations during training."""
    evaluation_episodes: int
    """Deterministic episodes of an evaluation during training."""
    final_evaluation_episodes: int
    """Deterministic episodes at the end; 0: none."""
    checkpoint_every_steps: int
    """A checkpoint is written at the first episode end (on-policy: epoch end) this many steps
    after the last one."""
    normalise_observations: bool
    """Shifts and scales observations by their running mean and deviation."""
    observation_clip: float
    """Bound of a normalised observation's entries."""


@dataclass(frozen=True)
class OffPolicyConfig(RunConfig):
    """Everything that determines an off-policy run."""

    warmup_steps: int
    """Uniform random actions and no updates up to here."""
    multiplier_warmup_steps: int
    """The multiplier does not move up to here."""
    policy_delay: int
    """The policy and all target networks are updated on every n-th critic update."""
    polyak: float
    """Share by which target networks move towards the online ones."""
    replay_capacity: int
    """Most recent transitions that minibatches are drawn from."""
    lookahead_steps: int
    """Steps of real rewards and costs in a target, before the critics' estimate of the rest."""
    noiseless_every: int | None
    """Every n-th episode is played without noise, by the policy that is evaluated and saved, so
    that the multiplier sees its cost. Not while episodes end before half their time: an agent that
    still falls must explore. None: never."""
    closeness_rates: tuple[float, ...]
    """For each rate k, networks are also given 3 exp(-k (1 - x)) of every entry x that the env says
    is a closeness, so that what lies right ahead has inputs of its own. Empty: they are not."""
    units: Literal["task", "scale-free"]
    """What the networks learn in: the task's own rewards and costs, or rewards scaled so that their
    mean size so far, at every step, is worth 10, and costs in units of the discounted limit,
    or of a twentieth of the largest cost of a step so far where that is more."""
    policy: PolicyConfig
    reward_critic: RewardCriticConfig
    cost_critic: CostCriticConfig
    multiplier: MultiplierConfig
    metadrive: MetaDriveConfig | None
    """Settings of the simulator, for MetaDriveSafe-v0 only."""

    def __post_init__(self) -> None:
        require_choices(self)
        _check_run(self)
        require(0 < self.polyak <= 1, "polyak", self.polyak, "in (0, 1]")
        require_at_least(0, self, "warmup_steps", "multiplier_warmup_steps")
        require_at_least(1, self, "policy_delay", "replay_capacity", "lookahead_steps")
        require(
            self.noiseless_every is None or self.noiseless_every > 0,
            "noiseless_every", self.noiseless_every, "above 0, or none",
        )  # fmt: skip
        require(
            self.cost_critic.cost_scaling == "none" or self.multiplier.signal != "critic",
            "cost_critic.cost_scaling", self.cost_critic.cost_scaling,
            "none where multiplier.signal is critic",
        )  # fmt: skip
        require(
            all(rate > 0 for rate in self.closeness_rates),
            "closeness_rates", ",".join(map(str, self.closeness_rates)), "numbers above 0, or none",
        )  # fmt: skip
        raw = not self.normalise_observations and not self.closeness_rates
        require(
            (self.units == "task" and raw) or not self.multiplier.tighten,
            "multiplier.tighten", self.multiplier.tighten,
            "false unless units is task, normalise_observations is false and closeness_rates none",
        )  # fmt: skip
        require(
            self.units == "task" or not self.cost_critic.cost_floor,
            "cost_critic.cost_floor", self.cost_critic.cost_floor,
            "0 or none where units is scale-free",
        )  # fmt: skip
        require(
            self.multiplier.minimum > -1 or not self.policy.normalise_by_multiplier,
            "multiplier.minimum", self.multiplier.minimum,
            "above -1 where policy.normalise_by_multiplier is true",
        )  # fmt: skip
        require(
            self.units == "scale-free" or self.multiplier.critic_gain == 0,
            "multiplier.critic_gain", self.multiplier.critic_gain, "0 unless units is scale-free",
        )  # fmt: skip
        require(
            self.units == "task" or self.cost_critic.cost_scaling == "none",
            "cost_critic.cost_scaling", self.cost_critic.cost_scaling,
            "none where units is scale-free",
        )  # fmt: skip
        require(
            not self.multiplier.tighten
            or (self.cost_critic.kind == "quantile" and self.cost_critic.cost_scaling == "none"),
            "multiplier.tighten", self.multiplier.tighten,
            "false unless cost_critic.kind is quantile and cost_critic.cost_scaling none",
        )  # fmt: skip


@dataclass(frozen=True)
class OnPolicyConfig(RunConfig):
    """Everything that determines an on-policy run."""

    num_envs: int
    """Environments stepped side by side."""
    worker_processes: int
    """Processes the environments are spread over; 0: all in the training process. Results do not
    depend on it."""
    policy_update: Literal["clipped", "trust-region"]
    """PPO's surrogate, or CPO's constrained step."""
    passes: int
    """Passes over an epoch's steps: of policy and critics (clipped), or of the critics alone."""
    policy: GaussianPolicyConfig
    reward_critic: ValueCriticConfig
    cost_critic: ValueCriticConfig
    clipped: ClippedConfig
    trust_region: TrustRegionConfig
    multiplier: MultiplierConfig
    metadrive: MetaDriveConfig | None
    """Settings of the simulator, for MetaDriveSafe-v0 only."""

    def __post_init__(self) -> None:
        require_choices(self)
        _check_run(self)
        require_at_least(1, self, "num_envs", "passes")
        require(
            0 <= self.worker_processes <= self.num_envs,
            "worker_processes", self.worker_processes, f"in [0, num_envs = {self.num_envs}]",
        )  # fmt: skip
        require(
            self.steps_per_epoch % self.num_envs == 0,
            "num_envs", self.num_envs, f"a divisor of steps_per_epoch = {self.steps_per_epoch}",
        )  # fmt: skip
        require(
            self.steps % self.num_envs == 0,
            "steps", self.steps, f"a multiple of num_envs = {self.num_envs}",
        )  # fmt: skip
        require(
            self.batch_size <= self.steps_per_epoch,
            "batch_size", self.batch_size, "at most steps_per_epoch",
        )  # fmt: skip
        require(
            self.multiplier.signal in ("mean", "empirical-cvar"),
            "multiplier.signal", self.multiplier.signal, "mean or empirical-cvar on-policy",
        )  # fmt: skip
        require(
            self.policy_update == "clipped" or self.multiplier.signal == "mean",
            "multiplier.signal", self.multiplier.signal,
            "mean where policy_update is trust-region",
        )  # fmt: skip
        require(
            not self.multiplier.tighten,
            "multiplier.tighten", self.multiplier.tighten, "false on-policy",
        )  # fmt: skip
        require(
            self.multiplier.rule != "relative" or self.multiplier.minimum >= 0,
            "multiplier.minimum", self.multiplier.minimum, "at least 0 on-policy",
        )  # fmt: skip
        require(
            self.multiplier.critic_gain == 0,
            "multiplier.critic_gain", self.multiplier.critic_gain, "0 on-policy",
        )  # fmt: skip
        for part in ("policy", "reward_critic", "cost_critic"):
            kind = getattr(self, part).optimiser.kind
            require(
                kind in ("adam", "adamw"), f"{part}.optimiser.kind", kind, "adam or adamw on-policy"
            )

    @property
    def learning_rate_decays(self) -> bool:
        """Whether the policy's step size depends on the run's number of steps."""
        return self.policy_update == "clipped" and self.clipped.learning_rate_decay == "linear"


Config = OffPolicyConfig | OnPolicyConfig


def _check_run(config: Config) -> None:
    """Raise InvalidInput unless the fields that every run has are valid."""
    require(
        config.env.isprintable() and config.env != "", "env", repr(config.env), "printable text"
    )
    require(0 <= config.seed < 2**32, "seed", config.seed, "in [0, 2**32)")
    require_at_least(0, config, "cost_limit", "final_evaluation_episodes")
    require_at_least(1, config, "steps", "batch_size", "steps_per_epoch", "evaluate_every_epochs")
    require_at_least(1, config, "evaluation_episodes", "checkpoint_every_steps")
    require_above_zero(config, "observation_clip")
    require(
        config.cost_limit > 0 or config.multiplier.rule != "balanced",
        "cost_limit", config.cost_limit, "above 0 where multiplier.rule is balanced",
    )  # fmt: skip
    require(0 < config.tail_fraction <= 1, "tail_fraction", config.tail_fraction, "in (0, 1]")
