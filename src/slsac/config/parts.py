"""The parts of a configuration: one frozen dataclass each, validated on construction.

No field has a default value: `slsac.config.presets` is the only home of numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slsac.config.checks import (
    require,
    require_above_zero,
    require_at_least,
    require_below_one,
    require_choices,
    require_widths,
)

OptimiserKind = Literal[
    "asgld", "sgld", "psgld", "preconditioned_asgld", "langevin_adam", "adam", "adamw"
]  # fmt: skip


@dataclass(frozen=True)
class OptimiserConfig:
    """An optimiser by name. Only the Langevin optimisers read the last four fields, and
    langevin_adam only the inverse temperature."""

    kind: OptimiserKind
    """The update rule; langevin.py has the formulas."""
    learning_rate: float
    """Step size."""
    beta1: float
    """Decay of the gradient's running mean."""
    beta2: float
    """Decay of the squared gradient's running mean."""
    epsilon: float
    """Added to the second moment (Adam: to its root)."""
    weight_decay: float
    """Decoupled weight decay of adamw."""
    max_gradient_norm: float | None
    """Clips the gradient's norm (per ensemble member) before anything else; none: off."""
    inverse_temperature: float
    """The factor inside the root of the noise's standard deviation sqrt(2 * lr * factor): despite
    the paper's name, a larger one means more noise."""
    bias_factor: float
    """Weight a of the adaptive term m / sqrt(v + eps) in aSGLD's drift."""
    clip_mode: Literal["drift-value", "gradient-norm", "none"]
    """What is clipped: each entry of the drift, or each member's gradient by its norm."""
    clip: float
    """Bound of the clip."""

    def __post_init__(self) -> None:
        require_choices(self)
        require_above_zero(self, "learning_rate", "epsilon", "clip")
        require_below_one(self, "beta1", "beta2")
        require_at_least(0, self, "weight_decay", "inverse_temperature")
        require(
            self.max_gradient_norm is None or self.max_gradient_norm > 0,
            "max_gradient_norm", self.max_gradient_norm, "above 0, or none",
        )  # fmt: skip


@dataclass(frozen=True)
class PolicyConfig:
    head: Literal["squashed-gaussian", "deterministic"]
    """How the network's output becomes an action."""
    hidden: tuple[int, ...]
    """Widths of the hidden layers."""
    optimiser: OptimiserConfig
    temperature: float
    """Entropy weight alpha; the starting value where it is automatic."""
    automatic_temperature: bool
    """Adapts alpha so that the entropy meets its target."""
    target_entropy: float
    """That target in nats for each action dimension, where the temperature is automatic."""
    temperature_learning_rate: float
    """Step size of Adam on log alpha, where it is automatic."""
    averaging_rate: float
    """Share by which the policy that is evaluated and saved moves towards the learning one at each
    of its updates; 1: they are the same."""
    target_network: bool
    """Next actions in the critics' targets come from a Polyak-averaged copy of the policy."""
    normalise_by_multiplier: bool
    """Divides the policy's loss by 1 + lambda."""
    log_std_min: float
    """Lower bound of the Gaussian's log standard deviation."""
    log_std_max: float
    """Upper bound of the Gaussian's log standard deviation."""
    exploration_noise: float
    """Standard deviation of the noise on a deterministic policy's actions while training."""
    target_noise: float
    """Standard deviation of the noise on next actions in the critics' targets (smoothing)."""
    target_noise_clip: float
    """Bound of the noise in the critics' targets."""

    def __post_init__(self) -> None:
        require_choices(self)
        require_at_least(
            0, self, "temperature", "exploration_noise", "target_noise", "target_noise_clip"
        )
        require_above_zero(self, "temperature_learning_rate")
        require(0 < self.averaging_rate <= 1, "averaging_rate", self.averaging_rate, "in (0, 1]")
        require(
            not self.automatic_temperature or self.temperature > 0,
            "temperature", self.temperature, "above 0 where it is automatic",
        )  # fmt: skip
        require(
            self.log_std_min < self.log_std_max,
            "log_std_min", self.log_std_min, "below log_std_max",
        )  # fmt: skip
        require_widths(self, "hidden")
        require(
            self.head != "deterministic" or not self.automatic_temperature,
            "automatic_temperature", self.automatic_temperature, "false for a deterministic head",
        )  # fmt: skip


