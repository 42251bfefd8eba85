"""The documentation says what the code does."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from slsac.envs import list_envs
from slsac.presets import ALGORITHMS

ROOT = Path(__file__).parent.parent


def test_the_config_reference_is_up_to_date() -> None:
    path = ROOT / "docs" / "make_config_reference.py"
    spec = importlib.util.spec_from_file_location("make_config_reference", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (ROOT / "docs" / "config.md").read_text() == module.reference()


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
    assert "`sl-sac`" in readme
    for name in ALGORITHMS:
        page = ROOT / "docs" / "algorithms" / f"{name}.md"
        assert page.exists() or "/" in name
