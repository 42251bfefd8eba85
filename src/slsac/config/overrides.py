"""Configs to and from plain data: flags, YAML, JSON and Python arguments all come in here."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal

from slsac.config import Config, OffPolicyConfig, OnPolicyConfig
from slsac.config.checks import type_hints
from slsac.config.presets import algorithm, preset
from slsac.errors import InvalidInput, brief, unknown_name


def to_dict(config: Any) -> dict[str, Any]:
    """A config as a JSON-ready dict, nested as the dataclasses are."""
    return dataclasses.asdict(config)


def from_dict(values: Mapping[str, Any], kind: type | None = None, prefix: str = "") -> Any:
    """The config that `to_dict` wrote. Raise InvalidInput unless it has every field and no other.

    Args:
        kind: the config class; by default that of the algorithm's preset.
    """
    kind = kind or type(algorithm(str(values.get("algo"))).config)
    hints = type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind)]
    for name in values:
        if name not in names:
            raise unknown_name("config field", f"{prefix}{name}", [prefix + n for n in names])
    fields = {}
    for name in names:
        if name not in values:
            raise InvalidInput(f"config field {prefix}{name} is missing")
        fields[name] = _coerce(values[name], hints[name], prefix + name)
    return _construct(kind, fields, prefix)


def with_overrides(config: Any, overrides: Mapping[str, Any]) -> Any:
    """A copy of ``config`` with fields replaced.

    Args:
        overrides: values by dotted name (``reward_critic.pairs``), or nested mappings. Text is
            converted to the field's type, so flags need no parsing of their own.
    """
    return _overridden(config, overrides, "", field_names(type(config), optional_parts=True))


def _overridden(config: Any, overrides: Mapping[str, Any], prefix: str, known: list[str]) -> Any:
    """One part of a config; ``known`` lists the names of all fields, for the error's hint."""
    kind = type(config)
    hints = type_hints(kind)
    replaced: dict[str, Any] = {}
    inside: dict[str, dict[str, Any]] = {}
    for key, value in overrides.items():
        name = str(key).replace("-", "_")
        head, _, rest = name.partition(".")
        if head not in hints or (rest and _part(hints[head]) is None):
            raise _unknown_field(prefix + name, known)
        if rest:
            inside.setdefault(head, {})[rest] = value
        elif _part(hints[head]) is not None and isinstance(value, Mapping):
            inside.setdefault(head, {}).update(value)
        else:
            replaced[head] = _coerce(value, hints[head], prefix + head)
            if replaced[head] is None and dataclasses.is_dataclass(getattr(config, head)):
                raise InvalidInput(
                    f"{prefix}{head} is {brief(value)}; it is a group of fields: set one of them"
                )
    for head, nested in inside.items():
        part = replaced.get(head, getattr(config, head))
        if part is None:
            raise InvalidInput(
                f"config field {prefix}{head}.{next(iter(nested))} cannot be set: "
                f"{prefix}{head} is none for this env"
            )
        replaced[head] = _overridden(part, nested, f"{prefix}{head}.", known)
    fields = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    return _construct(kind, fields | replaced, prefix)


def field_names(
    kind: type = OffPolicyConfig, prefix: str = "", *, optional_parts: bool = False
) -> list[str]:
    """The dotted name of every field that holds a value.

    Args:
        optional_parts: list the fields of a part that a config may lack, not the part's name.
    """
    names = []
    for name, hint in type_hints(kind).items():
        part = _part(hint)
        if part is not None and (optional_parts or part is hint):
            names += field_names(part, f"{prefix}{name}.", optional_parts=optional_parts)
        else:
            names.append(prefix + name)
    return names


