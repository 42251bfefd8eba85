"""A sweep's YAML file, and the trials that it expands to."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from slsac.config import Config
from slsac.config.overrides import as_flags, dotted, with_overrides
from slsac.config.presets import ALGORITHMS, preset
from slsac.envs import require_known
from slsac.errors import InvalidInput, brief, unknown_name
from slsac.runs import schema
from slsac.sweep.products import PRODUCTS

AXES = ("algo", "env", "seed", "steps")
"""Config fields that are set at the top of a spec and not as overrides."""
PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Spec:
    """A grid of algorithms, tasks and seeds, and the settings of its trials."""

    name: str
    """Of the sweep, and of its folder below runs/."""
    algos: tuple[str, ...]
    envs: tuple[str, ...]
    seeds: tuple[int, ...]
    steps: int
    """Environment steps of each trial."""
    cores_per_trial: int
    """Cores that a trial sees. It decides the bits of a run, so the spec says it and not the
    machine; how many trials run at once is no part of a spec."""
    common: Mapping[str, Any]
    """Overrides of every trial; those of the algorithm, the task and the variant come later."""
    by_algo: Mapping[str, Mapping[str, Any]]
    by_env: Mapping[str, Mapping[str, Any]]
    variants: Mapping[str, Mapping[str, Any]]
    """Named overrides; each makes a whole grid in its own folder. Empty: one unnamed grid."""
    products: tuple[str, ...]
    """What is written when every trial is done; see `slsac.sweep.products`."""


@dataclass(frozen=True)
class Trial:
    """One run of a sweep."""

    name: str
    """Path below the sweep's folder: ALGO/ENV/seedK, or VARIANT/ALGO/ENV/seedK."""
    run: Path
    """Its run directory."""
    config: Config

    @property
    def log(self) -> Path:
        """Where its output goes: beside the run directory, which holds a run's files only."""
        return self.run.with_name(f"{self.run.name}.log")


EXPERIMENTS = Path(__file__).parent / "experiments"
"""Specs that are part of the package and found by name."""


def experiments() -> list[str]:
    """Names of the specs that are part of the package."""
    return sorted(path.stem for path in EXPERIMENTS.glob("*.yaml"))


def find(name: str) -> Path:
    """A spec by its path, or one that is part of the package by its name."""
    if Path(name).exists():
        return Path(name)
    if name.removesuffix(".yaml") in experiments():
        return EXPERIMENTS / f"{name.removesuffix('.yaml')}.yaml"
    raise InvalidInput(
        f"spec {brief(name)} does not exist; it must be a YAML file or one of "
        f"{', '.join(experiments())}"
    )


def _refuse_repeated_keys(node: Any, seen: set[int]) -> None:
    """Raise YAMLError for a key that a mapping has twice, of which YAML keeps the last."""
    if not isinstance(node, yaml.CollectionNode) or id(node) in seen:
        return
    seen.add(id(node))  # an alias may point to what holds it
    if isinstance(node, yaml.MappingNode):
        known = set()
        for key, _ in node.value:
            name = str(key.value).replace("-", "_")
            if name in known and name != "<<":
                line = key.start_mark.line + 1
                raise yaml.YAMLError(f"line {line} gives {key.value!r} a second time")
            known.add(name)
    for part in node.value:
        for inner in part if isinstance(part, tuple) else (part,):
            _refuse_repeated_keys(inner, seen)


def load(path: Path) -> Spec:
    """The spec in a YAML file; errors name the file, the field, its value and what is allowed."""
    try:
        text = path.read_text(encoding="utf-8")
        _refuse_repeated_keys(yaml.compose(text, Loader=yaml.SafeLoader), set())
        values = yaml.safe_load(text)
        schema.require_modest(values)
    except FileNotFoundError:
        raise InvalidInput(f"spec {str(path)!r} does not exist; it must be a YAML file") from None
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise InvalidInput(f"spec {str(path)!r} cannot be read: {reason}") from None
    try:
        return parse(values)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None


