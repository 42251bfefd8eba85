"""`slsac report` in a real browser: no error, no network, toggles that work, true numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slsac.cli import main
from slsac.formatting import number
from slsac.report.html import as_script_json, calibration, config_differences, data, page
from slsac.report.table import summarise_runs
from slsac.runs.layout import policy_digest
from slsac.runs.log import read_lines
from tests.support.browser import Page
from tests.support.paths import ROOT
from tests.support.recorded import HOPPER, make_run

RECORDED = ROOT / "results" / "short"
GOAL = "SafetyPointGoal1-v0"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the runs that the repository keeps."""
    out = tmp_path_factory.mktemp("report") / "report.html"
    assert main(["report", str(RECORDED), "--out", str(out)]) == 0
    return out


def rows(tab: Page, section: str) -> list[list[str]]:
    """The visible text of a table, cell by cell."""
    return tab.run(
        f"[...document.querySelectorAll('[aria-label=\"{section}\"] tbody tr')]"
        ".filter(row => row.offsetParent !== null)"
        ".map(row => [...row.cells].filter(c => c.offsetParent !== null).map(c => c.innerText))"
    )


def lines(tab: Page, chart: str) -> list[str]:
    return tab.run(f"[...document.querySelectorAll('#{chart} path.line')].map(p => p.dataset.algo)")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1440])
def test_it_opens_without_error_or_network(
    tab: Page, recorded: Path, width: int, scheme: str
) -> None:
    tab.open(recorded, width, 900, scheme)
    assert tab.problems == []
    assert tab.run("document.documentElement.dataset.theme") == scheme
    # Nothing but what is meant to scroll is wider than the screen.
    assert tab.run("document.documentElement.scrollWidth") == width
    assert len(lines(tab, "return")) == 6
    for chart in ("tradeoff", "tail", "return", "cost", "multiplier", "cvar"):
        assert tab.run(f"document.querySelectorAll('#{chart} svg').length") == 1
    assert "NaN" not in tab.run("document.querySelector('main').innerHTML")
    tab.click("#theme")
    assert tab.run("document.documentElement.dataset.theme") != scheme
    assert tab.problems == []


def test_the_numbers_are_those_of_the_files(tab: Page, recorded: Path) -> None:
    tab.open(recorded, 1440, 900)
    shown = {(row[0], row[2]): row for row in rows(tab, "Runs")}
    folders = sorted(path.parent for path in RECORDED.rglob("config.json"))
    assert len(shown) == len(folders) >= 7
    for folder in folders:
        config = json.loads((folder / "config.json").read_text())
        final = read_lines(folder / "evaluations.jsonl")[-1]
        row = shown[config["algo"], str(config["seed"])]
        assert row[3] == f"{config['steps']:,}"
        assert row[4] == f"{number(final['return_mean'], 1)} ± {number(final['return_se'], 1)}"
        assert row[5] == f"{number(final['cost_mean'], 1)} ± {number(final['cost_se'], 1)}"
        assert row[6] == number(final["cost_cvar"], 1)
        over = sum(cost > config["cost_limit"] for cost in final["costs"])
        assert row[7] == f"{100 * over / len(final['costs']):.0f} %"
        runs = tab.run(f"data.panels[0].groups.find(g => g.algo === '{config['algo']}').runs")
        assert final["return_mean"] in [run["return"] for run in runs]
        assert final["cost_cvar"] in [run["cvar"] for run in runs]


