"""``slsac table``: the paper's Table 1 from run directories, and the figures behind it.

Sections are built once and `formats` renders them; CSV has a line for each group of runs at full
precision.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from slsac.errors import InvalidInput
from slsac.formatting import cost_digits, extra_means
from slsac.report.aggregate import Spread, Statistics, improvements, statistics, trials_of
from slsac.report.formats import Cell, Section, as_latex, as_markdown, as_plain, as_terminal
from slsac.report.published import ALGORITHM_ORDER, TASK_ORDER, hours_per_million_steps, reference
from slsac.report.read import (
    Group,
    Run,
    command,
    final_episodes,
    find_runs,
    group_runs,
    steps_per_second,
)

FORMATS = {".txt": "plain", ".md": "markdown", ".tex": "latex", ".csv": "csv"}
"""What a file's name says about its format."""


class Summary(NamedTuple):
    """Everything that is said about a set of runs."""

    runs: list[Run]
    groups: list[Group]
    statistics: list[Statistics]
    notes: list[str]


def summarise_runs(paths: Iterable[Path]) -> Summary:
    """Reads the runs at or below ``paths`` and averages those that differ in their seed alone."""
    runs = find_runs(paths)
    groups, notes = group_runs(runs)
    groups.sort(key=_place)
    unfinished = [str(run.path) for run in runs if final_episodes(run) is None]
    if unfinished:
        notes.append(f"without a final evaluation, and not counted: {', '.join(unfinished)}")
    return Summary(runs, groups, statistics(groups), notes)


def _place(group: Group) -> tuple[int, str, bool, str, int, str]:
    """Table 1's order of rows and columns; what it does not know comes after, by name."""

    def rank(order: Sequence[str], name: str) -> int:
        return order.index(name) if name in order else len(order)

    return (
        rank(TASK_ORDER, group.env), group.env, group.stale, group.settings,
        rank(ALGORITHM_ORDER, group.algo), group.algo,
    )  # fmt: skip


def algorithms(groups: Iterable[Group]) -> list[str]:
    """The algorithms in Table 1's order."""
    found = {group.algo for group in groups}
    known = [algo for algo in ALGORITHM_ORDER if algo in found]
    return known + sorted(found - set(known))


def marks(groups: Iterable[Group]) -> dict[str, str]:
    """A letter for every settings that are not the preset's own: ``[a]``, ``[b]``, ..."""
    settings = dict.fromkeys(group.settings for group in groups if group.settings)
    return {text: f"[{_letters(number)}]" for number, text in enumerate(settings)}


def _letters(number: int) -> str:
    more, last = divmod(number, 26)
    return (_letters(more - 1) if more else "") + chr(ord("a") + last)


def sections(summary: Summary) -> list[Section]:
    """What `slsac table` shows, in its order."""
    found = summary.statistics
    mark = marks(summary.groups)
    made = [table_one(found, mark), over_seeds(found, mark), against_published(found, mark)]
    made += [improvement(found, mark), training_time(found, mark), listing(summary.runs, mark)]
    first = made[0]
    made[0] = first._replace(notes=(*first.notes, *summary.notes))
    return [section for section in made if section.rows or section.notes]


def task_label(group: Group, mark: dict[str, str]) -> str:
    parts = [group.env, mark.get(group.settings, ""), "(stale)" if group.stale else ""]
    return " ".join(filter(None, parts))


def table_one(found: Sequence[Statistics], mark: dict[str, str]) -> Section:
    """Return and cost with a row for each task and a column for each algorithm."""
    columns = algorithms(one.group for one in found)
    labels = dict.fromkeys(task_label(one.group, mark) for one in found)
    rows = []
    for label in labels:
        row = {one.group.algo: one for one in found if task_label(one.group, mark) == label}
        safe = [one for one in row.values() if one.safe]
        best = max(safe, key=lambda one: one.episode_return.mean, default=None)
        cells = [Cell(label)]
        for algo in columns:
            if algo not in row:
                cells.append(Cell("", algo=algo))
                continue
            one = row[algo]
            style: Literal["plain", "bold", "grey"] = (
                "bold" if one is best else "plain" if one.safe else "grey"
            )
            text = f"{one.episode_return.mean:.1f} / {one.cost.mean:.{_digits(one)}f}"
            cells.append(Cell(text, style, algo))
        rows.append(tuple(cells))
    notes = [f"{letter} {text}" for text, letter in mark.items()]
    seeds = sorted({len(one.trials) for one in found})
    if seeds:
        span = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
        notes.insert(0, f"Means over {span} seed{'s' if seeds[-1] > 1 else ''} of the final "
                     "evaluation's episodes. Bold: the highest return among those whose mean cost "
                     "keeps the limit. Grey (Markdown: italics): over the limit.")  # fmt: skip
    if not found:
        notes.insert(0, "No run has come to its final evaluation yet.")
    return Section("Return / cost", ("task", *columns), rows, tuple(notes))