def parse(values: Any) -> Spec:
    """The spec in YAML's plain data."""
    fields = _mapping(values, "spec")
    _known(fields, "spec field", ("name", "algos", "envs", "seeds", "steps", "cores_per_trial",
                                  "overrides", "variants", "products"))  # fmt: skip
    for name in ("name", "algos", "envs", "seeds", "steps"):
        if name not in fields:
            raise InvalidInput(f"spec field {name!r} is missing")
    algos = _names(fields["algos"], "algos")
    for algo in algos:
        if algo not in ALGORITHMS:
            raise unknown_name("algo", algo, ALGORITHMS)
    envs = _names(fields["envs"], "envs")
    for env in envs:
        require_known(env)
    overrides = _mapping(fields.get("overrides", {}), "overrides")
    _known(overrides, "overrides field", ("common", "algos", "envs"))
    variants = _mapping(fields.get("variants", {}), "variants")
    for name in variants:
        _plain(name, "variants name")
    products = fields.get("products", [])
    products = _names(products, "products") if products != [] else ()
    _known(products, "product", tuple(PRODUCTS))
    return Spec(
        name=_plain(fields["name"], "name"),
        algos=algos,
        envs=envs,
        seeds=_distinct([_whole(seed, "seeds", 0) for seed in _list(fields["seeds"], "seeds")],
                        "seeds"),
        steps=_whole(fields["steps"], "steps", 1),
        cores_per_trial=_whole(fields.get("cores_per_trial", 1), "cores_per_trial", 1),
        common=_cells(overrides.get("common", {}), "overrides.common"),
        by_algo=_groups(overrides.get("algos", {}), "overrides.algos", algos),
        by_env=_groups(overrides.get("envs", {}), "overrides.envs", envs),
        variants=_groups(variants, "variants", tuple(variants)),
        products=products,
    )  # fmt: skip


def expand(spec: Spec, out: Path) -> list[Trial]:
    """Every trial of a spec, seed by seed: a sweep cut short has compared all on some seeds."""
    trials = []
    configs: dict[tuple[str, str, str], Config] = {}
    for variant, seed, env, algo in itertools.product(
        spec.variants or {"": {}}, spec.seeds, spec.envs, spec.algos
    ):
        name = "/".join(
            part for part in (variant, _folder(algo), _folder(env), f"seed{seed}") if part
        )
        try:
            if (variant, env, algo) not in configs:
                configs[variant, env, algo] = _config_of(spec, variant, env, algo)
            config = replace(configs[variant, env, algo], seed=seed)
        except InvalidInput as error:
            raise InvalidInput(f"{name}: {error}") from None
        trials.append(Trial(name, out / name, config))
    _distinct([trial.name for trial in trials], "the trials' folders")
    return trials


def _config_of(spec: Spec, variant: str, env: str, algo: str) -> Config:
    """The configuration that the trials of all seeds share."""
    layers = (
        spec.common,
        spec.by_algo.get(algo, {}),
        spec.by_env.get(env, {}),
        spec.variants.get(variant, {}),
        {"steps": spec.steps},
    )
    # Merged first: a layer alone may not be valid with what another one replaces.
    merged: dict[str, Any] = {}
    for layer in layers:
        merged |= {key.replace("-", "_"): value for key, value in dotted(layer).items()}
    return with_overrides(preset(algo, env), merged)


def train_arguments(trial: Trial) -> list[str]:
    """Arguments of `slsac train` that begin the trial's run."""
    return [*as_flags(trial.config), "--run", str(trial.run)]


def _folder(name: str) -> str:
    return re.sub(r"[/:]", "-", name)


def _mapping(value: Any, field: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidInput(f"{field} is {brief(value)}; it must be a mapping of names to values")
    return {str(name): item for name, item in value.items()}


def _list(value: Any, field: str) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise InvalidInput(f"{field} is {brief(value)}; it must be a list with at least one item")
    return value


def _names(value: Any, field: str) -> tuple[str, ...]:
    for item in _list(value, field):
        if not isinstance(item, str):
            raise InvalidInput(f"{field} has {brief(item)}; it must be a list of names")
    return _distinct(value, field)


def _distinct(values: list[Any], field: str) -> tuple[Any, ...]:
    for value, times in Counter(values).items():
        if times > 1:
            raise InvalidInput(f"{field} has {brief(value)} twice; each must be there once")
    return tuple(values)


def _whole(value: Any, field: str, least: int) -> int:
    # YAML reads 1e6 as text.
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if isinstance(value, bool) or not number.is_integer() or number < least:
        raise InvalidInput(
            f"{field} is {brief(value)}; it must be a whole number of at least {least}"
        )
    return int(number)


def _plain(value: Any, field: str) -> str:
    if not isinstance(value, str) or not PLAIN_NAME.fullmatch(value):
        raise InvalidInput(
            f"{field} is {brief(value)}; it must be made of letters, digits, '.', '_' and '-'"
        )
    return value


def _known(names: Any, kind: str, allowed: tuple[str, ...]) -> None:
    for name in names:
        if name not in allowed:
            raise unknown_name(kind, name, allowed)


def _cells(value: Any, field: str) -> dict[str, Any]:
    cells = _mapping(value, field)
    for name in AXES:
        if name in cells:
            raise InvalidInput(
                f"{field}.{name} is {brief(cells[name])}; algos, envs, seeds and steps are set at "
                "the top of a spec"
            )
    return cells


def _groups(value: Any, field: str, allowed: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    groups = _mapping(value, field)
    _known(groups, f"{field} entry", allowed)
    return {name: _cells(cells, f"{field}.{name}") for name, cells in groups.items()}