def dotted(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`to_dict`'s output without nesting: values by dotted name."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= dotted(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def differing(config: Any, other: Any) -> dict[str, tuple[Any, Any]]:
    """Both values of each field in which two configs differ, by dotted name."""
    first, second = dotted(to_dict(config)), dotted(to_dict(other))
    pairs = {name: (first.get(name), second.get(name)) for name in (first | second)}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def as_flags(config: Config) -> list[str]:
    """The arguments of `slsac train` that give ``config``: its preset and what differs from it."""
    changed = differing(config, preset(config.algo, config.env))
    named = {"algo": config.algo, "env": config.env, "seed": config.seed, "steps": config.steps}
    named |= {name: value for name, (value, _) in changed.items()}
    flags = []
    for name, value in named.items():
        if value in (None, ()):
            text = "none"
        else:
            text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        flags += [f"--{name.replace('_', '-')}", text]
    return flags


def _part(hint: Any) -> type | None:
    """The config class that a field of type ``hint`` holds or may hold; None for a plain value."""
    for kind in (hint, *typing.get_args(hint)):
        if dataclasses.is_dataclass(kind):
            return typing.cast(type, kind)
    return None


ELSEWHERE = {
    "lr": "learning_rate", "total_timesteps": "steps", "total_steps": "steps", "gamma": "discount",
    "tau": "polyak", "buffer_size": "replay_capacity", "learning_starts": "warmup_steps",
    "ent_coef": "temperature", "n_envs": "num_envs", "n_steps": "steps_per_epoch",
    "net_arch": "hidden", "cost_threshold": "cost_limit", "eval_episodes": "evaluation_episodes",
}  # fmt: skip
"""What other libraries call a field."""


def _unknown_field(name: str, known: list[str]) -> InvalidInput:
    """The error for a field that does not exist; its own name elsewhere is the best suggestion."""
    for kind, learning in ((OffPolicyConfig, "off-policy"), (OnPolicyConfig, "on-policy")):
        if name in field_names(kind, optional_parts=True):
            return InvalidInput(
                f"config field {name!r} is for {learning} algorithms only; leave it out, or choose "
                "another algo"
            )
    leaf = name.rpartition(".")[2]
    leaf = ELSEWHERE.get(leaf, leaf)
    same_leaf = [other for other in known if other.rpartition(".")[2] == leaf]
    if same_leaf:
        return InvalidInput(
            f"config field {brief(name)} does not exist; did you mean {' or '.join(same_leaf)}?"
        )
    return unknown_name("config field", name, known)


def _construct(kind: type, fields: dict[str, Any], prefix: str) -> Any:
    try:
        return kind(**fields)
    except InvalidInput as error:
        # A part does not know the path to itself; errors from further inside already have theirs.
        text = str(error)
        named = text.partition(" ")[0] in fields
        raise InvalidInput(prefix + text if named else text) from None


def _coerce(value: Any, hint: Any, name: str) -> Any:
    """``value`` converted to the type ``hint``. Raise InvalidInput if that is not possible."""
    origin = typing.get_origin(hint)
    if dataclasses.is_dataclass(hint):
        if isinstance(value, typing.cast(type, hint)):
            return value
        if isinstance(value, Mapping):
            return from_dict(value, typing.cast(type, hint), f"{name}.")
        raise InvalidInput(f"{name} is {brief(value)}; it is a group of fields: set one of them")
    if origin is types.UnionType:
        if value is None or (isinstance(value, str) and value.lower() == "none"):
            return None
        return _coerce(value, typing.get_args(hint)[0], name)
    if origin is Literal:
        allowed = typing.get_args(hint)
        if value in allowed:
            return value
        raise InvalidInput(f"{name} is {brief(value)}; it must be one of {', '.join(allowed)}")
    if origin is tuple:
        kind = typing.get_args(hint)[0]
        parts: Any = () if value is None else value
        if isinstance(value, str):
            text = value.strip("()[] ")
            parts = [] if text.lower() == "none" else text.split(",")
        if not isinstance(parts, (list, tuple)):
            numbers = "whole numbers" if kind is int else "numbers"
            raise InvalidInput(f"{name} is {brief(value)}; it must be a list of {numbers}")
        return tuple(_coerce(part, kind, name) for part in parts if part != "")
    if hint is bool:
        words = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
        if isinstance(value, str) and value.lower() in words:
            return words[value.lower()]
        if isinstance(value, bool):
            return value
        raise InvalidInput(f"{name} is {brief(value)}; it must be true or false")
    if hint is int:
        try:
            # Text goes through float, so that 1e6 is a whole number too.
            number = float(value) if isinstance(value, str) else value
            whole = int(number) if not isinstance(value, bool) and number == int(number) else None
        except (TypeError, ValueError, OverflowError):
            whole = None
        if whole is None:
            raise InvalidInput(f"{name} is {brief(value)}; it must be a whole number")
        if abs(whole) >= 2**63:
            raise InvalidInput(f"{name} is {brief(value)}; it must be below 2**63")
        return whole
    if hint is float:
        try:
            if not isinstance(value, bool) and math.isfinite(float(value)):
                return float(value)
        except (TypeError, ValueError, OverflowError):
            pass
        raise InvalidInput(f"{name} is {brief(value)}; it must be a finite number")
    if not isinstance(value, str):
        raise InvalidInput(f"{name} is {brief(value)}; it must be text")
    return value
