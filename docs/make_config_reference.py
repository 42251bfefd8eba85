"""Writes docs/config.md from the config classes: `python docs/make_config_reference.py`."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import types
import typing
from pathlib import Path
from typing import Any, Literal

from slsac.config import Config, MetaDriveConfig, parts, run
from slsac.config.presets import METADRIVE, preset

HERE = Path(__file__).parent
INTRODUCTION = """# Configuration

Every field below is a flag of `slsac train` (`--cost-limit 10`, `--reward-critic.pairs 5`; `_` and
`-` are the same), an argument of `Agent` (`cost_limit=10.0`, `reward_critic={"pairs": 5}`), and a
line in a run's `config.json`. This page is made by `python docs/make_config_reference.py`.
"""
OFF_POLICY = """
## Off-policy algorithms

The values are those of `sl-sac`; where the navigation tasks differ, theirs stand second, and
`metadrive` is none but for MetaDriveSafe-v0, whose other values are in
[metadrive.md](metadrive.md).

"""
ON_POLICY = """
## On-policy algorithms

The values are those of `ppo-lag`; where `cpo` differs, its own stand second. The multiplier's
signal is taken from episodes (`critic` is refused, and so is `tighten`), and that of `cpo` is their
mean. Optimisers must be `adam` or `adamw`.

"""
HEADER = """| field | allowed | value | meaning |
|---|---|---|---|
"""


def meanings() -> dict[str, dict[str, str]]:
    """The string under each field of each config class."""
    texts: dict[str, dict[str, str]] = {}
    classes = [
        node for module in (parts, run) for node in ast.parse(inspect.getsource(module)).body
    ]
    for node in classes:
        if isinstance(node, ast.ClassDef):
            fields = texts.setdefault(node.name, {})
            for before, after in zip(node.body, node.body[1:], strict=False):
                if (
                    isinstance(before, ast.AnnAssign)
                    and isinstance(before.target, ast.Name)
                    and isinstance(after, ast.Expr)
                    and isinstance(after.value, ast.Constant)
                ):
                    fields[before.target.id] = " ".join(str(after.value.value).split())
    return texts


def allowed(hint: Any) -> str:
    if typing.get_origin(hint) is Literal:
        return ", ".join(typing.get_args(hint))
    if typing.get_origin(hint) is types.UnionType:
        return f"{allowed(typing.get_args(hint)[0])}, none"
    if typing.get_origin(hint) is tuple:
        return "whole numbers, as in 64,64"
    return {int: "whole number", float: "number", bool: "true, false", str: "text"}[hint]


def rows(first: Any, second: Any, prefix: str = "") -> list[str]:
    of_class = meanings()
    texts = {}
    for kind in type(first).__mro__:  # what both kinds of run share is in a base class
        texts |= of_class.get(kind.__name__, {})
    found = []
    for name, hint in typing.get_type_hints(type(first)).items():
        one, two = getattr(first, name), getattr(second, name)
        if hint == MetaDriveConfig | None:
            found += rows(METADRIVE, METADRIVE, f"{prefix}{name}.")
        elif dataclasses.is_dataclass(hint):
            found += rows(one, two, f"{prefix}{name}.")
        else:
            value = f"{one} / {two}" if one != two and name not in ("algo", "env") else f"{one}"
            meaning = texts.get(name, "").replace("|", "\\|")
            found.append(f"| `{prefix}{name}` | {allowed(hint)} | {value} | {meaning} |")
    return found


def table(first: Config, second: Config) -> str:
    return HEADER + "\n".join(rows(first, second)) + "\n"


def reference() -> str:
    velocity, navigation = "SafetyHalfCheetahVelocity-v1", "SafetyPointGoal1-v0"
    return (
        INTRODUCTION
        + OFF_POLICY
        + table(preset("sl-sac", velocity), preset("sl-sac", navigation))
        + ON_POLICY
        + table(preset("ppo-lag", velocity), preset("cpo", velocity))
    )


if __name__ == "__main__":
    (HERE / "config.md").write_text(reference())
