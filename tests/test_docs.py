"""The documentation says what the code does."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from slsac import Agent, check_safe_env
from slsac.certificate.certify import certify
from slsac.config.presets import ALGORITHMS
from slsac.envs import list_envs
from slsac.errors import InvalidInput
from slsac.report.read import find_runs
from tests.support.paths import ROOT


def load(script: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(script).stem, ROOT / script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_config_reference_is_up_to_date() -> None:
    reference = load("docs/make_config_reference.py").reference()
    assert (ROOT / "docs" / "config.md").read_text() == reference


def test_the_results_on_the_pages_are_those_under_results() -> None:
    pages = load("benchmarks/record.py").pages()
    assert ROOT / "docs" / "results.md" in pages
    for page, text in pages.items():
        assert page.read_text() == text, f"run `python benchmarks/record.py`: {page.name} is old"


def test_every_recorded_run_is_in_a_picture_of_the_results_page() -> None:
    drawn = load("benchmarks/record.py").pictures()
    assert sum(map(len, drawn.values())) == len(list((ROOT / "results").rglob("config.json")))
    page = (ROOT / "docs" / "results.md").read_text()
    for picture in drawn:
        assert f"]({picture.name})" in page


def test_every_folder_under_results_can_be_tabulated() -> None:
    # As in `slsac table results/*`, which names the folders one by one.
    runs = find_runs(sorted((ROOT / "results").iterdir()))
    assert len(runs) == len(list((ROOT / "results").rglob("config.json")))


def test_links_between_pages_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    assert len(pages) >= 5
    for page in pages:
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_every_task_and_algorithm_has_its_place() -> None:
    tasks = (ROOT / "docs" / "tasks.md").read_text()
    for name, _ in list_envs():
        assert name in tasks or name.startswith("Probe")
    readme = (ROOT / "README.md").read_text()
    for name in ALGORITHMS:
        page = ROOT / "docs" / "algorithms" / f"{name}.md"
        assert "/" in name or (page.exists() and f"| `{name}` |" in readme), name


def test_the_example_of_an_env_of_ones_own_works_from_training_to_certificate(
    tmp_path: Path,
) -> None:
    speeding = load("examples/custom_env.py").speeding
    assert check_safe_env(speeding) == []
    small = {"hidden": (8, 8)}
    agent = Agent(
        "sl-sac", env=speeding, run=tmp_path / "run", warmup_steps=20, batch_size=8,
        replay_capacity=1_000, policy=small, reward_critic=small, cost_critic=small,
    )  # fmt: skip
    agent.learn(60)
    agent.close()
    assert Agent.load(tmp_path / "run", env=speeding).evaluate(2).lengths.tolist() == [50, 50]
    with pytest.raises(InvalidInput, match="pass it again"):
        Agent.load(tmp_path / "run").evaluate(2)
    made, played = certify(tmp_path / "run", 2, env=speeding, max_step_cost=0.45)
    assert played.lengths.tolist() == [50, 50]
    # Fifty steps of .45 at most.
    assert made["protocol"]["largest_cost"] == pytest.approx(22.5)
