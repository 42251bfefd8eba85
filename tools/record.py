"""Record finished runs under results/ and rewrite the tables and pictures made from them.

    python -m tools.record runs/hopper-0                 record a run, then rewrite the pages
    python -m tools.record runs/hopper-0 --group short   the same, in results/short/
    python -m tools.record --stale results/wcsac         mark runs made before a change of learning
    python -m tools.record                               rewrite the pages only

The tables of the README, of docs/results.md and of the pages in docs/results/ come from the
committed files alone.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from slsac.certificate.contents import Calibration, NotCalibrated, QuantileError, from_json
from slsac.errors import InvalidInput
from slsac.formatting import cost_digits, extra_means, number, percent
from slsac.report.aggregate import GroupResult, finished_runs
from slsac.report.published import reference
from slsac.report.read import Run, command, group_runs
from slsac.report.table import algorithms, summarise_runs
from slsac.runs import config_file, layout
from slsac.runs.steps import completed_step
from tools import beside, figures, headline

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results"
README = ROOT / "README.md"
SUMMARY_PAGE = ROOT / "docs" / "results.md"
RUNS_PAGE = ROOT / "docs" / "results" / "all-runs.md"
CERTIFICATE_PAGE = ROOT / "docs" / "results" / "certificates.md"
TASK_PAGES = {
    "SafetyAntVelocity-v1": "ant",
    "SafetyHalfCheetahVelocity-v1": "half-cheetah",
    "SafetyWalker2dVelocity-v1": "walker2d",
    "SafetySwimmerVelocity-v1": "swimmer",
    "SafetyHumanoidVelocity-v1": "humanoid",
    "SafetyHopperVelocity-v1": "hopper",
    "SafetyCarCircle1-v0": "car-circle",
    "SafetyCarGoal1-v0": "car-goal",
    "SafetyPointCircle1-v0": "point-circle",
    "SafetyPointGoal1-v0": "point-goal",
    "MetaDriveSafe-v0": "driving",
}
FILES = (layout.CONFIG, *layout.LOGS, layout.POLICY)
START, END = "<!-- table -->", "<!-- end of table -->"
HEADLINE = "<!-- headline -->", "<!-- end of headline -->"
BESIDE = "<!-- beside -->", "<!-- end of beside -->"


def record(run: Path, group: str) -> Path:
    """Copy what is worth keeping of a complete run; no replay, no checkpoints."""
    config, _, _ = config_file.read(run)
    if completed_step(run) < config.steps:
        raise SystemExit(f"{run} has no final evaluation yet; finish it with `slsac resume {run}`")
    algo = config.algo.replace("/", "-")
    target = RESULTS / group / algo / config.env / f"seed{config.seed}"
    target.mkdir(parents=True, exist_ok=True)
    (target / layout.STALE).unlink(missing_ok=True)
    for name in FILES:
        shutil.copyfile(run / name, target / name)
    for name in layout.ABOUT_POLICY:
        if (run / name).exists():
            shutil.copyfile(run / name, target / name)
    return target


def mark_stale(path: Path, reason: str) -> int:
    """Mark every recorded run at or below ``path``; return their number."""
    folders = sorted(config.parent for config in path.rglob(layout.CONFIG))
    for folder in folders:
        (folder / layout.STALE).write_text(f"{reason}\n")
    return len(folders)


def pages() -> dict[Path, str]:
    """Every page with a generated table, and the text it should have."""
    summary = summarise_runs([RESULTS])
    texts = {
        README: with_block(
            README.read_text(),
            markdown(headline.SHORT_HEADER, headline.short_rows(summary.results)),
            HEADLINE,
        ),
        SUMMARY_PAGE: summary_page(summary.results, summary.runs),
        RUNS_PAGE: with_block(RUNS_PAGE.read_text(), summary_table(summary.results)),
        CERTIFICATE_PAGE: with_block(CERTIFICATE_PAGE.read_text(), certificate_table()),
    }
    for env, name in TASK_PAGES.items():
        page = ROOT / "docs" / "results" / f"{name}.md"
        runs = [run for run in summary.runs if run.config.env == env]
        # Runs with the paper's settings first.
        runs.sort(key=lambda run: len(run.path.relative_to(RESULTS).parts))
        texts[page] = with_block(page.read_text(), task_table(runs))
    return texts


def summary_page(results: Sequence[GroupResult], runs: Sequence[Run]) -> str:
    """docs/results.md with its tables."""
    text = SUMMARY_PAGE.read_text()
    text = with_block(text, markdown(headline.HEADER, headline.rows(results)), HEADLINE)
    return with_block(text, markdown(beside.HEADER, beside.rows(runs)), BESIDE)


def summary_table(results: Sequence[GroupResult]) -> str:
    """A row for each task and algorithm that was run with the paper's settings."""
    header = ("task", "algorithm", "steps", "return", "cost", "CVaR", "over limit", "published",
              "status")  # fmt: skip
    rows = []
    shown = [entry for entry in results if figures.follows_the_paper(entry.group)]
    tasks = list(dict.fromkeys(entry.group.env for entry in results))
    order = algorithms(entry.group for entry in shown)
    shown.sort(key=lambda entry: (
        tasks.index(entry.group.env), order.index(entry.group.algo)
    ))  # fmt: skip
    for entry in shown:
        config = entry.group.config
        published = reference(config.algo, config.env)
        digits = cost_digits(config.cost_limit)
        rows.append((
            f"[{figures.short_name(config.env)}]({TASK_PAGES[config.env]}.md)",
            config.algo,
            f"{config.steps:,}",
            f"{entry.episode_return.mean:,.1f}",
            f"{entry.cost.mean:.{digits}f}",
            f"{entry.cvar.mean:.{digits}f}",
            f"{100 * entry.violation_rate.mean:.0f} %",
            f"{published.episode_return:,g} / {published.cost:g}" if published else "",
            status(entry),
        ))  # fmt: skip
    return markdown(header, rows)


