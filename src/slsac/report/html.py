"""``slsac report``: everything about a set of runs in one offline HTML file.

Tables are text in the page; charts are drawn from the JSON in it by templates/report.js.
"""

from __future__ import annotations

import html
import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from slsac._version import __version__
from slsac.config import OffPolicyConfig
from slsac.config.overrides import dotted, to_dict
from slsac.errors import InvalidInput
from slsac.formatting import cost_digits, one_line, printable
from slsac.report.aggregate import GroupResult
from slsac.report.curves import (
    Band,
    colours,
    curve_label,
    evaluation_band,
    logged_band,
    looks,
    training_band,
    window_steps,
)
from slsac.report.formats import Cell, Section, as_html
from slsac.report.read import Group, Run
from slsac.report.table import Summary, algorithms, marks, sections, summarise_runs, task_label
from slsac.runs import schema
from slsac.runs.identity import WITHOUT_EFFECT
from slsac.runs.layout import CALIBRATION, CONFIG, POLICY, policy_digest, write_atomically
from slsac.runs.schema import Optional, list_of, nullable, number, record, text

DASHES = {"-": "none", "--": "7 4", "-.": "9 3 2 3", ":": "2 3"}
"""The pattern of each of a curve's line styles."""
RELIABILITY = record(
    {
        "nominal": list_of(number),
        "observed": list_of(number),
        "wasserstein": Optional(nullable(number)),
        "delta": Optional(nullable(number)),
        "policy_sha256": Optional(text),
    }
)
"""What the report reads of a calibration."""


def write_report(runs: Sequence[Path], out: Path) -> None:
    """Write the report of all runs at or below ``runs``."""
    if out.suffix not in (".html", ".htm"):
        raise InvalidInput(f"out is {str(out)!r}; its name must end in .html")
    whole = page(summarise_runs(runs))
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, whole.encode())


def page(summary: Summary) -> str:
    """The whole page as text."""
    by_title = {section.title: section for section in sections(summary)}
    first = by_title.pop("Return / cost")
    listing = by_title["Runs"]
    runs, tasks = len(summary.runs), len({group.env for group in summary.groups})
    names = algorithms(summary.groups)
    headline = (
        f"{_count(runs, 'run')} of {_count(len(names), 'algorithm')} on {_count(tasks, 'task')}"
    )
    parts = {
        "title": f"slsac: {headline}",
        "headline": headline,
        "lead": "Safe reinforcement learning under a cost limit: what the policies earn, what they "
        "cost, and how they got there.",
        "table_one": _block(first, "grid"),
        "tables": "".join(
            f"<h3>{html.escape(title)}</h3>{_block(section)}" for title, section in by_title.items()
        )
        + "<details><summary>Commands that repeat these runs at the commits above</summary>"
        f"<pre><code>{html.escape(printable(chr(10).join(listing.code)))}</code></pre></details>",
        "differences": _block(config_differences(summary.groups), "grid"),
        "versions": _block(versions(summary.runs), "wrap"),
        "footer": f"Made by slsac {__version__} from "
        f"{html.escape(one_line(', '.join(_folders(summary.runs))))}. One file, no network.",
        "data": as_script_json(data(summary)),
        "script": _template("report.js"),
    }
    # One pass, so that nothing in a part is taken for a place to fill.
    pieces = _template("report.html").split("{{")
    filled = [pieces[0]]
    for piece in pieces[1:]:
        name, _, rest = piece.partition("}}")
        filled.append(parts[name] + rest)
    return "".join(filled)


def _template(name: str) -> str:
    return (resources.files("slsac.report") / "templates" / name).read_text(encoding="utf-8")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _folders(runs: Iterable[Run]) -> list[str]:
    """The runs' folders, shortened to their parents where there are many."""
    paths = [str(run.path) for run in runs]
    if len(paths) <= 3:
        return paths
    return [f"{len(paths)} folders, {paths[0]} to {paths[-1]}"]


