"""`slsac bench`: its sections, its page, and its answers to wrong arguments. Never a time."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from slsac.bench import SECTIONS
from slsac.bench.sections import COLUMNS
from slsac.cli import main
from tests.support.paths import ROOT

PERFORMANCE = ROOT / "docs" / "performance.md"


def test_every_section_has_its_columns_and_its_place_on_the_page() -> None:
    page = PERFORMANCE.read_text()
    marks = re.findall(r"<!-- bench: (\S+) -->\n.*?<!-- end of \1 -->", page, re.S)

    assert tuple(COLUMNS) == SECTIONS
    assert sorted(marks) == sorted(SECTIONS)


def test_tables_on_the_page_have_the_columns_that_the_bench_writes() -> None:
    page = PERFORMANCE.read_text()
    for name in SECTIONS:
        heads = [heading for _, heading, _ in COLUMNS[name]]
        block = page.partition(f"<!-- bench: {name} -->\n")[2]
        assert block.splitlines()[0] == "| " + " | ".join(heads) + " |", name


def test_a_page_without_marks_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing to replace\n")

    code = main(["bench", "--only", "startup", "--page", str(page)])

    assert code == 2
    assert "<!-- bench: startup -->" in capsys.readouterr().err
    assert page.read_text() == "nothing to replace\n"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--peer", "omnisafe"], "--peer-python"),
        (["--peer", "omnisafe", "--peer-python", "nowhere/python"], "nowhere/python"),
        (["--only", "luck"], "luck"),
        (["--rounds", "0"], "rounds is 0; it must be at least 1"),
        (["--steps", "0"], "steps is 0; it must be at least 1"),
        (["--env", "SafetyAntVelocty-v1"], "did you mean SafetyAntVelocity-v1"),
        (["--algos", "ppo-lag"], "algo is ppo-lag; it must be an off-policy algorithm"),
    ],
)
def test_a_wrong_argument_gets_one_line(
    flags: list[str], said: str, capsys: pytest.CaptureFixture
) -> None:
    assert main(["bench", *flags]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.strip().splitlines()) == 1


def test_task_speeds_are_written_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slsac.bench.tasks.tasks_of", lambda *kinds: ["SafetyHopperVelocity-v1"])
    out = tmp_path / "bench.json"

    assert main(["bench", "--only", "tasks", "--rounds", "1", "--json", str(out)]) == 0

    found = json.loads(out.read_text())
    assert [one["env"] for one in found["tasks"]] == ["SafetyHopperVelocity-v1"]
    assert found["tasks"][0]["steps_per_second"] > 0
    assert found["machine"]["python"] == sys.version.split()[0]
