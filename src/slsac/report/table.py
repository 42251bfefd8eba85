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
from slsac.formatting import cost_digits, extra_means, number, percent
from slsac.report.aggregate import GroupResult, Spread, finished_runs, group_results, improvements
from slsac.report.formats import Cell, Section, as_latex, as_markdown, as_plain, as_terminal
from slsac.report.published import ALGORITHM_ORDER, TASK_ORDER, hours_per_million_steps, reference
from slsac.report.read import (
    Group,
    Run,
    final_episodes,
    find_runs,
    group_runs,
    repetition,
    steps_per_second,
)
from slsac.runs.layout import write_atomically

FORMATS = {".txt": "plain", ".md": "markdown", ".tex": "latex", ".csv": "csv"}
"""What a file's name says about its format."""
OURS = ("sl-sac-2", "sl-sac")
"""What other algorithms are compared with: the first that has two seeds."""


class Summary(NamedTuple):
    """A set of runs, the groups they make, and the groups' results."""

    runs: list[Run]
    groups: list[Group]
    results: list[GroupResult]
    notes: list[str]


def summarise_runs(paths: Iterable[Path]) -> Summary:
    """Read the runs at or below ``paths`` and average those that differ in their seed alone."""
    runs = find_runs(paths)
    groups, notes = group_runs(runs)
    groups.sort(key=_place)
    return Summary(runs, groups, group_results(groups), notes + _notes(runs))


def _notes(runs: Iterable[Run]) -> list[str]:
    """On runs without an end, on those that a callback has ended, and on changed configs."""
    open_ended, early, edited = [], [], []
    for run in runs:
        if run.edited:
            edited.append(str(run.path))
        if final_episodes(run) is None:
            open_ended.append(str(run.path))
        elif (step := run.evaluations[-1]["step"]) < run.config.steps:
            early.append(f"{run.path} after {step:,} of {run.config.steps:,} steps")
    notes = {
        "without a final evaluation, and not counted": open_ended,
        "ended early, and counted": early,
        "with a config that was changed by hand, and counted": edited,
    }
    return [f"{what}: {', '.join(named)}" for what, named in notes.items() if named]


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
    names = {group.algo for group in groups}
    known = [algo for algo in ALGORITHM_ORDER if algo in names]
    return known + sorted(names - set(known))


def marks(groups: Iterable[Group]) -> dict[str, str]:
    """A letter for all settings other than the preset's own: ``[a]``, ``[b]``, ..."""
    settings = dict.fromkeys(group.settings for group in groups if group.settings)
    return {text: f"[{_letters(number)}]" for number, text in enumerate(settings)}


def _letters(number: int) -> str:
    more, last = divmod(number, 26)
    return (_letters(more - 1) if more else "") + chr(ord("a") + last)


def sections(summary: Summary) -> list[Section]:
    """The sections of `slsac table`, in its order; those with nothing to say are left out."""
    results = summary.results
    mark = marks(summary.groups)
    first = table_one(results, mark)
    every = (
        first._replace(notes=(*first.notes, *summary.notes)),
        over_seeds(results, mark),
        against_published(results, mark),
        improvement(results, mark),
        training_time(results, mark),
        listing(summary.runs, mark),
    )
    return [section for section in every if section.rows or section.notes]


def task_label(group: Group, mark: dict[str, str]) -> str:
    parts = [group.env, mark.get(group.settings, ""), "(stale)" if group.stale else ""]
    return " ".join(filter(None, parts))


def table_one(results: Sequence[GroupResult], mark: dict[str, str]) -> Section:
    """Return and cost with a row for each task and a column for each algorithm."""
    columns = algorithms(result.group for result in results)
    labels = dict.fromkeys(task_label(result.group, mark) for result in results)
    rows = []
    for label in labels:
        row = {
            result.group.algo: result
            for result in results
            if task_label(result.group, mark) == label
        }
        safe = [result for result in row.values() if result.safe]
        best = max(safe, key=lambda result: result.episode_return.mean, default=None)
        cells = [Cell(label)]
        for algo in columns:
            if algo not in row:
                cells.append(Cell("", algo=algo))
                continue
            result = row[algo]
            style: Literal["plain", "bold", "grey"] = (
                "bold" if result is best else "plain" if result.safe else "grey"
            )
            text = (
                f"{number(result.episode_return.mean, 1)} / "
                f"{number(result.cost.mean, _digits(result))}"
            )
            cells.append(Cell(text, style, algo))
        rows.append(tuple(cells))
    notes = [f"{letter} {text}" for text, letter in mark.items()]
    seeds = sorted({len(result.finished) for result in results})
    if seeds:
        span = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
        notes.insert(0, f"Means over {span} seed{'s' if seeds[-1] > 1 else ''} of the final "
                     "evaluation's episodes. Bold: the highest return among those whose mean cost "
                     "keeps the limit. Grey (Markdown: italics): over the limit.")  # fmt: skip
    if not results:
        notes.insert(0, "No run has reached its final evaluation yet.")
    return Section("Return / cost", ("task", *columns), rows, tuple(notes))