def test_an_algorithm_can_be_turned_off_and_on(tab: Page, recorded: Path) -> None:
    tab.open(recorded, 1440, 900)
    chip = ".chip[data-algo='sac-lag']"
    before = rows(tab, "Return / cost")[0]
    tab.click(chip)
    assert tab.run(f"document.querySelector(\"{chip}\").getAttribute('aria-pressed')") == "false"
    for chart in ("return", "cost", "multiplier", "cvar"):
        assert "sac-lag" not in lines(tab, chart)
        assert len(lines(tab, chart)) == 5
    assert "sac-lag" not in [row[1] for row in rows(tab, "Over seeds")]
    assert len(rows(tab, "Return / cost")[0]) == len(before) - 1
    assert tab.run("document.querySelectorAll('#histograms .card').length") == 5
    tab.click(chip)
    assert rows(tab, "Return / cost")[0] == before
    assert "sac-lag" in lines(tab, "return")
    # With nothing selected there are sentences in place of charts.
    for algo in tab.run("data.algorithms.map(a => a.name)"):
        tab.click(f".chip[data-algo='{algo}']")
    assert tab.run("document.querySelectorAll('.card svg').length") == 0
    assert "no selected algorithm has it" in tab.run("document.querySelector('#return').innerText")
    assert tab.problems == []


def test_a_column_of_a_marked_group_goes_with_its_algorithm(tab: Page, tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "a", "cpo")
    make_run(tmp_path / "runs" / "b", "sl-sac", cost_limit=5.0)
    out = tmp_path / "report.html"
    assert main(["report", str(tmp_path / "runs"), "--out", str(out)]) == 0
    tab.open(out, 1440, 900)

    def shown(what: str) -> list[str]:
        return tab.run(
            f"[...document.querySelectorAll('[aria-label=\"Configuration\"] {what}')]"
            ".filter(cell => cell.offsetParent !== null).map(cell => cell.innerText)"
        )

    assert shown("th") == ["field", "cpo [a]", "sl-sac [b]"]
    tab.click(".chip[data-algo='cpo']")
    assert shown("th") == ["field", "sl-sac [b]"]
    assert shown("tr:nth-child(1) td") == ["cost_limit", "5.0"]
    assert tab.problems == []


def test_hovering_and_arrow_keys_name_the_values(tab: Page, recorded: Path) -> None:
    tab.open(recorded, 1440, 900)
    tab.hover("#return svg", right=40)
    text = tab.run("document.querySelector('#return .tip').innerText")
    step = int(text.splitlines()[0].removeprefix("step ").replace(",", ""))
    curve = tab.run("data.panels[0].groups.find(g => g.algo === 'wcsac').curves.return")
    expected = curve["mean"][curve["steps"].index(step)]
    assert f"wcsac\n{expected:,.1f}" in text.replace("wcsac ", "wcsac\n")
    assert tab.run("getComputedStyle(document.querySelector('#return .tip')).display") == "block"
    tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=2, y=2)
    assert tab.run("getComputedStyle(document.querySelector('#return .tip')).display") == "none"
    tab.run("document.querySelector('#cost svg').focus()")
    for _ in range(2):
        tab.call("Input.dispatchKeyEvent", type="keyDown", key="ArrowLeft", code="ArrowLeft",
                 windowsVirtualKeyCode=37)  # fmt: skip
    steps = tab.run("data.panels[0].groups[0].curves.cost.steps")
    assert tab.run("document.querySelector('#cost .tip').innerText").startswith(
        f"step {steps[-3]:,}"
    )
    before = tab.run("document.querySelector('#cost path.line').getAttribute('d')")
    tab.click("#log")
    assert tab.run("document.querySelector('#cost path.line').getAttribute('d')") != before
    assert tab.problems == []


