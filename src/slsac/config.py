"""The configuration of a run: one frozen dataclass per part, validated on construction.

There are no default values here; `slsac.presets` is the only home of numbers.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from slsac.errors import InvalidInput, unknown_name

OptimiserKind = Literal["asgld", "sgld", "psgld", "preconditioned_asgld", "adam", "adamw"]


def _require(ok: bool, field: str, value: object, allowed: str) -> None:
    if not ok:
        raise InvalidInput(f"{field} is {value}; it must be {allowed}")


@dataclass(frozen=True)
class OptimiserConfig:
    """An optimiser by name; the last five fields are read by the Langevin ones only."""

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
    """The factor inside the root of the noise's standard deviation sqrt(2 * lr * factor)."""
    bias_factor: float
    """Weight a of the adaptive term m / sqrt(v + eps) in aSGLD's drift."""
    clip_mode: Literal["drift-value", "gradient-norm", "none"]
    """What is clipped: each entry of the drift, or each member's gradient by its norm."""
    clip: float
    """Bound of the clip."""

    def __post_init__(self) -> None:
        _require(self.learning_rate > 0, "learning_rate", self.learning_rate, "above 0")
        _require(0 <= self.beta1 < 1, "beta1", self.beta1, "in [0, 1)")
        _require(0 <= self.beta2 < 1, "beta2", self.beta2, "in [0, 1)")
        _require(self.epsilon > 0, "epsilon", self.epsilon, "above 0")
        _require(
            self.inverse_temperature >= 0,
            "inverse_temperature",
            self.inverse_temperature,
            "at least 0",
        )
        _require(self.clip > 0, "clip", self.clip, "above 0")
        _require(
            self.max_gradient_norm is None or self.max_gradient_norm > 0,
            "max_gradient_norm", self.max_gradient_norm, "above 0, or none",
        )  # fmt: skip


@dataclass(frozen=True)
class PolicyConfig:
    head: Literal["squashed-gaussian"]
    """How actions are made from the network's output."""
    hidden: tuple[int, ...]
    """Widths of the hidden layers."""
    optimiser: OptimiserConfig
    temperature: float
    """Entropy weight alpha; the starting value where it is automatic."""
    automatic_temperature: bool
    """Adapts alpha so that the entropy meets the target -|A|."""
    target_network: bool
    """Next actions in the critics' targets come from a Polyak-averaged copy of the policy."""
    normalise_by_multiplier: bool
    """Divides the policy's loss by 1 + lambda."""
    log_std_min: float
    """Lower bound of the Gaussian's log standard deviation."""
    log_std_max: float
    """Upper bound of the same."""

    def __post_init__(self) -> None:
        _require(self.temperature >= 0, "temperature", self.temperature, "at least 0")
        _require(
            not self.automatic_temperature or self.temperature > 0,
            "temperature", self.temperature, "above 0 where it is automatic",
        )  # fmt: skip
        _require(
            self.log_std_min < self.log_std_max,
            "log_std_min", self.log_std_min, "below log_std_max",
        )  # fmt: skip
        _require_widths("hidden", self.hidden)


@dataclass(frozen=True)
class RewardCriticConfig:
    pairs: int
    """Number M of twin pairs."""
    aggregation: Literal["mean-min", "min-min"]
    """Mean over pairs of the twins' minimum, or one minimum over all critics."""
    hidden: tuple[int, ...]
    """Widths of the hidden layers."""
    discount: float
    """Discount gamma of rewards."""
    optimiser: OptimiserConfig

    def __post_init__(self) -> None:
        _require(self.pairs >= 1, "pairs", self.pairs, "at least 1")
        _require(0 <= self.discount < 1, "discount", self.discount, "in [0, 1)")
        _require_widths("hidden", self.hidden)


@dataclass(frozen=True)
class CostCriticConfig:
    kind: Literal["quantile"]
    """Quantile: the whole distribution, and CVaR is charged."""
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
    hidden: tuple[int, ...]
    """Widths of the hidden layers."""
    discount: float
    """Discount gamma_c of costs."""
    optimiser: OptimiserConfig

    def __post_init__(self) -> None:
        _require(self.quantiles >= 1, "quantiles", self.quantiles, "at least 1")
        _require(self.embedding >= 1, "embedding", self.embedding, "at least 1")
        _require(self.huber_threshold > 0, "huber_threshold", self.huber_threshold, "above 0")
        _require(0 <= self.discount < 1, "discount", self.discount, "in [0, 1)")
        _require_widths("hidden", self.hidden)
        _require(
            self.merge == "late" or len(self.hidden) >= 2,
            "hidden", self.hidden, "at least two layers where merge is hidden",
        )  # fmt: skip


