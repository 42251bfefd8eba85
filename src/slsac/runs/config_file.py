"""``config.json``: written when a run begins, read back, and brought up to date where it is old."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from slsac.config import Config, OffPolicyConfig, OnPolicyConfig
from slsac.config.overrides import from_dict, to_dict, with_overrides
from slsac.config.presets import preset
from slsac.errors import InvalidInput, brief, unknown_name
from slsac.runs import identity, schema
from slsac.runs.layout import CONFIG, write_atomically
from slsac.runs.schema import Optional, list_of, nullable, number, positive, record, text, whole
from slsac.tasks import family
from slsac.types import EnvSpec

PROVENANCE = record(
    {
        "cores": Optional(whole),
        "together": Optional(whole),
        "commit": Optional(nullable(text)),
        "versions": Optional(record({}, others=nullable(text))),
        "before_resume": Optional(record({})),
    }
)
SPEC = record(
    {
        "observation_size": positive,
        "action_size": positive,
        "horizon": positive,
        "action_low": list_of(number),
        "action_high": list_of(number),
        "closeness": Optional(list_of(whole)),
    }
)
FILE = record(
    {
        "algo": text,
        "env": text,
        "spec": SPEC,
        "provenance": PROVENANCE,
        "identity": Optional(record({"run": text, "config": text})),
    }
)
"""What is checked here of a ``config.json``; `from_dict` checks the fields of the config."""

LATER_FIELDS = (
    "metadrive",
    "metadrive.lidar",
    "closeness_rates",
    "lookahead_steps",
    "noiseless_every",
    "normalise_observations",
    "observation_clip",
    "units",
    "cost_critic.after_termination",
    "cost_critic.cost_scaling",
    "cost_critic.layer_norm",
    "cost_critic.members",
    "cost_critic.risk_aversion",
    "cost_critic.risk_measure",
    "cost_critic.target_action",
    "multiplier.critic_bound",
    "multiplier.critic_gain",
    "multiplier.damping",
    "multiplier.derivative_delay",
    "multiplier.derivative_gain",
    "multiplier.integral_gain",
    "multiplier.largest_tightening",
    "multiplier.maximum",
    "multiplier.minimum",
    "multiplier.proportional_gain",
    "multiplier.recent_horizons",
    "multiplier.reserve",
    "multiplier.smoothing",
    "multiplier.tighten",
    "multiplier.tightening_window",
    "policy.averaging_rate",
    "policy.exploration_noise",
    "policy.target_entropy",
    "policy.target_noise",
    "policy.target_noise_clip",
    "policy.temperature_learning_rate",
    "reward_critic.discount_span",
    "reward_critic.largest_discount",
    "reward_critic.layer_norm",
)
"""Config fields that the first recorded runs do not know; any other that is missing was lost."""
BEFORE = {"metadrive.lidar": "distance", "noiseless_every": None}
"""What runs did that are older than a field, where the field's preset has another value."""
BEFORE_WITH_OBJECTS: dict[str, Any] = {"closeness_rates": ()}
"""The same for tasks with objects around the robot; the others state no closeness."""


def _with_present_names(values: dict[str, Any]) -> dict[str, Any]:
    """``values`` with fields that had another name when the run was made."""
    critic = values.get("reward_critic")
    if not isinstance(critic, dict) or "normalisation" not in critic:
        return values
    kinds = {"none": False, "layer": True}
    kind = critic["normalisation"]
    if kind not in kinds:
        raise InvalidInput(
            f"reward_critic.normalisation is {kind!r}; it must be one of {', '.join(kinds)}"
        )
    rest = {name: value for name, value in critic.items() if name != "normalisation"}
    return values | {"reward_critic": rest | {"layer_norm": kinds[kind]}}


class ConfigFile(NamedTuple):
    """The contents of a ``config.json``."""

    config: Config
    spec: EnvSpec
    provenance: dict[str, Any]
    """Versions, commit and machine; see `slsac.runs.provenance`."""


class Identity(NamedTuple):
    """What a ``config.json`` says of itself; see `slsac.runs.identity`."""

    run: str | None
    """None in a run from before runs had an identity, and where there is no run yet."""
    edited: bool
    """The file is not as slsac wrote it."""


def write(config: Config, run: Path, spec: EnvSpec, provenance: dict[str, Any]) -> None:
    """Writes the resolved configuration, the task's sizes, and the run's provenance.

    A run that is there keeps its identity.
    """
    values = {**to_dict(config), "spec": spec._asdict(), "provenance": provenance}
    known = read_identity(run).run or identity.of_run(config, spec)
    values["identity"] = {"run": known, "config": identity.digest(values)}
    write_atomically(run / CONFIG, json.dumps(values, indent=2).encode() + b"\n")