@dataclass(frozen=True)
class RewardCriticConfig:
    pairs: int
    """Number M of twin pairs."""
    aggregation: Literal["mean-min", "min-min"]
    """Mean over pairs of the twins' minimum, or one minimum over all critics."""
    hidden: tuple[int, ...]
    """Widths of the hidden layers."""
    layer_norm: bool
    """Normalises the features of each hidden layer before its ReLU."""
    discount: float
    """Discount gamma of rewards; the smallest where discount_span is set."""
    discount_span: float | None
    """Makes 1 / (1 - gamma) this share of the recent mean episode length; none: gamma is fixed.
    Where episodes end early, by a fall say, a long view makes the agent too careful to move."""
    largest_discount: float
    """The largest gamma, where discount_span is set."""
    optimiser: OptimiserConfig

    def __post_init__(self) -> None:
        require_choices(self)
        require_at_least(1, self, "pairs")
        require_below_one(self, "discount", "largest_discount")
        require(
            self.discount_span is None or self.discount_span > 0,
            "discount_span", self.discount_span, "above 0, or none",
        )  # fmt: skip
        require(
            self.discount_span is None or self.discount <= self.largest_discount,
            "discount", self.discount, "at most largest_discount",
        )  # fmt: skip
        require_widths(self, "hidden")


@dataclass(frozen=True)
class CostCriticConfig:
    kind: Literal["quantile", "scalar"]
    """Quantile: learns the cost's distribution and charges a risk measure of it. Scalar: learns and
    charges its mean."""
    risk_measure: Literal["cvar", "mean", "entropic", "mean-deviation", "worst-quantile"]
    """The risk that a quantile critic charges the policy for; risk.py has the formulas."""
    risk_aversion: float
    """Entropic: theta, in 1 / cost as the critic sees it (see units and cost_scaling).
    Mean-deviation: number of standard deviations."""
    members: int
    """Number of critics. Their highest prediction is used, in targets (at each fraction) and to
    charge the policy, which seeks out what a single critic underestimates."""
    target_action: Literal["shared", "online-mean"]
    """Next action of the target: the reward critics', or the online policy's mean (OmniSafe)."""
    cost_scaling: Literal["none", "deviation", "standardised"]
    """What is done to costs before the critic sees them, with the mean and standard deviation of
    all costs so far: divided by the deviation, or also shifted and clipped to +-5 (OmniSafe)."""
    merge: Literal["late", "hidden"]
    """Where the quantile features enter: after both hidden layers, or between them."""
    fractions: Literal["shared", "per-sample"]
    """One draw of quantile fractions for the minibatch, or one for each transition."""
    stratified: bool
    """Draws the i-th of N fractions from [i/N, (i+1)/N] instead of [0, 1]."""
    quantiles: int
    """Number N of fractions in losses and in CVaR."""
    embedding: int
    """Number of cosine features of a fraction."""
    huber_threshold: float
    """Where the quantile Huber loss turns from quadratic to linear (kappa)."""
    cost_floor: float | None
    """Least possible cost-to-go: targets and the policy's charge are kept above it; none: off."""
    after_termination: Literal["free", "continued"]
    """What follows once the task has ended: no further cost, or the cost that the critic predicts
    for the last state. Where it is free a policy may end an episode, by falling say, to save cost.
    """
    hidden: tuple[int, ...]
    """Widths of the hidden layers."""
    layer_norm: bool
    """Normalises the features of each hidden layer before its ReLU."""
    discount: float
    """Discount gamma_c of costs."""
    optimiser: OptimiserConfig

    def __post_init__(self) -> None:
        require_choices(self)
        require(
            self.risk_aversion >= 0 and (self.risk_measure != "entropic" or self.risk_aversion > 0),
            "risk_aversion", self.risk_aversion, "at least 0, and above 0 for the entropic measure",
        )  # fmt: skip
        require_at_least(1, self, "members", "quantiles", "embedding")
        require_above_zero(self, "huber_threshold")
        require_below_one(self, "discount")
        require_widths(self, "hidden")
        require(
            self.merge == "late" or len(self.hidden) >= 2,
            "hidden", self.hidden, "at least two layers where merge is hidden",
        )  # fmt: skip
        require(
            self.cost_scaling != "standardised" or self.cost_floor is None,
            "cost_floor", self.cost_floor, "none where cost_scaling is standardised",
        )  # fmt: skip


