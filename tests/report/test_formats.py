"""Sections as Markdown, LaTeX, HTML and text."""

from __future__ import annotations

from pathlib import Path

import pytest

from slsac.cli import main
from slsac.report.curves import write_curves
from slsac.report.formats import Cell, as_html, as_latex, as_markdown
from slsac.report.table import render, sections, summarise_runs
from tests.support.recorded import HOPPER, make_run


def test_markdown_and_latex(runs: Path) -> None:
    made = sections(summarise_runs([runs]))
    markdown = as_markdown(made)
    row = f"| {HOPPER} [a] | *2000.0 / 60.0* | 900.0 / 0.0 | **1000.0 / 10.0** |"
    assert row in markdown.splitlines()
    assert f"slsac train --algo wcsac --env {HOPPER} --seed 0 --steps 10000" in markdown
    latex = as_latex(made).splitlines()
    assert (
        rf"{HOPPER} [a] & \textcolor{{gray}}{{2000.0 / 60.0}} & 900.0 / 0.0 & "
        r"\textbf{1000.0 / 10.0} \\" in latex
    )
    assert sum(line.startswith(r"\begin{tabular}") for line in latex) == sum(
        line == r"\end{tabular}" for line in latex
    )
    assert r"100 \%" in "\n".join(latex)


STRANGE = r"a|b*c`d$e_f{g}h\i<j>[k](l)~^#&%"


def test_a_task_may_have_any_name(tmp_path: Path) -> None:
    made = sections(summarise_runs([make_run(tmp_path / "run", env=STRANGE)]))
    row = as_markdown(made).splitlines()[4]
    assert row.startswith(r"| a\|b\*c\`d$e_f{g}h\\i&lt;j&gt;[k]\(l)~^#&% [a] | ")
    latex = next(line for line in as_latex(made).splitlines() if line.startswith("a|b"))
    assert latex.startswith(
        r"a|b*c`d\$e\_f\{g\}h\textbackslash{}i\textless{}j\textgreater{}[k](l)"
        r"\textasciitilde{}\textasciicircum{}\#\&\% [a] & "
    )


def test_no_escape_sequence_reaches_a_terminal_or_a_file(tmp_path: Path) -> None:
    # A folder's name, and the name of a figure that an env reports.
    run = make_run(tmp_path / "run\x1b[2J", extras={"a\x1b]0;b": (1.0, 2.0)}, finished=True)
    unfinished = make_run(tmp_path / "other\x1b[2J", seed=1, finished=False)
    summary = summarise_runs([run, unfinished])
    for form in ("terminal", "plain", "markdown", "latex"):
        shown = render(summary, form)
        assert "\x1b" not in shown
        assert r"\x1b[2J" in shown or "textbackslash" in shown


def test_a_dollar_sign_is_no_formula(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", env="$\\frac{$ \u2603 \U0001f9ea")
    write_curves([run], tmp_path / "curves.svg")
    assert "$\\frac{$" in (tmp_path / "curves.svg").read_text()


def test_html_escapes_what_it_is_given(runs: Path) -> None:
    first = sections(summarise_runs([runs]))[0]
    text = as_html(first._replace(rows=[(Cell("<b>"),) * len(first.header)]))
    assert "&lt;b&gt;" in text
    assert "<b>" not in text


def test_a_narrow_terminal_cuts_no_figure_off(
    runs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = render(summarise_runs([runs]), "terminal")
    assert "\x1b[" in shown
    assert "\N{HORIZONTAL ELLIPSIS}" not in shown
    # A file is the same whatever the terminal is, and has each row on one line.
    assert main(["table", str(runs), "--out", str(tmp_path / "table.txt")]) == 0
    text = (tmp_path / "table.txt").read_text()
    assert "\x1b[" not in text
    assert "2000.0 / 60.0" in text
    assert "SafetyHopperVelocity-v1" in text