def test_several_tasks_calibration_and_a_run_that_is_still_going(tab: Page, tmp_path: Path) -> None:
    certified = make_run(tmp_path / "runs" / "a", costs=[0.0, 30.0, 50.0], returns=[1, 2, 3])
    (certified / "policy.safetensors").write_bytes(b"a policy")
    (certified / "calibration.json").write_text(
        json.dumps({"nominal": [0.1, 0.5, 0.9], "observed": [0.2, 0.5, 0.7],
                    "wasserstein": 1.25, "delta": 0.5, "policy_sha256": policy_digest(certified)})
    )  # fmt: skip
    make_run(tmp_path / "runs" / "b", seed=1, finished=False)
    make_run(tmp_path / "runs" / "c", "sac-lag", GOAL, costs=[0.0, 0.0])
    out = tmp_path / "report.html"
    assert main(["report", str(tmp_path / "runs"), "--out", str(out)]) == 0
    tab.open(out, 1200, 900)
    assert lines(tab, "return") == ["sl-sac"]
    note = tab.run("document.querySelector('#histograms').innerText")
    assert "2 of 3 over the limit" in note
    assert "CVaR 40.0" in note  # the worst half of three: two episodes, 30 and 50
    calibration = tab.run("document.querySelector('#calibration').innerText")
    assert "sl-sac, seed 0" in calibration
    assert "1.25" in calibration
    assert "unfinished" in [cell for row in rows(tab, "Runs") for cell in row]
    tab.run(
        "(() => { const s = document.querySelector('#panel'); s.value = '1';"
        "s.dispatchEvent(new Event('change')); })()"
    )
    assert lines(tab, "return") == ["sac-lag"]
    assert [row[0] for row in rows(tab, "Runs")] == ["sac-lag"]
    assert len(rows(tab, "Return / cost")) == 2
    assert GOAL in tab.run("document.querySelector('#facts').innerText")
    assert "None of the runs shown has had its cost critic compared" in tab.run(
        "document.querySelector('#calibration').innerText"
    )
    assert tab.problems == []


def test_costs_around_a_small_limit_are_told_apart(tab: Page, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", env="MetaDriveSafe-v0", costs=[0.0] * 49 + [1.0],
                   returns=[50.0] * 50)  # fmt: skip
    out = tmp_path / "report.html"
    assert main(["report", str(run), "--out", str(out)]) == 0
    tab.open(out, 1200, 900)
    assert "at cost 0.02" in tab.run("document.querySelector('#facts').innerText")
    # One of the 25 worst.
    assert "CVaR 0.04" in tab.run("document.querySelector('#histograms').innerText")
    assert tab.problems == []


def test_a_run_that_a_callback_has_ended_is_compared_where_it_ended(tmp_path: Path) -> None:
    make_run(tmp_path / "whole")
    make_run(tmp_path / "ended", "sac-lag", ended=6_000)
    (panel,) = data(summarise_runs([tmp_path]))["panels"]
    assert {group["algo"]: group["steps"] for group in panel["groups"]} == {
        "sl-sac": 10_000, "sac-lag": 6_000
    }  # fmt: skip


def test_names_cannot_break_out_of_the_page(tmp_path: Path) -> None:
    run = make_run(tmp_path / "<script>alert(1)<")
    text = page(summarise_runs([run]))
    assert "<script>alert" not in text
    assert as_script_json({"name": "</script>"}) == '{"name":"\\u003c/script>"}'
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in text