@dataclass(frozen=True)
class MultiplierConfig:
    signal: Literal["empirical-cvar", "mean", "recent-cvar", "critic"]
    """What is compared with the limit: CVaR or mean of the window's episode costs, CVaR of the
    episodes that ended lately, or what the critic would charge for replayed actions (compared with
    the discounted limit)."""
    rule: Literal["ascent", "balanced", "adam", "pid", "softplus", "relative"]
    """How the multiplier reacts to a violation; multiplier.py has the formulas."""
    learning_rate: float
    """Step size eta."""
    initial: float
    """Value before the first update."""
    window: int
    """empirical-cvar and mean signals: how many of the most recent episodes count."""
    recent_horizons: float
    """recent-cvar signal: how long ago an episode may have ended, in lengths of a whole episode."""
    minimum: float
    """relative rule: lower bound. Below 0, critic_gain prices only states well over the unit of
    cost. Never below 0 if cost_limit is 0."""
    maximum: float
    """Upper bound; the pid rule's integral stops there as well (anti-windup)."""
    reserve: float
    """The signal is held at (1 - reserve) times the limit: one held at the limit itself is over it
    half of the time."""
    proportional_gain: float
    """pid rule: weight of the smoothed violation."""
    integral_gain: float
    """pid and relative rules: weight of each violation added to the integral. relative: times 500 /
    horizon where an episode has fewer than 500 steps."""
    critic_gain: float
    """Weight of what the cost critic charges for a state beyond the unit of cost (the limit, unless
    it is small beside a step's cost), added to the multiplier there (0: none); it answers at once
    where episodes answer late."""
    critic_bound: float
    """Largest size of that part."""
    derivative_gain: float
    """pid rule: weight of a rise of the smoothed signal."""
    smoothing: float
    """pid rule: share of the old value kept in its two running means."""
    derivative_delay: int
    """pid rule: updates over which a rise is measured."""
    damping: float
    """softplus rule: weight of the present violation added to the multiplier."""
    tighten: bool
    """Lowers the enforced limit by the CVaR error that the cost critic's measured error allows."""
    tightening_window: int
    """How many of the most recent episodes that error is measured on."""
    largest_tightening: float
    """Largest share of the limit that tightening may take away."""

    def __post_init__(self) -> None:
        require_choices(self)
        require_at_least(0, self, "learning_rate", "initial", "damping")
        require_at_least(0, self, "proportional_gain", "integral_gain", "derivative_gain")
        require_at_least(1, self, "window", "derivative_delay")
        require_at_least(2, self, "tightening_window")
        require_above_zero(self, "maximum", "recent_horizons")
        require_at_least(0, self, "critic_gain", "critic_bound")
        require_below_one(self, "smoothing", "largest_tightening", "reserve")
        require(self.initial <= self.maximum, "initial", self.initial, "at most maximum")
        require(
            self.rule != "relative" or self.minimum <= self.initial,
            "initial", self.initial, "at least minimum for the relative rule",
        )  # fmt: skip
        require(
            self.rule != "softplus" or 1e-12 <= self.initial <= 500,
            "initial", self.initial, "in [1e-12, 500] for the softplus rule",
        )  # fmt: skip