def over_seeds(results: Sequence[GroupResult], mark: dict[str, str]) -> Section:
    """Spread over seeds, tail and violations of every group."""
    header = ("task", "algorithm", "seeds", "return", "IQM of return", "limit", "cost",
              "IQM of cost", "cost CVaR (tail)", "over limit")  # fmt: skip
    rows = [
        _row(
            result, mark,
            f"{len(result.finished)}",
            plus_minus(result.episode_return, 1), interquartile(result.episode_return, 1),
            f"{result.group.config.cost_limit:g}",
            plus_minus(result.cost, _digits(result)), interquartile(result.cost, _digits(result)),
            _cvar(result),
            percent(result.violation_rate.mean),
        )
        for result in results
    ]  # fmt: skip
    notes = ["± is the standard error of the mean over seeds; IQM is the interquartile mean with "
             "its 95 % stratified bootstrap interval. CVaR and the share of episodes over the "
             "limit are computed per run and then averaged over seeds."]  # fmt: skip
    if any(len(result.finished) == 1 for result in results):
        notes.append("One seed has no spread over seeds, so nothing is given for it.")
    return Section("Over seeds", header, rows, tuple(notes) if rows else ())


def plus_minus(spread: Spread, digits: int) -> str:
    return _with_error(spread.mean, spread.standard_error, digits)


def interquartile(spread: Spread, digits: int) -> str:
    if spread.interval is None:
        return "one seed"
    low, high = spread.interval
    return f"{number(spread.iqm, digits)} [{number(low, digits)}, {number(high, digits)}]"


def _digits(result: GroupResult) -> int:
    return cost_digits(result.group.config.cost_limit)


def _cvar(result: GroupResult) -> str:
    tail_percent = 100 * result.group.config.tail_fraction
    return f"{number(result.cvar.mean, _digits(result))} ({tail_percent:g} %)"


def _row(result: GroupResult, mark: dict[str, str], *texts: str) -> tuple[Cell, ...]:
    algo = result.group.algo
    named = (task_label(result.group, mark), algo, *texts)
    return tuple(Cell(text, algo=algo) for text in named)


def against_published(results: Sequence[GroupResult], mark: dict[str, str]) -> Section:
    """Our figures, the published ones, and the difference."""
    header = ("task", "algorithm", "return", "published", "difference", "cost", "published",
              "difference", "source")  # fmt: skip
    rows = []
    for result in results:
        published = reference(result.group.algo, result.group.env)
        if published is not None:
            ours, cost, digits = result.episode_return.mean, result.cost.mean, _digits(result)
            rows.append(_row(
                result, mark,
                number(ours, 1), f"{published.episode_return:g}",
                number(ours - published.episode_return, 1, sign=True),
                number(cost, digits), f"{published.cost:g}",
                number(cost - published.cost, digits, sign=True),
                published.source,
            ))  # fmt: skip
    notes = ["Published figures are for the whole length (paper: 1,000,000 steps, 5 seeds; "
             "OmniSafe: 1,000,000 steps off policy, 3,000,000 on Humanoid and the navigation "
             "tasks, and 10,000,000 on policy); a shorter run beside them is not like for "
             "like."]  # fmt: skip
    return Section("Against published figures", header, rows, tuple(notes) if rows else ())


def improvement(results: Sequence[GroupResult], mark: dict[str, str]) -> Section:
    """Probability that a run of ours beats one of another algorithm."""
    repeated = algorithms(result.group for result in results if len(result.finished) > 1)
    ours = next((algo for algo in (*OURS, *repeated) if algo in repeated), "")
    rows = []
    try:
        pairs = improvements(results, ours)
    except InvalidInput as missing:  # the package; everything else needs none
        return Section("Probability of improvement", (), [], (f"Left out: {missing}.",))
    for pair in pairs:
        low, high = pair.higher_return_interval
        cost_low, cost_high = pair.lower_cost_interval
        texts = (
            f"{pair.ours} over {pair.theirs} {mark.get(pair.settings, '')}".strip(),
            f"{len(pair.tasks)}", f"{pair.seeds[0]} / {pair.seeds[1]}",
            f"{pair.higher_return:.2f} [{low:.2f}, {high:.2f}]",
            f"{pair.lower_cost:.2f} [{cost_low:.2f}, {cost_high:.2f}]",
        )  # fmt: skip
        rows.append(tuple(Cell(text, algo=pair.theirs) for text in texts))
    header = ("pair", "tasks", "seeds", "P(higher return)", "P(lower cost)")
    note = ("A run of the first against a run of the second on the same task, ties half, averaged "
            "over tasks; 95 % stratified bootstrap interval. Needs two seeds of both.")  # fmt: skip
    return Section("Probability of improvement", header, rows, (note,) if rows else ())


