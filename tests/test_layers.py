"""The import rule: imports point down, lazy ones included, and reading results needs no jax."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PACKAGE = ROOT / "src" / "slsac"
LAYERS = (
    ("_version", "errors", "types", "seeds", "formatting", "tasks"),
    ("config", "stats"),
    ("risk", "networks", "langevin", "envs", "compilation"),
    ("algorithms",),
    ("runs", "evaluate"),
    ("display", "training"),
    ("certificate", "report", "video"),
    ("sweep", "bench"),
    ("api", "cli"),
    ("__init__", "__main__"),
)
"""Rooms and root modules from the ground up. A module may import its own layer and those below."""
WITHOUT_JAX = ("config", "stats", "report")
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts): path
    for path in sorted(PACKAGE.rglob("*.py"))
}


def room(module: str) -> str:
    return module.partition(".")[0]


def height(module: str) -> int:
    return next(level for level, layer in enumerate(LAYERS) if room(module) in layer)


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Modules that a file imports anywhere, and whether only a type checker does."""
    tree = ast.parse(path.read_text())
    for_types = {
        node
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for statement in block.body
        for node in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node in for_types
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            assert node.module is not None
            for alias in node.names:
                inner = f"{node.module}.{alias.name}".removeprefix("slsac.")
                yield (f"slsac.{inner}" if known(inner) else node.module), node in for_types


def known(module: str) -> bool:
    return module in MODULES or f"{module}.__init__" in MODULES


def own_imports(module: str, *, types: bool) -> set[str]:
    """Modules of this package that ``module`` imports."""
    names = (name for name, only_types in imports(MODULES[module]) if types or not only_types)
    ours = {n.removeprefix("slsac").lstrip(".") for n in names if n.partition(".")[0] == "slsac"}
    return {f"{name}.__init__".lstrip(".") if name not in MODULES else name for name in ours}


def test_every_module_has_its_layer() -> None:
    assert {room(module) for module in MODULES} == {name for layer in LAYERS for name in layer}


def test_the_root_stays_small() -> None:
    assert len([module for module in MODULES if "." not in module]) <= 16


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_down(module: str) -> None:
    # The package's own name is not a layer: `from slsac import risk` is an import of `risk`.
    upwards = {
        other
        for other in own_imports(module, types=True)
        if other != "__init__" and height(other) > height(module)
    }
    assert not upwards


@pytest.mark.parametrize("start", WITHOUT_JAX)
def test_reading_and_configuring_need_no_jax(start: str) -> None:
    reached = {module for module in MODULES if room(module) == start}
    waiting = set(reached)
    while waiting:
        module = waiting.pop()
        for name, only_types in imports(MODULES[module]):
            outside = name.partition(".")[0]
            assert only_types or outside not in ("jax", "equinox", "optax"), f"{module}: {name}"
        new = own_imports(module, types=False) - reached
        # A package's own module is executed on the way to any other in it.
        new |= {f"{room(m)}.__init__" for m in new if f"{room(m)}.__init__" in MODULES} - reached
        reached |= new
        waiting |= new


BY_COMPUTED_NAME = {"envs.imports", "envs.safety_gymnasium"}
"""These load a user's module, and a package that cannot be imported as a whole."""


def test_nothing_of_ours_is_imported_by_a_computed_name() -> None:
    users = {
        module
        for module, path in MODULES.items()
        if "import_module" in path.read_text() or "__import__" in path.read_text()
    }
    assert users <= BY_COMPUTED_NAME
