"""Keeps finished runs: copies their small files to results/ and rewrites the pages made of them.

    python benchmarks/record.py runs/hopper-0                 keeps one run, then the pages
    python benchmarks/record.py runs/hopper-0 --group short   the same, in results/short/
    python benchmarks/record.py --stale results/wcsac         marks runs that learning left behind
    python benchmarks/record.py                               the pages only

docs/results.md, the certificates in docs/risk.md and the "Results so far" of each page under
docs/algorithms are made from the committed files alone; nothing in them is typed by hand.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from slsac.config.presets import ALGORITHMS
from slsac.errors import InvalidInput
from slsac.report.curves import write_curves
from slsac.report.formats import as_markdown
from slsac.report.read import STALE, Run
from slsac.report.table import listing, marks, sections, summarise_runs
from slsac.runs import config_file
from slsac.runs.steps import completed_step

ROOT = Path(__file__).resolve().parent.parent
FILES = ("config.json", "progress.jsonl", "episodes.jsonl", "evaluations.jsonl", "timing.jsonl",
         "policy.safetensors")  # fmt: skip
CERTIFICATES = ("calibration.json", "certificate.json", "certificate.html",
                "certificate-episodes.json")  # fmt: skip
START, END = "<!-- table -->", "<!-- end of table -->"


def keep(run: Path, group: str) -> Path:
    """Copies what is worth keeping of a complete run; no replay, no checkpoints."""
    config, _, _ = config_file.read(run)
    if completed_step(run) < config.steps:
        raise SystemExit(f"{run} has no final evaluation yet; finish it with `slsac resume {run}`")
    algo = config.algo.replace("/", "-")
    target = ROOT / "results" / group / algo / config.env / f"seed{config.seed}"
    target.mkdir(parents=True, exist_ok=True)
    (target / STALE).unlink(missing_ok=True)
    for name in FILES:
        shutil.copyfile(run / name, target / name)
    for name in CERTIFICATES:
        if (run / name).exists():
            shutil.copyfile(run / name, target / name)
    return target


def mark_stale(path: Path, reason: str) -> int:
    """Marks every recorded run at or below ``path``; gives their number."""
    folders = sorted(config.parent for config in path.rglob("config.json"))
    for folder in folders:
        (folder / STALE).write_text(f"{reason}\n")
    return len(folders)


def pages() -> dict[Path, str]:
    """Every generated page with the text that it should have."""
    summary = summarise_runs([ROOT / "results"])
    results = ROOT / "docs" / "results.md"
    made = {results: with_block(results, as_markdown(sections(summary), level=3))}
    risk = ROOT / "docs" / "risk.md"
    made[risk] = with_block(risk, certificates())
    for page in sorted((ROOT / "docs" / "algorithms").glob("*.md")):
        if START in page.read_text():
            runs = [run for run in summary.runs if page_of(run.config.algo) == page.stem]
            made[page] = with_block(page, results_so_far(runs, marks(summary.groups)))
    return made


def certificates() -> str:
    """A row for every certificate under results/."""
    header = ("run", "steps", "episodes", "over the limit, at most", "CVaR at", "CVaR",
              "its bounds", "verdict", "cost critic (discounted)")  # fmt: skip
    rows = [header, ("---",) * len(header)]
    for path in sorted((ROOT / "results").rglob("certificate.json")):
        made = json.loads(path.read_text())
        run, cvar = made["run"], made["cvar"][0]
        page = path.with_suffix(".html").relative_to(ROOT)
        bounds = [
            "none" if bound is None else f"{bound:.1f}"
            for bound in (cvar["lower_bound"], cvar["upper_bound"])
        ]
        rows.append((
            f"[{run['algo']} on {run['env']}, seed {run['seed']}](../{page})",
            f"{run['steps']:,}",
            f"{made['protocol']['episodes']}",
            f"{100 * made['violation']['upper_bound']:.3g} %",
            f"{cvar['tail_fraction']:g}",
            f"{cvar['estimate']:.1f}",
            " to ".join(bounds),
            made["verdict"]["outcome"],
            about_critic(made["calibration"]),
        ))  # fmt: skip
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def about_critic(calibration: dict[str, Any]) -> str:
    """How far off a cost critic is, with its interval."""
    for name in ("delta", "bias"):
        if name in calibration:
            low, high = calibration[f"{name}_interval"]
            return f"{name} {calibration[name]:.2f} ({low:.2f} to {high:.2f})"
    return ""


def pictures() -> dict[Path, list[Path]]:
    """The folders whose runs are drawn in each picture: one for every group."""
    drawn: dict[Path, list[Path]] = {}
    results = ROOT / "results"
    for config in sorted(results.rglob("config.json")):
        *group, _, _, _ = config.parent.relative_to(results).parts  # algorithm, task, seed
        name = "-".join(["curves", *group])
        drawn.setdefault(ROOT / "docs" / f"{name}.svg", []).append(config.parent)
    return drawn


def page_of(algo: str) -> str:
    """The page that describes an algorithm: its own, its base's, or that of the ablations."""
    base, _, variant = algo.partition("/")
    return "ablations" if base == "sl-sac" and variant else base if base in ALGORITHMS else algo


def results_so_far(runs: list[Run], mark: dict[str, str]) -> str:
    if not runs:
        return "No run is recorded yet.\n"
    section = listing(runs, mark)
    settings = {text: letter for text, letter in mark.items() if letter in str(section.rows)}
    notes = (*section.notes, *(f"{letter} {text}" for text, letter in settings.items()))
    # The page has its own heading.
    return as_markdown([section._replace(notes=notes)]).partition("\n\n")[2]


def with_block(page: Path, block: str) -> str:
    """The page's text with what stands between its two marks replaced."""
    before, mark, rest = page.read_text().partition(START)
    if not mark or END not in rest:
        raise SystemExit(f"{page} lacks the lines {START} and {END}")
    return f"{before}{START}\n{block}{END}{rest.partition(END)[2]}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--group", default="", help="folder under results/ (none)")
    parser.add_argument("--stale", type=Path, nargs="*", default=[], help="recorded runs to mark")
    parser.add_argument("--reason", default="a later commit changed learning", help="for --stale")
    options = parser.parse_args()
    try:
        for run in options.runs:
            print(f"kept {keep(run, options.group).relative_to(ROOT)}")
        for path in options.stale:
            print(f"marked {mark_stale(path, options.reason)} runs below {path} stale")
        for page, text in pages().items():
            page.write_text(text)
        mark = marks(summarise_runs([ROOT / "results"]).groups)
        for picture, folders in pictures().items():
            write_curves(folders, picture, mark)
    except (InvalidInput, json.JSONDecodeError) as error:
        raise SystemExit(f"record: {error}") from None


if __name__ == "__main__":
    main()
