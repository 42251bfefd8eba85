"""Timing in turns, and the tables of the figures. Never a time."""

from __future__ import annotations

from pathlib import Path

from slsac.bench.timing import in_turns, ratio, table, write_page


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