def over_seeds(found: Sequence[Statistics], mark: dict[str, str]) -> Section:
    """Spread over seeds, tail and violations of every group."""
    header = ("task", "algorithm", "seeds", "return", "IQM of return", "limit", "cost",
              "IQM of cost", "cost CVaR (tail)", "over limit")  # fmt: skip
    rows = [
        _row(
            one, mark,
            f"{len(one.trials)}",
            plus_minus(one.episode_return, 1), interquartile(one.episode_return, 1),
            f"{one.group.config.cost_limit:g}",
            plus_minus(one.cost, _digits(one)), interquartile(one.cost, _digits(one)),
            f"{one.cvar.mean:.{_digits(one)}f} ({100 * one.group.config.tail_fraction:g} %)",
            f"{100 * one.violation_rate.mean:.0f} %",
        )
        for one in found
    ]  # fmt: skip
    notes = ["± is the standard error of the mean over seeds; IQM is the interquartile mean with "
             "its 95 % stratified bootstrap interval. CVaR and the share of episodes over the "
             "limit are taken of each run and then averaged over seeds."]  # fmt: skip
    if any(len(one.trials) == 1 for one in found):
        notes.append("One seed has no spread over seeds, so nothing is given for it.")
    return Section("Over seeds", header, rows, tuple(notes) if rows else ())


def plus_minus(spread: Spread, digits: int) -> str:
    return _with_error(spread.mean, spread.standard_error, digits)


def interquartile(spread: Spread, digits: int) -> str:
    if spread.interval is None:
        return "one seed"
    low, high = spread.interval
    return f"{spread.iqm:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def _digits(one: Statistics) -> int:
    return cost_digits(one.group.config.cost_limit)


def _row(one: Statistics, mark: dict[str, str], *texts: str) -> tuple[Cell, ...]:
    algo = one.group.algo
    named = (task_label(one.group, mark), algo, *texts)
    return tuple(Cell(text, algo=algo) for text in named)


def against_published(found: Sequence[Statistics], mark: dict[str, str]) -> Section:
    """Our figures, the published ones, and the difference."""
    header = ("task", "algorithm", "return", "published", "difference", "cost", "published",
              "difference", "source")  # fmt: skip
    rows = []
    for one in found:
        published = reference(one.group.algo, one.group.env)
        if published is not None:
            ours, cost, digits = one.episode_return.mean, one.cost.mean, _digits(one)
            rows.append(_row(
                one, mark,
                f"{ours:.1f}", f"{published.episode_return:g}",
                f"{ours - published.episode_return:+.1f}",
                f"{cost:.{digits}f}", f"{published.cost:g}",
                f"{cost - published.cost:+.{digits}f}",
                published.source,
            ))  # fmt: skip
    notes = ["Published figures are for the whole length (paper: 1,000,000 steps, 5 seeds; "
             "OmniSafe: 1,000,000 steps off policy, 3,000,000 on Humanoid and the navigation "
             "tasks, and 10,000,000 on policy); a shorter run is shown beside them and not like "
             "for like."]  # fmt: skip
    return Section("Against published figures", header, rows, tuple(notes) if rows else ())


def improvement(found: Sequence[Statistics], mark: dict[str, str]) -> Section:
    """Probability that a run of SL-SAC beats one of another algorithm."""
    columns = algorithms(one.group for one in found)
    ours = "sl-sac" if "sl-sac" in columns else columns[0] if columns else ""
    rows = []
    for one in improvements(found, ours):
        low, high = one.higher_return_interval
        cost_low, cost_high = one.lower_cost_interval
        texts = (
            f"{one.ours} over {one.theirs} {mark.get(one.settings, '')}".strip(),
            f"{len(one.tasks)}", f"{one.seeds[0]} / {one.seeds[1]}",
            f"{one.higher_return:.2f} [{low:.2f}, {high:.2f}]",
            f"{one.lower_cost:.2f} [{cost_low:.2f}, {cost_high:.2f}]",
        )  # fmt: skip
        rows.append(tuple(Cell(text, algo=one.theirs) for text in texts))
    header = ("pair", "tasks", "seeds", "P(higher return)", "P(lower cost)")
    note = ("A run of the first against a run of the second on the same task, ties half, averaged "
            "over tasks; 95 % stratified bootstrap interval. Needs two seeds of both.")  # fmt: skip
    return Section("Probability of improvement", header, rows, (note,) if rows else ())


