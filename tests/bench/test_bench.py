"""`slsac bench`: its arithmetic, its tables, and what it says of wrong arguments. Never a time."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from slsac.bench import SECTIONS
from slsac.bench.sections import COLUMNS
from slsac.bench.timing import in_turns, ratio, table, write_page
from slsac.bench.update import matrix_products
from slsac.cli import main
from slsac.config.overrides import with_overrides
from slsac.config.presets import off_policy_preset
from slsac.envs import make_env
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


def test_products_of_an_update_by_hand() -> None:
    env = make_env("ProbeCounts-v0")
    observation, action = env.spec.observation_size, env.spec.action_size
    config = with_overrides(
        off_policy_preset("sac-lag", "ProbeCounts-v0"),
        {
            "batch_size": 10,
            "policy_delay": 1,
            "reward_critic.hidden": (4,),
            "cost_critic.hidden": (4,),
            "policy.hidden": (4,),
        },
    )

    multiplications = sum(
        stack * rows * inner * columns * times
        for stack, rows, inner, columns, times in matrix_products(config, env.spec)
    )

    # Layers (inputs x 4) and (4 x 1) of three critics, 10 rows: three times forwards (target,
    # prediction, policy's update), weights once; inputs' gradient twice, the first layer's once.
    first, last = 10 * (observation + action) * 4, 10 * 4 * 1
    critic = first * (3 + 1 + 1) + last * (3 + 1 + 2)
    # The count leaves out the cost critic's one output column.
    cost_critic = first * (3 + 1 + 1)
    # The policy: forwards for the targets and for itself, and one gradient.
    policy = 10 * observation * 4 * (2 + 1) + 10 * 4 * 2 * action * (2 + 1 + 1)
    assert multiplications == 2 * critic + cost_critic + policy


def test_subjects_take_turns_after_one_call_that_compiles() -> None:
    seen: list[str] = []
    taken = in_turns({"a": lambda: seen.append("a"), "b": lambda: seen.append("b")}, 2)

    assert seen == ["a", "b", "a", "b", "a", "b"]
    assert {name: len(times) for name, times in taken.items()} == {"a": 2, "b": 2}


def test_a_ratio_is_the_median_of_the_rounds_own() -> None:
    assert ratio([2.0, 30.0, 8.0], [1.0, 10.0, 2.0]) == 3.0


def test_a_missing_figure_leaves_its_cell_empty() -> None:
    columns = (("algo", "algorithm", ""), ("ms", "ms", ".1f"))

    text = table([{"algo": "sl-sac", "ms": 1.26}, {"algo": "peer", "ms": None}], columns)

    assert text == "| algorithm | ms |\n| --- | --- |\n| sl-sac | 1.3 |\n| peer |  |"


def test_a_page_keeps_everything_but_the_section_that_was_measured(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "before\n<!-- bench: seeds -->\nold\n<!-- end of seeds -->\nbetween\n"
        "<!-- bench: growth -->\nkept\n<!-- end of growth -->\n"
    )

    write_page(page, "seeds", "new")

    assert page.read_text() == (
        "before\n<!-- bench: seeds -->\nnew\n<!-- end of seeds -->\nbetween\n"
        "<!-- bench: growth -->\nkept\n<!-- end of growth -->\n"
    )


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
        (["--env", "SafetyAnt-v1"], "did you mean SafetyAntVelocity-v1"),
        (["--algos", "ppo-lag"], "algo is ppo-lag; here it must be an off-policy algorithm"),
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


def test_training_is_measured_beside_its_matrix_products(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    command = ["bench", "--only", "training", "--algos", "sac-lag", "--env", "ProbeCounts-v0"]
    assert main([*command, "--rounds", "1", "--steps", "5", "--json", str(file)]) == 0
    (row,) = json.loads(file.read_text())["training"]
    config = off_policy_preset("sac-lag", "ProbeCounts-v0")
    products = matrix_products(config, make_env("ProbeCounts-v0").spec)
    multiplications = sum(stack * m * k * n * times for stack, m, k, n, times in products)
    assert row["algo"] == "sac-lag"
    assert row["gflop"] == pytest.approx(2e-9 * multiplications)
