"""The documentation says what the code does."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from slsac import Agent
from slsac.certificate import certify
from slsac.cli import main
from slsac.config import OffPolicyConfig, OnPolicyConfig
from slsac.config.overrides import field_names
from slsac.config.presets import ALGORITHMS
from slsac.errors import InvalidInput
from slsac.report.read import find_runs
from slsac.sweep.spec import EXPERIMENTS
from slsac.tasks import AGENTS, GAITS, METADRIVE_ID, NAVIGATION, SAFETY_GYMNASIUM
from tests.support.paths import ROOT
from tools import config_reference, figures, record

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    ROOT / "benchmarks" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
SOURCES = [
    *EXPERIMENTS.glob("*.yaml"),
    *(
        path
        for folder in ("src", "tests", "tools", "benchmarks", "examples")
        for path in (ROOT / folder).rglob("*.py")
    ),
]
WRITTEN_BY_THE_READER = {"my_module.py", "docs/algorithms/ddpg-lag.md"}
"""Files that a page asks its reader to write."""
on_every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def load(script: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(script).stem, ROOT / script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_config_reference_is_up_to_date() -> None:
    advice = "run `python -m tools.config_reference`"
    assert (ROOT / "docs" / "config.md").read_text() == config_reference.reference(), advice


def test_the_results_on_the_pages_are_those_under_results() -> None:
    for page, text in record.pages().items():
        assert page.read_text() == text, f"run `python -m tools.record`: {page.name} is old"


def test_every_recorded_run_is_in_the_table_of_its_task() -> None:
    for config in (ROOT / "results").rglob("config.json"):
        folder = config.parent.relative_to(ROOT)
        page = ROOT / "docs" / "results" / f"{record.TASK_PAGES[folder.parts[-2]]}.md"
        assert f"](../../{folder})" in page.read_text()


def test_every_picture_has_a_maker_and_a_page() -> None:
    drawn = {path.stem for path in (ROOT / "docs").rglob("*.svg")}
    assert drawn == set(figures.PICTURE_MAKERS)
    for name in drawn:
        assert any(f"pictures/{name}.svg)" in page.read_text() for page in PAGES), name


def test_every_folder_under_results_can_be_tabulated() -> None:
    # As in `slsac table results/*`, which names the folders one by one.
    runs = find_runs(sorted((ROOT / "results").iterdir()))
    assert len(runs) == len(list((ROOT / "results").rglob("config.json")))


def files_named(name: str) -> list[Path]:
    """The file at a path from the root or the package, or every one whose path ends so."""
    for folder in (ROOT, ROOT / "src" / "slsac"):
        if (folder / name).exists():
            return [folder / name]
    return [path for path in SOURCES if f"/{path}".endswith(f"/{name}")]


@on_every_page
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    for name in re.findall(r"(?<![\w/.:])[\w./-]+\.(?:py|ya?ml|md)\b", page.read_text()):
        placeholder = Path(name).stem.isupper()  # as in FILE.md
        if (page.parent / name).exists() or placeholder or name in WRITTEN_BY_THE_READER:
            continue
        assert files_named(name), f"{name} does not exist"
        assert len(files_named(name)) == 1, f"{name} may be any of {files_named(name)}"


@on_every_page
def test_every_function_that_a_page_places_in_a_file_is_there(page: Path) -> None:
    for name, first, more in re.findall(
        r"`([\w./-]+\.py): ([\w.]+)`((?:, `[\w.]+`)*)", page.read_text()
    ):
        (path,) = files_named(name)
        for function in [first, *re.findall(r"`([\w.]+)`", more)]:
            there = any(f".{known}".endswith(f".{function}") for known in definitions(path))
            assert there, f"{name} has no {function}"


@cache
def definitions(path: Path) -> set[str]:
    """Names of the functions and classes of a file, those inside others as ``outer.inner``."""

    def walk(body: list[ast.stmt], prefix: str) -> Iterator[str]:
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                yield prefix + node.name
                yield from walk(node.body, f"{prefix}{node.name}.")

    return set(walk(ast.parse(path.read_text()).body, ""))


@on_every_page
def test_every_command_and_flag_that_a_page_names_exists(
    page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in commands(page.read_text()):
        name, *words = command.split()
        text = help_of(name, capsys)
        flags = [flag for word in words for flag in re.findall(r"--[a-z][\w.-]*", word)]
        for flag in flags:
            field = flag.removeprefix("--").replace("-", "_")
            known = re.search(rf"{flag}(?![\w-])", text) or (name == "train" and field in FIELDS)
            assert known, f"slsac {name} has no {flag}"
        for algo in re.findall(r"--algo ([a-z][\w/.-]*)", command):
            assert algo in ALGORITHMS, f"there is no algorithm {algo}"


FIELDS = {
    name
    for kind in (OffPolicyConfig, OnPolicyConfig)
    for name in field_names(kind, optional_parts=True)
}


def commands(text: str) -> list[str]:
    """What follows ``slsac`` in code blocks and in spans of code, a line each."""
    found = []
    for block in re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        lines = re.sub(r"\\\n", " ", block)  # a line that continues in the next
        found += re.findall(r"(?:^|&& |\.venv/bin/)slsac +([a-z][^#\n]*)", lines, re.MULTILINE)
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    spans = re.findall(r"`([^`]+)`", prose)
    found += [span.partition(" ")[2] for span in spans if re.match(r"slsac [a-z]", span)]
    return found


def help_of(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    return capsys.readouterr().out


@on_every_page
def test_every_import_on_a_page_works(page: Path) -> None:
    for module, names in re.findall(r"from (slsac[\w.]*) import ([\w, ]+)", page.read_text()):
        for name in names.split(","):
            assert hasattr(importlib.import_module(module), name.strip()), f"{module}.{name}"


def test_every_target_of_make_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        for target in re.findall(r"(?:^|`|&& )make ([a-z]+)", page.read_text(), re.MULTILINE):
            assert target in targets, f"{page.name} names make {target}"


def test_readme_and_results_are_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 110
    assert len((ROOT / "docs" / "results.md").read_text().splitlines()) <= 150


def test_links_between_pages_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    assert len(pages) >= 5
    for page in pages:
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_every_task_and_algorithm_has_its_place() -> None:
    tasks = (ROOT / "docs" / "tasks.md").read_text()
    assert f"can make ({len(SAFETY_GYMNASIUM)})" in tasks
    assert METADRIVE_ID in tasks
    for robot, (_, _, *speeds) in GAITS.items():
        row = next(line for line in tasks.splitlines() if f"Safety{robot}Velocity |" in line)
        assert [float(cell) for cell in row.split("|")[4:6]] == speeds
    for name in NAVIGATION:
        assert name in tasks or name.startswith(("Button", "Fading"))
    for agent in AGENTS:
        assert agent in tasks
    readme = (ROOT / "README.md").read_text()
    for name in ALGORITHMS:
        page = ROOT / "docs" / "algorithms" / f"{name}.md"
        assert "/" in name or (page.exists() and f"| `{name}` |" in readme), name


def test_the_example_of_an_env_of_ones_own_works_from_training_to_certificate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = load("examples/custom_env.py")
    speeding = example.speeding
    small = {"hidden": (8, 8)}
    example.main(
        tmp_path, 60, warmup_steps=20, batch_size=8, replay_capacity=1_000, steps_per_epoch=30,
        evaluate_every_epochs=1, final_evaluation_episodes=2, policy=small, reward_critic=small,
        cost_critic=small,
    )  # fmt: skip
    shown = capsys.readouterr().out
    assert "problems: none" in shown
    assert "custom:Speeding, seed 0, 30 steps" in shown
    assert "limit 2.5" in shown
    assert (tmp_path / "speeding.npz").exists()
    run = tmp_path / "speeding-half"
    assert Agent.load(run, env=speeding).evaluate(2).lengths.tolist() == [50, 50]
    with pytest.raises(InvalidInput, match="pass it again"):
        Agent.load(run).evaluate(2)
    certificate, played = certify(run, 2, env=speeding, max_step_cost=0.45)
    assert played.lengths.tolist() == [50, 50]
    # Fifty steps of .45 at most.
    assert certificate.protocol.largest_cost == pytest.approx(22.5)