def training_time(found: Sequence[Statistics], mark: dict[str, str]) -> Section:
    """Speed, and hours for 1,000,000 steps beside the paper's."""
    rows = []
    for one in found:
        speed = one.steps_per_second
        if speed is not None:
            cores = sorted({str(run.facts["cores"]) for run in one.group.runs})
            paper = hours_per_million_steps(one.group.algo, one.group.env)
            rows.append(_row(
                one, mark, f"{speed:.0f}", ", ".join(cores), f"{1e6 / speed / 3600:.1f}",
                f"{paper:g}" if paper is not None else "",
            ))  # fmt: skip
    header = ("task", "algorithm", "steps/s", "cores", "hours per 1M steps", "paper's, V100")
    note = "As the runs went, beside whatever else their machine was doing."
    return Section("Training time", header, rows, (note,) if rows else ())


def listing(runs: Sequence[Run], mark: dict[str, str]) -> Section:
    """Every run, with the command that makes it."""
    rows = []
    groups = [group_runs([run])[0][0] for run in runs]
    summaries = [next((trial.summary for trial in trials_of(group)), None) for group in groups]
    extras = [extra_means(summary or {}) for summary in summaries]
    names = tuple(dict.fromkeys(name for one in extras for name in one))
    for run, group, summary, known in zip(runs, groups, summaries, extras, strict=True):
        digits = cost_digits(run.config.cost_limit)
        speed = steps_per_second(run)
        done = run.progress[-1]["step"] if run.progress else 0
        figures = ("unfinished", "", "", "") if summary is None else (
            _with_error(summary["return_mean"], summary["return_se"], 1),
            _with_error(summary["cost_mean"], summary["cost_se"], digits),
            f"{summary['cost_cvar']:.{digits}f}",
            f"{100 * summary['violation_rate']:.0f} %",
        )  # fmt: skip
        texts = (
            run.config.algo, task_label(group, mark), f"{run.config.seed}",
            f"{run.config.steps if summary else done:,}", *figures,
            *(f"{known[name]:.2f}" if name in known else "" for name in names),
            "" if speed is None else f"{speed:.0f}", f"{run.facts['cores']}",
            (run.facts.get("commit") or "unknown")[:9],
        )  # fmt: skip
        rows.append(tuple(Cell(text, algo=run.config.algo) for text in texts))
    header = ("algorithm", "task", "seed", "steps", "return", "cost", "cost CVaR", "over limit",
              *names, "steps/s", "cores", "commit")  # fmt: skip
    note = "± is the standard error over the episodes of one run's final evaluation."
    return Section("Runs", header, rows, (note,), tuple(command(run.config) for run in runs))


def _with_error(mean: float, error: float | None, digits: int) -> str:
    text = f"{mean:.{digits}f}"
    return text if error is None else f"{text} ± {error:.{digits}f}"


def as_csv(found: Sequence[Statistics]) -> str:
    """A line for each group of runs, at full precision."""
    names = [
        "task", "algorithm", "settings", "stale", "seeds", "steps", "cost_limit", "tail_fraction",
        "safe",
    ]  # fmt: skip
    spreads = ("episode_return", "cost", "cvar", "violation_rate")
    for name in spreads:
        names += [f"{name}_{part}" for part in ("mean", "standard_error", "iqm", "low", "high")]
    names += ["steps_per_second", "published_return", "published_cost", "published_by"]
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(names)
    for one in found:
        group, config = one.group, one.group.config
        row: list[object] = [
            group.env, group.algo, group.settings, group.stale, len(one.trials), config.steps,
            config.cost_limit, config.tail_fraction, one.safe,
        ]  # fmt: skip
        for name in spreads:
            spread: Spread = getattr(one, name)
            row += [spread.mean, spread.standard_error, spread.iqm]
            row += spread.interval or (None, None)
        published = reference(group.algo, group.env)
        row += [one.steps_per_second, *(published or (None, None, None))]
        writer.writerow(row)
    return file.getvalue()


def render(summary: Summary, form: str) -> str:
    if form == "csv":
        return as_csv(summary.statistics)
    renderers = {
        "terminal": as_terminal,
        "plain": as_plain,
        "markdown": as_markdown,
        "latex": as_latex,
    }
    return renderers[form](sections(summary))


def write_table(runs: Sequence[Path], out: Path, form: str | None = None) -> None:
    """Writes the table of all runs at or below ``runs``.

    Args:
        form: a value of `FORMATS`; if not given, the file's name says it.
    """
    if form is None and out.suffix not in FORMATS:
        raise InvalidInput(f"out is {str(out)!r}; its name must end in one of {', '.join(FORMATS)}")
    form = form or FORMATS[out.suffix]
    text = render(summarise_runs(runs), "plain" if form == "terminal" else form)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text)