def read_identity(run: Path) -> Identity:
    """Which run is in ``run``, and whether its config was changed by hand."""
    if not (run / CONFIG).exists():
        return Identity(None, False)
    return _identity_of(_read_values(run / CONFIG))


def _identity_of(values: dict[str, Any]) -> Identity:
    """What ``values`` say of themselves, taken out of them."""
    stated = values.pop("identity", None)
    if stated is None:
        return Identity(None, False)
    return Identity(stated["run"], stated["config"] != identity.digest(values))


def _read_values(path: Path) -> dict[str, Any]:
    try:
        return schema.parse_json(path.read_bytes(), FILE)
    except (schema.Misfit, OSError) as error:
        raise InvalidInput(f"{path} cannot be read: {error}") from None


def read(run: Path) -> ConfigFile:
    """Reads what `write` wrote; a field from `LATER_FIELDS` that is missing gets its preset's
    value."""
    return read_with_identity(run)[0]


def read_with_identity(run: Path) -> tuple[ConfigFile, Identity]:
    """`read` and `read_identity` in one reading of the file."""
    path = run / CONFIG
    if not path.exists():
        raise InvalidInput(
            f"run {str(run)!r} holds no run; it must be a directory with a config.json"
        )
    values = _read_values(path)
    stated = _identity_of(values)
    provenance, sizes = values.pop("provenance"), values.pop("spec")
    try:
        spec = _spec_from(sizes)
        known = to_dict(preset(values["algo"], values["env"]))
        objects = family(values["env"]) == "navigation" and "Circle" not in values["env"]
        before = BEFORE | (BEFORE_WITH_OBJECTS if objects else {})
        filled = _filled(_with_present_names(values), known, before)
        return ConfigFile(from_dict(filled), spec, provenance), stated
    except (InvalidInput, schema.Misfit) as error:
        raise InvalidInput(f"{path}: {error}") from None


def _spec_from(sizes: dict[str, Any]) -> EnvSpec:
    for name in ("action_low", "action_high"):
        list_of(number, sizes["action_size"])(sizes[name], f"spec.{name}")
    for name in sizes:
        if name not in EnvSpec._fields:
            raise unknown_name("field of spec", name, EnvSpec._fields)
    closeness, size = sizes.get("closeness", []), sizes["observation_size"]
    if len({*closeness}) < len(closeness) or not all(entry < size for entry in closeness):
        raise InvalidInput(
            f"spec.closeness is {brief(closeness)}; it must list numbers from 0 to {size - 1}, "
            "each once"
        )
    lists = ("action_low", "action_high", "closeness")
    return EnvSpec(**sizes | {name: tuple(sizes[name]) for name in lists if name in sizes})


def _filled(
    values: dict[str, Any], known: dict[str, Any], before: dict[str, Any], prefix: str = ""
) -> dict[str, Any]:
    """``values`` with the later fields that it lacks from ``before`` or ``known``, at every
    level."""
    later = {
        name: before.get(prefix + name, part)
        for name, part in known.items()
        if prefix + name in LATER_FIELDS
    }
    filled = later | values
    for name, part in known.items():
        if isinstance(part, dict) and isinstance(values.get(name), dict):
            filled[name] = _filled(values[name], part, before, f"{prefix}{name}.")
    return filled


def with_steps(config: Config, steps: int, *, begun: bool) -> Config:
    """``config`` with another total number of steps.

    Raises InvalidInput where the run has ``begun`` and its learning rate depends on that number.
    """
    decays = isinstance(config, OnPolicyConfig) and config.learning_rate_decays
    if begun and decays and steps != config.steps:
        raise InvalidInput(
            f"steps is {steps}; it must stay {config.steps} in this run, whose learning rate falls "
            "to 0 at its last step (clipped.learning_rate_decay is linear)"
        )
    return with_overrides(config, {"steps": steps})


def uses_closeness(config: Config) -> bool:
    """Whether networks see more of what an env says is close than the observation itself."""
    return isinstance(config, OffPolicyConfig) and bool(config.closeness_rates)


def require_same_task(spec: EnvSpec, recorded: EnvSpec, config: Config) -> None:
    """Raise InvalidInput unless an env is what the run was made with, where that matters."""
    for name, ours, theirs in zip(EnvSpec._fields, spec, recorded, strict=True):
        matters = name != "closeness" or uses_closeness(config)
        if matters and ours != theirs:
            raise InvalidInput(
                f"{name} of the env is {brief(ours)}; the run was made with {brief(theirs)}: pass "
                "the same env, as env= of Agent.load"
            )