def test_only_fields_that_differ_are_shown(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    make_run(tmp_path / "b", cost_limit=5.0)
    section = config_differences(summarise_runs([tmp_path]).groups)
    assert section.header == ("field", "sl-sac [a]", "sl-sac [b]")
    assert [[cell.text for cell in row] for row in section.rows] == [["cost_limit", "25.0", "5.0"]]
    (only,) = config_differences(summarise_runs([tmp_path / "a"]).groups).notes
    assert only == "All runs have the same configuration."


def test_bad_files_get_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run", env=HOPPER)
    (run / "calibration.json").write_text("{}")
    for out, expected in (("x.pdf", "must end in .html"), ("x.html", "calibration.json cannot be")):
        assert main(["report", str(run), "--out", str(tmp_path / out)]) == 2
        error = capsys.readouterr().err
        assert expected in error
        assert error.count("\n") == 1


def test_a_calibration_of_another_policy_is_not_shown(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    (run / "policy.safetensors").write_bytes(b"a policy")
    made = {"nominal": [0.5], "observed": [0.4], "policy_sha256": policy_digest(run)}
    (run / "calibration.json").write_text(json.dumps(made))
    (loaded,) = summarise_runs([run]).runs
    assert calibration(loaded) is not None
    (run / "policy.safetensors").write_bytes(b"the policy after more training")
    assert calibration(loaded) is None


def report_of(folder: Path) -> Path:
    out = folder / "report.html"
    assert main(["report", str(folder / "runs"), "--out", str(out)]) == 0
    return out


def texts(tab: Page, selector: str) -> list[str]:
    return tab.run(
        f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.textContent)"
    )


def test_it_opens_on_the_task_with_the_most_algorithms(tab: Page, tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "a")
    for algo in ("sac-lag", "cpo"):
        make_run(tmp_path / "runs" / algo, algo, GOAL)
    tab.open(report_of(tmp_path), 1200, 900)
    assert tab.run("panel.env") == GOAL
    assert texts(tab, "#panel option:checked") == [GOAL]
    assert sorted(lines(tab, "return")) == ["cpo", "sac-lag"]


def test_one_point_stands_in_the_middle_between_ticks_that_differ(
    tab: Page, tmp_path: Path
) -> None:
    make_run(tmp_path / "runs" / "a", returns=[27.6, 27.6])
    tab.open(report_of(tmp_path), 1200, 900)
    # A quarter of 27.6 to both sides, and a margin.
    assert texts(tab, "#tradeoff .y-tick") == ["20", "25", "30", "35"]
    middle = tab.run(
        "(() => { const s = document.querySelector('#tradeoff svg').getBoundingClientRect();"
        "const p = document.querySelector('#tradeoff circle').getBoundingClientRect();"
        "return (p.y + p.height / 2 - s.y) / s.height; })()"
    )
    assert 0.35 < middle < 0.65


def test_ticks_have_the_digits_of_their_step(tab: Page, tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "a")
    tab.open(report_of(tmp_path), 1200, 900)
    assert tab.run("[28, 28.25, 28.5].map(v => tickText(v, 0.25, 28.5))") == [
        "28.00", "28.25", "28.50"
    ]  # fmt: skip
    assert tab.run("[0, 20000, 40000].map(v => tickText(v, 20000, 4e4))") == ["0", "20k", "40k"]
    assert tab.run("[1e6, 1.5e6].map(v => tickText(v, 5e5, 1.5e6))") == ["1.0M", "1.5M"]


@pytest.mark.parametrize("width", [420, 1280])
def test_a_wide_table_scrolls_beside_its_first_column(
    tab: Page, tmp_path: Path, width: int
) -> None:
    for algo in ("sl-sac", "wcsac", "sac-lag", "td3-lag", "sac-pid", "td3-pid", "cpo", "ppo-lag",
                 "sl-sac-2", "sl-sac/pairs-1", "sl-sac/tail-1"):  # fmt: skip
        make_run(tmp_path / "runs" / algo.replace("/", "-"), algo)
    tab.open(report_of(tmp_path), width, 900)
    table = "document.querySelector('[aria-label=\"Return / cost\"]')"
    assert tab.run(f"{table}.scrollWidth > {table}.clientWidth")
    assert tab.run(f"{table}.className") == "scroll grid more-right"
    assert tab.run("document.documentElement.scrollWidth") == width
    left = f"{table}.querySelector('td').getBoundingClientRect().x"
    before = tab.run(left)
    tab.run(f"{table}.scrollLeft = 1e6")
    tab.run("edges()")
    assert tab.run(left) == before
    assert tab.run(f"{table}.className") == "scroll grid more-left"
    # The last column is wholly inside.
    assert tab.run(
        f"{table}.querySelector('th:last-child').getBoundingClientRect().right"
        f" <= {table}.getBoundingClientRect().right"
    )


@pytest.mark.parametrize("width", [420, 760, 1280])
def test_a_long_name_breaks_between_its_words(tab: Page, tmp_path: Path, width: int) -> None:
    make_run(tmp_path / "runs" / "a", env="SafetyHalfCheetahVelocity-v1")
    tab.open(report_of(tmp_path), width, 900)
    for place in ("#facts b", "td"):
        assert "".join(texts(tab, f"{place} .word")).startswith("SafetyHalfCheetahVelocity-v1")
        # Every word is on one line: it has one box.
        assert tab.run(
            f"[...document.querySelectorAll('{place} .word')].every(word => {{"
            "const range = document.createRange(); range.selectNodeContents(word);"
            "return range.getClientRects().length === 1; })"
        )


def spiked(run: Path) -> None:
    """One epoch of a run has a multiplier of 500 beside others of at most 2."""
    log = run / "progress.jsonl"
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    more = [
        {"step": 10_000 + 10 * i, "multiplier": 500.0 if i == 3 else 1.0, "window_cvar": 1.0}
        for i in range(20)
    ]
    log.write_text("".join(json.dumps(line) + "\n" for line in entries + more))


def test_a_spike_of_the_multiplier_leaves_the_rest_readable(tab: Page, tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs" / "a", multiplier_warmup_steps=4_000)
    tab.open(report_of(tmp_path), 1200, 900)
    assert texts(tab, "#multiplier .peak") == []
    spiked(run)
    tab.open(report_of(tmp_path), 1200, 900)
    assert max(float(text) for text in texts(tab, "#multiplier .y-tick")) <= 2.0
    assert texts(tab, "#multiplier .peak") == ["sl-sac 500"]
    assert texts(tab, "#multiplier small") == ["cut above the dotted line"]
    # On a logarithmic scale there is room for all of it.
    tab.click("#log")
    assert texts(tab, "#multiplier .peak") == []
    assert "100" in texts(tab, "#multiplier .y-tick")


def test_the_multiplier_is_marked_where_it_begins_to_act(tab: Page, tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "a", multiplier_warmup_steps=4_000)
    make_run(tmp_path / "runs" / "b", "cpo")  # on policy: from the start
    tab.open(report_of(tmp_path), 1200, 900)
    assert texts(tab, "#multiplier .start-text") == ["acts from 4000"]
    # The axis goes from 0 to 10,000 steps.
    place = tab.run(
        "(() => { const a = document.querySelector('#multiplier .axis');"
        "const s = document.querySelector('#multiplier .start');"
        "return (s.x1.baseVal.value - a.x1.baseVal.value)"
        " / (a.x2.baseVal.value - a.x1.baseVal.value); })()"
    )
    assert place == pytest.approx(0.4)
    assert texts(tab, "#cost .start-text") == []
    # A second one is said in short, so that there is room for both.
    make_run(tmp_path / "runs" / "c", "sac-lag", multiplier_warmup_steps=8_000)
    tab.open(report_of(tmp_path), 420, 900)
    assert texts(tab, "#multiplier .start-text") == ["acts from 4000", "8000"]


def test_the_limits_text_is_where_no_curve_can_be(tab: Page, recorded: Path) -> None:
    for width in (420, 1280):
        tab.open(recorded, width, 900)
        for chart in ("cost", "cvar"):
            assert tab.run(
                f"(() => {{ const of = s => document.querySelector('#{chart} ' + s)"
                ".getBoundingClientRect();"
                "const text = of('.limit-text'); return text.left > of('.axis').right"
                " && text.right <= of('svg').right + 12; })()"
            )
        assert tab.run(
            "(() => { const of = s => document.querySelector('#tradeoff ' + s)"
            ".getBoundingClientRect();"
            "return of('.limit-text').bottom <= of('.unsafe-zone').top; })()"
        )


def test_runs_of_different_lengths_are_compared_at_the_common_step(
    tab: Page, tmp_path: Path
) -> None:
    make_run(tmp_path / "runs" / "short", "sac-lag", returns=[50.0], costs=[7.0], steps=5_000,
             multiplier_warmup_steps=1_000)  # fmt: skip
    long = make_run(tmp_path / "runs" / "long", returns=[900.0], costs=[90.0],
                    multiplier_warmup_steps=8_000)  # fmt: skip
    log = long / "evaluations.jsonl"
    half, end = log.read_text().splitlines()
    early = {**json.loads(half), "return_mean": 40.0, "cost_mean": 3.0, "cost_cvar": 4.0}
    log.write_text(f"{json.dumps(early)}\n{end}\n")
    tab.open(report_of(tmp_path), 1200, 900)
    assert sorted(lines(tab, "return")) == ["sac-lag", "sl-sac"]
    found = tab.run("compared().map(g => [g.algo, g.return, g.cost, g.cvar])")
    assert sorted(found) == [["sac-lag", 50, 7, 7], ["sl-sac", 40, 3, 4]]
    facts = tab.run("document.querySelector('#facts').innerText")
    assert "sac-lag: 50.0" in facts
    assert "after 5,000 steps" in facts
    assert "2 of 2 safe" in facts
    note = tab.run("document.querySelector('#scatter-note').innerText")
    assert "Not yet held to the limit at that step: sl-sac." in note
    tab.click("#common")
    found = tab.run("compared().map(g => [g.algo, g.return, g.cost, g.cvar])")
    assert sorted(found) == [["sac-lag", 50, 7, 7], ["sl-sac", 900, 90, 90]]
    assert "1 of 2 safe" in tab.run("document.querySelector('#facts').innerText")
    # Without the short run there is nothing to choose.
    tab.click(".chip[data-algo='sac-lag']")
    assert tab.run("document.querySelector('#common').offsetParent") is None
    assert tab.problems == []


def test_settings_of_one_algorithm_are_told_apart_and_another_limit_is_another_task(
    tab: Page, tmp_path: Path
) -> None:
    make_run(tmp_path / "runs" / "a")
    make_run(tmp_path / "runs" / "b", policy__hidden=(8, 8))
    make_run(tmp_path / "runs" / "c", cost_limit=5.0)
    tab.open(report_of(tmp_path), 1200, 900)
    assert texts(tab, "#panel option") == [f"{HOPPER} limit 25", f"{HOPPER} limit 5"]
    assert tab.run("visible().map(g => g.label)") == ["sl-sac [a]", "sl-sac [c]"]
    dashes = tab.run(
        "[...document.querySelectorAll('#return .line')]"
        ".map(path => path.getAttribute('stroke-dasharray'))"
    )
    assert dashes == ["none", "9 3 2 3"]
    tab.click("[data-settings='[c]']")
    assert tab.run("visible().map(g => g.label)") == ["sl-sac [a]"]
    assert tab.problems == []


def test_a_run_of_one_epoch_is_drawn_as_a_point_and_one_of_none_says_so(
    tab: Page, tmp_path: Path
) -> None:
    run = make_run(tmp_path / "runs" / "a")
    log = run / "progress.jsonl"
    log.write_text(log.read_text().splitlines()[0] + "\n")
    tab.open(report_of(tmp_path), 1200, 900)
    assert tab.run("document.querySelectorAll('#multiplier circle').length") == 1
    # The axis is the run's, not the epoch's.
    assert texts(tab, "#multiplier .x-tick")[-1] == "10k"
    log.write_text("")
    tab.open(report_of(tmp_path), 1200, 900)
    for chart in ("multiplier", "cvar"):
        assert "logged when an epoch ends" in tab.run(
            f"document.querySelector('#{chart}').innerText"
        )
    assert tab.problems == []


def test_signed_costs_are_drawn(tab: Page, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", costs=[-30.0, -30.0, 10.0], returns=[1, 2, 3],
                   cost_critic__cost_floor=None)  # fmt: skip
    out = tmp_path / "report.html"
    assert main(["report", str(run), "--out", str(out)]) == 0
    tab.open(out, 1200, 900)
    assert tab.run("document.querySelectorAll('#histograms rect[opacity]').length") == 2
    assert tab.problems == []
