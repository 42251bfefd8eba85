"""`slsac table`: the paper's layout in four formats, from the same sections."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path

import pytest

from slsac.cli import main
from slsac.report.formats import Cell
from slsac.report.table import as_csv, render, sections, summarise_runs, write_table
from tests.support.recorded import HOPPER, make_run


def test_table_one_is_bold_where_safe_and_best_and_grey_where_unsafe(runs: Path) -> None:
    first = sections(summarise_runs([runs]))[0]
    assert first.header == ("task", "sac-lag", "wcsac", "sl-sac")
    assert first.rows == [
        (
            Cell(f"{HOPPER} [a]"),
            Cell("2000.0 / 60.0", "grey", "sac-lag"),
            Cell("900.0 / 0.0", "plain", "wcsac"),
            Cell("1000.0 / 10.0", "bold", "sl-sac"),
        )
    ]
    assert "[a] steps=10,000" in first.notes


def test_other_settings_are_another_row(runs: Path) -> None:
    make_run(runs / "limit", "sl-sac", returns=[5, 5], costs=[0, 0], cost_limit=5.0)
    stale = make_run(runs / "old", "wcsac", returns=[7, 7], costs=[0, 0], seed=1)
    (stale / "STALE").write_text("")
    rows = sections(summarise_runs([runs]))[0].rows
    assert [row[0].text for row in rows] == [
        f"{HOPPER} [a]", f"{HOPPER} [b]", f"{HOPPER} [a] (stale)"
    ]  # fmt: skip
    assert [cell.text for cell in rows[1]] == [f"{HOPPER} [b]", "", "", "5.0 / 0.0"]
    assert [cell.text for cell in rows[2]][2] == "7.0 / 0.0"


def test_costs_below_one_have_two_decimals_and_env_extras_a_column(tmp_path: Path) -> None:
    for seed, costs in enumerate(([0.0] * 24 + [1.0], [0.0] * 25)):
        make_run(
            tmp_path / f"{seed}", env="MetaDriveSafe-v0", seed=seed, costs=costs,
            returns=[50.0] * 25, extras={"success": [1.0] * 20 + [0.0] * 5},
        )  # fmt: skip
    make_run(tmp_path / "hopper")
    made = {section.title: section for section in sections(summarise_runs([tmp_path]))}
    # One violation in 50 episodes; the seeds' means are .04 and 0, their CVaR at .5 .08 and 0:
    # 13 of 25 episodes are in the tail.
    (driving,) = [row for row in made["Return / cost"].rows if "Drive" in row[0].text]
    assert driving[1].text == "50.0 / 0.02"
    (driving,) = [row for row in made["Over seeds"].rows if "Drive" in row[0].text]
    assert driving[6].text == "0.02 ± 0.02"
    assert driving[7].text.startswith("0.02 [0.00, 0.0")
    assert driving[8].text == "0.038 (50 %)"
    listed = [dict(zip(made["Runs"].header, row, strict=True)) for row in made["Runs"].rows]
    assert [row["success"].text for row in listed] == ["0.80", "0.80", ""]
    assert [row["cost"].text for row in listed] == ["0.04 ± 0.04", "0.00 ± 0.00", "20.0 ± 20.0"]


def test_a_run_that_a_callback_has_ended_counts_with_the_steps_it_has(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", returns=[1.0, 3.0], ended=6_000)
    summary = summarise_runs([run])
    assert summary.notes == [f"ended early, and counted: {run} after 6,000 of 10,000 steps"]
    made = {section.title: section for section in sections(summary)}
    assert [row[1].text for row in made["Return / cost"].rows] == ["2.0 / 20.0"]
    (listed,) = [dict(zip(made["Runs"].header, row, strict=True)) for row in made["Runs"].rows]
    assert (listed["steps"].text, listed["return"].text) == ("6,000", "2.0 ± 1.0")
    (line,) = csv.DictReader(io.StringIO(as_csv(summary.results)))
    assert line["steps"] == "6000"


def test_ours_is_the_newest_algorithm_of_ours_with_two_seeds(tmp_path: Path) -> None:
    def pairs() -> list[str]:
        made = {section.title: section for section in sections(summarise_runs([tmp_path]))}
        return [row[0].text for row in made["Probability of improvement"].rows]

    for algo in ("sac-lag", "sl-sac"):
        for seed in (0, 1):
            make_run(tmp_path / f"{algo}{seed}", algo, seed=seed)
    make_run(tmp_path / "sl-sac-20", "sl-sac-2")
    assert pairs() == ["sl-sac over sac-lag [a]"]
    make_run(tmp_path / "sl-sac-21", "sl-sac-2", seed=1)
    assert pairs() == ["sl-sac-2 over sac-lag [a]", "sl-sac-2 over sl-sac [a]"]


def test_the_number_of_worker_processes_makes_no_other_experiment(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "cpo", worker_processes=0)
    make_run(tmp_path / "b", "cpo", seed=1, worker_processes=2)
    summary = summarise_runs([tmp_path])
    (group,) = summary.groups
    assert group.settings == "steps=10,000"
    assert [run.config.seed for run in group.runs] == [0, 1]
    # It is still part of the command.
    assert "--worker-processes 2" in sections(summary)[-1].code[1]


def test_differences_from_the_paper(runs: Path) -> None:
    section = {made.title: made for made in sections(summarise_runs([runs]))}[
        "Against published figures"
    ]
    ours = next(row for row in section.rows if row[1].text == "sl-sac")
    # The paper has 1293 / 12.5 for SL-SAC on Hopper.
    assert [cell.text for cell in ours[2:]] == [
        "1000.0", "1293", "-293.0", "10.0", "12.5", "-2.5", "paper"
    ]  # fmt: skip


def test_csv_has_every_digit(runs: Path, tmp_path: Path) -> None:
    make_run(runs / "seed1", "sl-sac", returns=[1001.25] * 2, costs=[0.0] * 2, seed=1)
    write_table([runs], tmp_path / "deep" / "table.csv")
    lines = {
        line["algorithm"]: line
        for line in csv.DictReader(io.StringIO((tmp_path / "deep" / "table.csv").read_text()))
    }
    assert float(lines["sl-sac"]["episode_return_mean"]) == 1000.625
    assert float(lines["sl-sac"]["episode_return_low"]) == 1000.0
    assert float(lines["sl-sac"]["published_return"]) == 1293.0
    assert lines["wcsac"]["seeds"] == "1"
    assert lines["wcsac"]["episode_return_standard_error"] == ""
    assert lines["sac-lag"]["safe"] == "False"


def test_the_command(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(runs / "going", "sl-sac", seed=1, finished=False)
    assert main(["table", str(runs)]) == 0
    shown = capsys.readouterr().out
    assert "2000.0 / 60.0" in shown
    assert "one seed" in shown
    assert "unfinished" in shown
    assert f"not counted: {runs / 'going'}" in shown
    out = tmp_path / "table.md"
    assert main(["table", str(runs), "--out", str(out)]) == 0
    capsys.readouterr()
    assert main(["table", str(runs), "--format", "markdown"]) == 0
    assert capsys.readouterr().out == out.read_text()
    for arguments, expected in (
        ([str(runs), "--out", str(tmp_path / "table.doc")], "must end in one of .txt, .md"),
        ([str(tmp_path / "nowhere")], "does not exist"),
        ([], "runs"),
    ):
        assert main(["table", *arguments]) == 2
        error = capsys.readouterr().err
        assert expected in error
        assert error.count("\n") == 1


def test_a_damaged_log_is_one_line(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(runs / "damaged", "td3-lag")
    lines = (run / "progress.jsonl").read_bytes().splitlines(keepends=True)
    lines[2] = b"\0" * 40 + b"\n"
    (run / "progress.jsonl").write_bytes(b"".join(lines))
    assert main(["table", str(runs)]) == 1
    error = capsys.readouterr().err
    assert "progress.jsonl, line 3, cannot be read" in error
    assert error.count("\n") == 1


def test_a_figure_that_is_not_finite_is_one_line(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(runs / "odd", "td3-lag", returns=[1.0, 12345.0])
    log = run / "evaluations.jsonl"
    log.write_text(log.read_text().replace("12345.0", "Infinity"))
    assert main(["table", str(runs)]) == 1
    error = capsys.readouterr().err
    assert f"{log}, line 1, cannot be read: returns[1] is inf" in error
    assert error.count("\n") == 1


def test_without_rliable_only_what_needs_it_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for algo in ("sl-sac", "sac-lag"):
        for seed in (0, 1):
            make_run(tmp_path / f"{algo}-{seed}", algo, seed=seed)
    monkeypatch.setitem(sys.modules, "rliable", None)
    assert main(["table", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "Over seeds" in shown
    assert "Left out: comparisons over seeds need the extra 'report'" in shown


def test_a_share_of_violations_is_not_rounded_to_none(tmp_path: Path) -> None:
    make_run(tmp_path / "run", returns=[1.0] * 600, costs=[400.0, 400.0] + [0.0] * 598)
    text = render(summarise_runs([tmp_path]), "plain")
    assert "0.333 %" in text


def test_a_config_that_was_changed_by_hand_is_noted(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run") / "config.json"
    path.write_text(path.read_text().replace('"cost_limit": 25.0', '"cost_limit": 100.0'))
    (note,) = summarise_runs([tmp_path]).notes
    assert note == f"with a config that was changed by hand, and counted: {tmp_path / 'run'}"