def training_time(results: Sequence[GroupResult], mark: dict[str, str]) -> Section:
    """Speed, and hours for 1,000,000 steps beside the paper's."""
    rows = []
    for result in results:
        speed = result.steps_per_second
        if speed is not None:
            cores = sorted({_cores(run) for run in result.group.runs})
            paper = hours_per_million_steps(result.group.algo, result.group.env)
            rows.append(_row(
                result, mark, f"{speed:.0f}", ", ".join(cores), f"{1e6 / speed / 3600:.1f}",
                f"{paper:g}" if paper is not None else "",
            ))  # fmt: skip
    header = ("task", "algorithm", "steps/s", "cores", "hours per 1M steps", "paper's, V100")
    note = "As the runs went, with whatever else their machine was doing."
    return Section("Training time", header, rows, (note,) if rows else ())


def listing(runs: Sequence[Run], mark: dict[str, str]) -> Section:
    """Every run, with the command that makes it."""
    rows = []
    groups = [group_runs([run])[0][0] for run in runs]
    finished = [next(iter(finished_runs(group)), None) for group in groups]
    extras = [extra_means(final.summary if final else {}) for final in finished]
    names = tuple(dict.fromkeys(name for means in extras for name in means))
    for run, group, final, known in zip(runs, groups, finished, extras, strict=True):
        summary = final and final.summary
        digits = cost_digits(run.config.cost_limit)
        speed = steps_per_second(run)
        done = run.progress[-1]["step"] if run.progress else 0
        figures = ("unfinished", "", "", "") if summary is None else (
            _with_error(summary["return_mean"], summary["return_se"], 1),
            _with_error(summary["cost_mean"], summary["cost_se"], digits),
            number(summary["cost_cvar"], digits),
            percent(summary['violation_rate']),
        )  # fmt: skip
        texts = (
            run.config.algo, task_label(group, mark), f"{run.config.seed}",
            f"{final.steps if final else done:,}", *figures,
            *(number(known[name], 2) if name in known else "" for name in names),
            "" if speed is None else f"{speed:.0f}", _cores(run),
            (run.provenance.get("commit") or "unknown")[:9],
        )  # fmt: skip
        rows.append(tuple(Cell(text, algo=run.config.algo) for text in texts))
    header = ("algorithm", "task", "seed", "steps", "return", "cost", "cost CVaR", "over limit",
              *names, "steps/s", "cores", "commit")  # fmt: skip
    note = "± is the standard error over the episodes of one run's final evaluation."
    return Section("Runs", header, rows, (note,), tuple(map(repetition, runs)))


def _cores(run: Run) -> str:
    return str(run.provenance.get("cores", "unknown"))


def _with_error(mean: float, error: float | None, digits: int) -> str:
    text = number(mean, digits)
    return text if error is None else f"{text} ± {number(error, digits)}"


def as_csv(results: Sequence[GroupResult]) -> str:
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
    for result in results:
        group, config = result.group, result.group.config
        row: list[object] = [
            group.env, group.algo, group.settings, group.stale, len(result.finished), result.steps,
            config.cost_limit, config.tail_fraction, result.safe,
        ]  # fmt: skip
        for name in spreads:
            spread: Spread = getattr(result, name)
            row += [spread.mean, spread.standard_error, spread.iqm]
            row += spread.interval or (None, None)
        published = reference(group.algo, group.env)
        row += [result.steps_per_second, *(published or (None, None, None))]
        writer.writerow(row)
    return file.getvalue()


def render(summary: Summary, form: str) -> str:
    if form == "csv":
        return as_csv(summary.results)
    renderers = {
        "terminal": as_terminal,
        "plain": as_plain,
        "markdown": as_markdown,
        "latex": as_latex,
    }
    return renderers[form](sections(summary))


def write_table(runs: Sequence[Path], out: Path, form: str | None = None) -> None:
    """Write the table of all runs at or below ``runs``.

    Args:
        form: a value of `FORMATS`; if None, the file's name says it.
    """
    if form is None and out.suffix not in FORMATS:
        raise InvalidInput(f"out is {str(out)!r}; its name must end in one of {', '.join(FORMATS)}")
    form = form or FORMATS[out.suffix]
    text = render(summarise_runs(runs), "plain" if form == "terminal" else form)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, text.encode())