def status(entry: GroupResult) -> str:
    """What the final evaluation says, against the published figure."""
    if not entry.safe:
        return "over the limit"
    tail = "" if entry.cvar.mean <= entry.group.config.cost_limit else ", its CVaR is not"
    # What is measured against the paper's SL-SAC is in the first table.
    published = reference(entry.group.algo, entry.group.env)
    if published is None:
        return f"safe{tail}"
    share = entry.episode_return.mean / published.episode_return
    if share >= 1:
        return f"reached{tail}"
    return f"safe{tail}, {math.floor(100 * share)} % of the return"


def task_table(runs: Sequence[Run]) -> str:
    """A row for each run on a task, and the commands that repeat them."""
    groups = [group_runs([run])[0][0] for run in runs]
    summaries = [finished_runs(group)[0].summary for group in groups]
    reported = [extra_means(summary) for summary in summaries]
    names = tuple(dict.fromkeys(name for means in reported for name in means))
    rows = []
    for run, group, summary, means in zip(runs, groups, summaries, reported, strict=True):
        digits = cost_digits(run.config.cost_limit)
        folder = run.path.relative_to(RESULTS)
        stale = "stale" if run.stale else ""
        rows.append((
            f"[{run.config.algo}](../../results/{folder})",
            f"{run.config.seed}",
            ", ".join(filter(None, (without_steps(group.settings), stale))),
            f"{run.config.steps:,}",
            f"{summary['return_mean']:,.1f} ± {summary['return_se']:.1f}",
            f"{summary['cost_mean']:.{digits}f} ± {summary['cost_se']:.{digits}f}",
            f"{summary['cost_cvar']:.{digits}f}",
            f"{100 * summary['violation_rate']:.0f} %",
            *(f"{means[name]:.2f}" if name in means else "" for name in names),
            (run.provenance.get("commit") or "unknown")[:9],
        ))  # fmt: skip
    header = ("run", "seed", "changed settings", "steps", "return", "cost", "CVaR", "over limit",
              *names, "commit")  # fmt: skip
    commands = "\n".join(command(run.config) for run in runs)
    return f"{markdown(header, rows)}\n```\n{commands}\n```\n"


def without_steps(settings: str) -> str:
    """The changed settings but for the number of steps, which has a column of its own."""
    parts = [part for part in settings.split(", ") if not part.startswith("steps=")]
    return ", ".join(f"`{part}`" for part in parts if part)


def certificate_table() -> str:
    """A row for every certificate under results/."""
    header = ("run", "steps", "over the limit, at most", "CVaR", "its bounds", "verdict",
              "cost critic's error")  # fmt: skip
    rows = []
    for path in sorted(RESULTS.rglob(layout.CERTIFICATE)):
        certificate = from_json(path.read_text())
        run, cvar = certificate.run, certificate.statements.cvar[0]
        low = number(cvar.lower_bound, 1, towards="down")
        high = number(cvar.upper_bound, 1, towards="up")
        page = path.with_suffix(".html").relative_to(ROOT)
        title = f"{run.algo} on {figures.short_name(run.env)}, seed {run.seed}"
        group = path.relative_to(RESULTS).parts[:-4]
        title += "".join(f", {name}" for name in group)
        rows.append((
            f"[{title}](../../{page})",
            f"{run.steps:,}",
            percent(certificate.statements.violation.upper_bound, towards="up"),
            f"{cvar.estimate:.1f}",
            f"{low} to {high}",
            certificate.verdict.outcome.replace("broken", "not kept"),
            critic_error(certificate.calibration),
        ))  # fmt: skip
    return markdown(header, rows)


def critic_error(calibration: Calibration | NotCalibrated) -> str:
    """How far off a cost critic is, with its interval."""
    if isinstance(calibration, NotCalibrated):
        return ""
    error = calibration.error
    if isinstance(error, QuantileError):
        low, high = error.delta_interval
        return f"delta {error.delta:.2f} ({low:.2f} to {high:.2f})"
    low, high = error.bias_interval
    return f"bias {error.bias:.2f} ({low:.2f} to {high:.2f})"


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def with_block(text: str, block: str, marks: tuple[str, str] = (START, END)) -> str:
    """A page's text with what stands between two marks replaced."""
    start, end = marks
    before, mark, rest = text.partition(start)
    if not mark or end not in rest:
        raise SystemExit(f"{before.partition(chr(10))[0]} lacks the lines {start} and {end}")
    return f"{before}{start}\n{block}{end}{rest.partition(end)[2]}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.record")
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--group", default="", help="folder under results/ (none)")
    parser.add_argument("--stale", type=Path, nargs="*", default=[], help="recorded runs to mark")
    parser.add_argument("--reason", default="a later commit changed learning", help="for --stale")
    options = parser.parse_args()
    try:
        for run in options.runs:
            print(f"recorded {record(run, options.group).relative_to(ROOT)}")
        for path in options.stale:
            print(f"marked {mark_stale(path, options.reason)} runs below {path} stale")
        for page, text in pages().items():
            page.write_text(text)
        figures.draw(figures.PICTURES, ".svg")
    except (InvalidInput, json.JSONDecodeError) as error:
        raise SystemExit(f"record: {error}") from None


if __name__ == "__main__":
    main()