@dataclass(frozen=True)
class MetaDriveConfig:
    """The simulator of MetaDriveSafe-v0; other tasks have no such part."""

    blocks: int
    """Road blocks of a map, after the straight piece at its start."""
    straight: float
    """Probability that a block is a straight road; the five probabilities sum to 1."""
    curve: float
    """Probability of a curve."""
    intersection: float
    """Probability of a crossing of four roads."""
    t_intersection: float
    """Probability of a crossing of three roads."""
    roundabout: float
    """Probability of a roundabout."""
    traffic_density: float
    """Vehicles per spawn point; spawn points are 10 m apart on every lane."""
    obstacle_probability: float
    """Probability of cones, barriers or a broken-down car on a straight or curved block."""
    lasers: int
    """Rays of the lidar, evenly spread over 360 degrees, 50 m long."""
    lidar: Literal["closeness", "distance"]
    """What a ray reports: 1 - distance / 50 m (0 with nothing in reach), or distance / 50 m."""
    violation_penalty: float
    """A step in violation earns minus this, in place of its usual reward."""
    end_at_violation: bool
    """A collision or leaving the road ends the episode, so that its cost is 0 or 1."""
    horizon: int
    """Steps of 0.1 s after which an episode is truncated."""
    training_scenarios: int
    """Number of scenarios that training draws from; they are numbered from 0."""
    test_scenarios: int
    """Number of held-out scenarios that evaluation draws from."""
    first_test_scenario: int
    """Number of the first held-out scenario."""

    def __post_init__(self) -> None:
        require_choices(self)
        shares = ("straight", "curve", "intersection", "t_intersection", "roundabout")
        for name in shares:
            require(0 <= getattr(self, name) <= 1, name, getattr(self, name), "in [0, 1]")
        for name in ("traffic_density", "obstacle_probability"):
            value = getattr(self, name)
            # The simulator silently treats 0.01 and less as 0.
            require(value == 0 or 0.01 < value <= 1, name, value, "0, or above 0.01 and at most 1")
        total = sum(getattr(self, name) for name in shares)
        require(
            abs(total - 1) < 1e-6,
            "straight", self.straight, f"such that {' + '.join(shares)} is 1, not {total:g}",
        )  # fmt: skip
        require_at_least(0, self, "violation_penalty")
        require_at_least(
            1, self, "blocks", "lasers", "horizon", "training_scenarios", "test_scenarios"
        )
        require(
            self.first_test_scenario >= self.training_scenarios,
            "first_test_scenario", self.first_test_scenario,
            f"at least training_scenarios, {self.training_scenarios}: no scenario may be in both",
        )  # fmt: skip


@dataclass(frozen=True)
class GaussianPolicyConfig:
    hidden: tuple[int, ...]
    """Widths of the hidden layers."""
    initial_log_std: float
    """Log standard deviation of every action at the start; it does not depend on the state."""
    optimiser: OptimiserConfig

    def __post_init__(self) -> None:
        require_widths(self, "hidden")


@dataclass(frozen=True)
class ValueCriticConfig:
    hidden: tuple[int, ...]
    """Widths of the hidden layers."""
    discount: float
    """Discount gamma of rewards, or of costs."""
    trace_decay: float
    """The lambda of generalised advantage estimation."""
    weight_penalty: float
    """Weight of the sum of squared parameters in the critic's loss."""
    optimiser: OptimiserConfig

    def __post_init__(self) -> None:
        require_below_one(self, "discount")
        require(0 <= self.trace_decay <= 1, "trace_decay", self.trace_decay, "in [0, 1]")
        require_at_least(0, self, "weight_penalty")
        require_widths(self, "hidden")


@dataclass(frozen=True)
class ClippedConfig:
    """PPO's policy update; on_policy/ppo_lag.py has the formulas."""

    ratio: float
    """How far the probability ratio may move from 1 before its gain is cut off."""
    maximum_kl: float
    """No further pass once the KL divergence from the epoch's first policy is above this."""
    learning_rate_decay: Literal["none", "linear"]
    """Linear: the policy's step size falls to 0 at the run's last step, so that ``steps`` cannot be
    changed once the run has begun."""

    def __post_init__(self) -> None:
        require_choices(self)
        require(0 < self.ratio < 1, "ratio", self.ratio, "in (0, 1)")
        require_above_zero(self, "maximum_kl")


@dataclass(frozen=True)
class TrustRegionConfig:
    """CPO's policy update; on_policy/cpo.py has the formulas."""

    maximum_kl: float
    """Largest KL divergence delta of one update."""
    kl_over_actions: Literal["sum", "mean"]
    """KL of an action vector: the sum over its dimensions, or their mean (OmniSafe)."""
    violation_unit: Literal["per-step", "per-episode"]
    """What the constraint's gradient, which is per step, is compared with: the violation divided by
    the mean length of an episode, or the violation itself (OmniSafe)."""
    conjugate_gradient_steps: int
    """Steps of each conjugate-gradient solve."""
    damping: float
    """Multiple of the identity added to the Fisher matrix."""
    line_search_steps: int
    """Step lengths tried, the full step first."""
    line_search_decay: float
    """Factor from one step length to the next."""

    def __post_init__(self) -> None:
        require_choices(self)
        require_above_zero(self, "maximum_kl")
        require_at_least(0, self, "damping")
        require_at_least(1, self, "conjugate_gradient_steps", "line_search_steps")
        require(
            0 < self.line_search_decay < 1,
            "line_search_decay", self.line_search_decay, "in (0, 1)",
        )  # fmt: skip