def _block(section: Section, kind: str = "left") -> str:
    notes = "".join(f'<p class="note">{html.escape(one_line(note))}</p>' for note in section.notes)
    if not section.rows:
        return notes
    named = html.escape(section.title)
    return (
        f'<div class="scroll {kind}" tabindex="0" role="region" aria-label="{named}">'
        f"{as_html(section)}</div>{notes}"
    )


def as_script_json(value: Any) -> str:
    """JSON that may stand inside a script element."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def data(summary: Summary) -> dict[str, Any]:
    """The data that the charts are drawn from."""
    mark = marks(summary.groups)
    colour = colours(summary.groups)
    by_label = looks(summary.groups, mark)
    results = {id(result.group): result for result in summary.results}
    panels = []
    for (env, limit, stale), members in tasks(summary.groups).items():
        # Show the mark only where the algorithm alone would not tell two curves apart.
        often = {algo for algo, count in Counter(g.algo for g in members).items() if count > 1}
        limits = {group.config.cost_limit for group in summary.groups if group.env == env}
        parts = [env, f"limit {limit:g}" if len(limits) > 1 else "", "(stale)" if stale else ""]
        panels.append(
            {
                "label": " ".join(filter(None, parts)),
                "rows": list(dict.fromkeys(task_label(group, mark) for group in members)),
                "env": env,
                "stale": stale,
                "limit": limit,
                "cost_digits": cost_digits(limit),
                "window_steps": sorted({window_steps(group.runs[0]) for group in members}),
                "groups": [
                    {
                        "label": f"{group.algo} {mark.get(group.settings, '')}".strip()
                        if group.algo in often
                        else group.algo,
                        "mark": mark.get(group.settings, ""),
                        "dash": DASHES[by_label[curve_label(group, mark)].line],
                        **_group(group, results.get(id(group))),
                    }
                    for group in members
                ],
            }
        )
    return {
        "algorithms": [{"name": algo, "colour": colour[algo]} for algo in colour],
        "panels": panels,
    }


def tasks(groups: Iterable[Group]) -> dict[tuple[str, float, bool], list[Group]]:
    """Groups that are compared: the same task and limit, however long and with what settings."""
    compared: dict[tuple[str, float, bool], list[Group]] = {}
    for group in groups:
        key = (group.env, group.config.cost_limit, group.stale)
        compared.setdefault(key, []).append(group)
    return compared


def _group(group: Group, result: GroupResult | None) -> dict[str, Any]:
    finished = result.finished if result else ()
    config = group.config
    by_seed = {run.config.seed: run for run in group.runs}
    return {
        "algo": group.algo,
        "settings": group.settings,
        "steps": result.steps if result else config.steps,
        # On policy the multiplier acts from the start.
        "acts_from": config.multiplier_warmup_steps
        if isinstance(config, OffPolicyConfig)
        else None,
        "tail_fraction": group.config.tail_fraction,
        "seeds": [run.config.seed for run in group.runs],
        "return": result and result.episode_return.mean,
        "cost": result and result.cost.mean,
        "cvar": result and result.cvar.mean,
        "runs": [
            {
                "seed": run.seed,
                "return": run.summary["return_mean"],
                "cost": run.summary["cost_mean"],
                "cvar": run.summary["cost_cvar"],
                "evaluations": _evaluations(by_seed[run.seed]),
            }
            for run in finished
        ],
        "costs": [float(cost) for run in finished for cost in run.costs],
        "curves": {name: _band(training_band(group, name)) for name in ("return", "cost")},
        "evaluations": {
            name: _band(evaluation_band(group, f"{name}_mean")) for name in ("return", "cost")
        },
        "multiplier": _band(logged_band(group, "multiplier")),
        # The first recorded runs know their signal alone, which for SL-SAC is this CVaR.
        "window_cvar": _band(logged_band(group, "window_cvar")),
        "calibration": [curve for run in group.runs if (curve := calibration(run)) is not None],
    }


def _evaluations(run: Run) -> list[dict[str, float]]:
    """The means of every evaluation of a run, so that runs can be compared before their ends."""
    return [
        {
            "step": line["step"],
            "return": line["return_mean"],
            "cost": line["cost_mean"],
            "cvar": line["cost_cvar"],
        }
        for line in run.evaluations
    ]


def _band(band: Band) -> dict[str, list[float | None]]:
    def short(values: np.ndarray) -> list[float | None]:
        return [None if math.isnan(value) else float(f"{value:.6g}") for value in values]

    return {
        "steps": [int(step) for step in band.steps],
        "mean": short(band.mean),
        "deviation": short(band.deviation),
    }


def calibration(run: Run) -> dict[str, Any] | None:
    """The cost critic's reliability curve that `slsac certify` left in the run's folder, if any."""
    path = run.path / CALIBRATION
    if not path.exists():
        return None
    try:
        curve = schema.parse_json(path.read_bytes(), RELIABILITY)
        list_of(number, len(curve["nominal"]))(curve["observed"], "observed")
    except schema.Misfit as error:
        raise InvalidInput(f"{path} cannot be read: {error}") from None
    policy = run.path / POLICY
    if not policy.exists() or curve.get("policy_sha256") != policy_digest(run.path):
        return None  # the run has been trained further since
    return {
        "seed": run.config.seed,
        "nominal": curve["nominal"],
        "observed": curve["observed"],
        "wasserstein": curve.get("wasserstein"),
        "delta": curve.get("delta"),
    }


def config_differences(groups: Sequence[Group]) -> Section:
    """The fields in which the groups differ, a column for each distinct configuration."""
    columns: dict[str, dict[str, Any]] = {}
    mark = marks(groups)
    for group in groups:
        # One column per algorithm and its settings; the task has a table of its own.
        label = " ".join(filter(None, (group.algo, mark.get(group.settings, ""))))
        values = {
            name: value
            for name, value in dotted(to_dict(group.config)).items()
            if name not in ("seed", *WITHOUT_EFFECT)
        }
        known = columns.setdefault(label, dict(values))
        for name, value in values.items():
            if known.get(name) != value:
                known[name] = "by task" if name != "env" else "several"
    names = dict.fromkeys(name for values in columns.values() for name in values)
    rows = []
    for name in names:
        texts = [_text(values.get(name, "")) for values in columns.values()]
        if name != "algo" and len(set(texts)) > 1:
            cells = [
                Cell(text, algo=label.split(" ")[0])
                for text, label in zip(texts, columns, strict=True)
            ]
            rows.append((Cell(name), *cells))
    if not rows:
        return Section("Configuration", (), [], ("All runs have the same configuration.",))
    note = (
        f"Only fields that differ; all others, and the seeds, are in each run's {CONFIG}."
        if len(columns) > 1
        else ""
    )
    return Section("Configuration", ("field", *columns), rows, (note,) if note else ())


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return " x ".join(map(str, value))
    return str(value)


def versions(runs: Sequence[Run]) -> Section:
    """Versions and machines; where runs differ, each value with the algorithms that have it."""
    algos_by_value: dict[str, dict[str, list[str]]] = {}
    for run in runs:
        flat = {name: v for name, v in run.provenance.items() if not isinstance(v, dict)}
        flat |= run.provenance.get("versions", {})
        for name, value in flat.items():
            text = str(value)[:9] if name == "commit" else str(value)
            by_value = algos_by_value.setdefault(name, {})
            by_value.setdefault(text or "none", []).append(run.config.algo)
    rows: list[tuple[Cell, ...]] = []
    for name, values in algos_by_value.items():
        if len(values) == 1:
            text = next(iter(values))
        else:
            text = "; ".join(
                f"{value} ({', '.join(dict.fromkeys(algos))})" for value, algos in values.items()
            )
        rows.append((Cell(name), Cell(text)))
    return Section("Versions", ("what", "value"), rows)