@dataclass(frozen=True)
class MultiplierConfig:
    signal: Literal["empirical-cvar", "mean"]
    """What is held against the limit: the CVaR or the mean of the window's episode costs."""
    rule: Literal["ascent", "adam"]
    """How the multiplier reacts to a violation; multiplier.py has the formulas."""
    learning_rate: float
    """Step size eta."""
    initial: float
    """Value before the first update."""
    window: int
    """How many of the most recent episodes the signal is computed from."""

    def __post_init__(self) -> None:
        _require(self.learning_rate >= 0, "learning_rate", self.learning_rate, "at least 0")
        _require(self.initial >= 0, "initial", self.initial, "at least 0")
        _require(self.window >= 1, "window", self.window, "at least 1")


@dataclass(frozen=True)
class Config:
    """Everything that determines a run. Clocks are counted in environment steps."""

    algo: str
    """Name of a preset, as `slsac algos` lists them."""
    env: str
    """Task id, as `slsac envs` lists them, or any Gymnasium id."""
    seed: int
    """Seed of everything random."""
    steps: int
    """Environment steps in all."""
    cost_limit: float
    """Largest allowed cost of an episode, undiscounted."""
    tail_fraction: float
    """Share eps of worst outcomes that CVaR averages; 1 is the plain mean."""
    warmup_steps: int
    """Uniform random actions and no updates up to here."""
    multiplier_warmup_steps: int
    """The multiplier does not move up to here."""
    policy_delay: int
    """The policy and all target networks are updated on every n-th critic update."""
    polyak: float
    """Share by which target networks move towards the online ones."""
    batch_size: int
    """Transitions in a minibatch."""
    replay_capacity: int
    """Most recent transitions that minibatches are drawn from."""
    steps_per_epoch: int
    """Steps between two lines of progress.jsonl."""
    evaluate_every_epochs: int
    """Epochs between two evaluations during training."""
    evaluation_episodes: int
    """Deterministic episodes of an evaluation during training."""
    final_evaluation_episodes: int
    """Deterministic episodes at the end; 0: none."""
    checkpoint_every_steps: int
    """A checkpoint is written at the first episode end this many steps after the last one."""
    policy: PolicyConfig
    reward_critic: RewardCriticConfig
    cost_critic: CostCriticConfig
    multiplier: MultiplierConfig

    def __post_init__(self) -> None:
        _require(0 <= self.seed < 2**32, "seed", self.seed, "in [0, 2**32)")
        _require(self.cost_limit >= 0, "cost_limit", self.cost_limit, "at least 0")
        _require(0 < self.tail_fraction <= 1, "tail_fraction", self.tail_fraction, "in (0, 1]")
        _require(0 < self.polyak <= 1, "polyak", self.polyak, "in (0, 1]")
        for name in ("warmup_steps", "multiplier_warmup_steps", "final_evaluation_episodes"):
            _require(getattr(self, name) >= 0, name, getattr(self, name), "at least 0")
        for name in (
            "steps", "policy_delay", "batch_size", "replay_capacity", "steps_per_epoch",
            "evaluate_every_epochs", "evaluation_episodes", "checkpoint_every_steps",
        ):  # fmt: skip
            _require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")


def _require_widths(field: str, widths: tuple[int, ...]) -> None:
    _require(
        len(widths) > 0 and all(width >= 1 for width in widths),
        field, widths, "one or more layer widths of at least 1",
    )  # fmt: skip


def to_dict(config: Any) -> dict[str, Any]:
    """A JSON-ready dict of a config, nested as the dataclasses are."""
    return dataclasses.asdict(config)


def from_dict(values: Mapping[str, Any], kind: type = Config, prefix: str = "") -> Any:
    """Rebuilds a config from `to_dict`'s output; every field must be there and no other."""
    hints = typing.get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind)]
    for name in values:
        if name not in names:
            raise unknown_name("config field", prefix + name, [prefix + known for known in names])
    fields = {}
    for name in names:
        if name not in values:
            raise InvalidInput(f"config field {prefix}{name} is missing")
        fields[name] = _coerce(values[name], hints[name], prefix + name)
    return _construct(kind, fields, prefix)


def with_overrides(config: Any, overrides: Mapping[str, Any], prefix: str = "") -> Any:
    """A copy of ``config`` with fields replaced.

    Args:
        overrides: values by dotted name (``reward_critic.pairs``), or nested mappings; text is
            converted to the field's type, so that flags, YAML and Python share this one way in.
    """
    kind = type(config)
    hints = typing.get_type_hints(kind)
    here: dict[str, Any] = {}
    below: dict[str, dict[str, Any]] = {}
    for name, value in overrides.items():
        head, _, rest = name.replace("-", "_").partition(".")
        if head not in hints or (rest and not dataclasses.is_dataclass(hints[head])):
            raise _unknown_field(prefix + name.replace("-", "_"), field_names())
        if rest:
            below.setdefault(head, {})[rest] = value
        elif dataclasses.is_dataclass(hints[head]) and isinstance(value, Mapping):
            below.setdefault(head, {}).update(value)
        else:
            here[head] = _coerce(value, hints[head], prefix + head)
    for head, nested in below.items():
        here[head] = with_overrides(getattr(config, head), nested, f"{prefix}{head}.")
    fields = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    return _construct(kind, fields | here, prefix)


def field_names(kind: type = Config, prefix: str = "") -> list[str]:
    """The dotted name of every field that holds a value."""
    names = []
    for name, hint in typing.get_type_hints(kind).items():
        if dataclasses.is_dataclass(hint):
            names += field_names(typing.cast(type, hint), f"{prefix}{name}.")
        else:
            names.append(prefix + name)
    return names


def _unknown_field(name: str, known: list[str]) -> InvalidInput:
    same_leaf = [other for other in known if other.rpartition(".")[2] == name.rpartition(".")[2]]
    if same_leaf:
        return InvalidInput(
            f"config field {name!r} does not exist; did you mean {' or '.join(same_leaf)}?"
        )
    return unknown_name("config field", name, known)


def _construct(kind: type, fields: dict[str, Any], prefix: str) -> Any:
    try:
        return kind(**fields)
    except InvalidInput as error:
        # Parts validate themselves and do not know where they hang; nested errors already do.
        text = str(error)
        named = text.partition(" ")[0] in fields
        raise InvalidInput(prefix + text if named else text) from None


def _coerce(value: Any, hint: Any, name: str) -> Any:
    """``value`` as the type that ``hint`` asks for, or an error that names the field."""
    origin = typing.get_origin(hint)
    if dataclasses.is_dataclass(hint):
        if isinstance(value, typing.cast(type, hint)):
            return value
        if isinstance(value, Mapping):
            return from_dict(value, typing.cast(type, hint), f"{name}.")
        raise InvalidInput(f"{name} is {value!r}; it is a group of fields, set one of them")
    if origin is types.UnionType:
        if value is None or (isinstance(value, str) and value.lower() == "none"):
            return None
        return _coerce(value, typing.get_args(hint)[0], name)
    if origin is Literal:
        allowed = typing.get_args(hint)
        if value in allowed:
            return value
        raise InvalidInput(f"{name} is {value!r}; it must be one of {', '.join(allowed)}")
    if origin is tuple:
        parts = value.strip("()[] ").split(",") if isinstance(value, str) else value
        if not isinstance(parts, (list, tuple)):
            raise InvalidInput(f"{name} is {value!r}; it must be a list of whole numbers")
        return tuple(_coerce(part, int, name) for part in parts if part != "")
    if hint is bool:
        words = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
        if isinstance(value, str) and value.lower() in words:
            return words[value.lower()]
        if isinstance(value, bool):
            return value
        raise InvalidInput(f"{name} is {value!r}; it must be true or false")
    if hint is int:
        try:
            # Text goes through float, so that 1e6 is a whole number too.
            number = float(value) if isinstance(value, str) else value
            if not isinstance(value, bool) and number == int(number):
                return int(number)
        except (TypeError, ValueError, OverflowError):
            pass
        raise InvalidInput(f"{name} is {value!r}; it must be a whole number")
    if hint is float:
        try:
            if not isinstance(value, bool) and math.isfinite(float(value)):
                return float(value)
        except (TypeError, ValueError):
            pass
        raise InvalidInput(f"{name} is {value!r}; it must be a finite number")
    if not isinstance(value, str):
        raise InvalidInput(f"{name} is {value!r}; it must be text")
    return value
