"""Keeps finished runs: copies their small files to results/ and rewrites docs/results.md's table.

    python benchmarks/record.py runs/hopper-0 --group short     copies one run, then the table
    python benchmarks/record.py                                 the table only

The table is made from the committed files alone; nothing in it is typed by hand.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from slsac import rundir
from slsac.config import Config
from slsac.errors import InvalidInput
from slsac.overrides import field_names
from slsac.presets import preset
from slsac.runlog import read_lines

ROOT = Path(__file__).resolve().parent.parent
FILES = ("config.json", "progress.jsonl", "episodes.jsonl", "evaluations.jsonl", "timing.jsonl",
         "policy.safetensors")  # fmt: skip
START, END = "<!-- table -->", "<!-- end of table -->"


def keep(run: Path, group: str) -> Path:
    """Copies what is worth keeping of a complete run; no replay, no checkpoints."""
    config, _, _ = rundir.read_config(run)
    if rundir.completed_step(run) < config.steps:
        raise SystemExit(f"{run} has no final evaluation yet; finish it with `slsac resume {run}`")
    algo = config.algo.replace("/", "-")
    target = ROOT / "results" / group / algo / config.env / f"seed{config.seed}"
    target.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        shutil.copyfile(run / name, target / name)
    return target


def value_at(config: Any, dotted: str) -> Any:
    for name in dotted.split("."):
        config = getattr(config, name)
    return config


def command(config: Config) -> str:
    """The command that makes the run: its preset, and every field that differs from it."""
    base = preset(config.algo, config.env)
    flags = []
    for name in field_names():
        value = value_at(config, name)
        if name in ("steps", "seed") or (
            name not in ("algo", "env") and value != value_at(base, name)
        ):
            text = ",".join(map(str, value)) if isinstance(value, tuple) else value
            flags.append(f"--{name.replace('_', '-')} {text}")
    return f"slsac train --algo {config.algo} --env {config.env} {' '.join(flags)}"


def row(folder: Path) -> tuple[list[str], str]:
    config, _, facts = rundir.read_config(folder)
    final = next(line for line in read_lines(folder / "evaluations.jsonl") if line["final"])
    hours = sum(line["seconds"] for line in read_lines(folder / "timing.jsonl")) / 3600
    stale = " (stale)" if (folder / "STALE").exists() else ""
    cells = [
        f"{config.algo}{stale}",
        config.env,
        f"{config.seed}",
        f"{final['step']:,}",
        f"{final['return_mean']:.1f} ± {final['return_se']:.1f}",
        f"{final['cost_mean']:.1f} ± {final['cost_se']:.1f}",
        f"{final['cost_cvar']:.1f}",
        f"{100 * final['violation_rate']:.0f} %",
        f"{final['step'] / hours / 3600:.0f}",
        f"{facts['cores']}",
        f"`{(facts['commit'] or 'unknown')[:9]}`",
    ]
    return cells, command(config)


def table() -> str:
    header = ["algorithm", "task", "seed", "steps", "return", "cost", "cost CVaR", "over limit",
              "steps/s", "cores", "commit"]  # fmt: skip
    text = []
    groups = sorted(path for path in (ROOT / "results").iterdir() if path.is_dir())
    for group in groups:
        folders = sorted(path.parent for path in group.rglob("config.json"))
        rows = [row(folder) for folder in folders]
        lines = [header, ["---"] * len(header), *(cells for cells, _ in rows)]
        text.append(f"### {group.relative_to(ROOT)}\n")
        text += ["| " + " | ".join(line) + " |" for line in lines]
        text += ["\nCommands:\n", "```", *(made for _, made in rows), "```\n"]
    return "\n".join(text)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--group", default="paper", help="folder under results/")
    options = parser.parse_args()
    try:
        for run in options.runs:
            print(f"kept {keep(run, options.group).relative_to(ROOT)}")
        page = ROOT / "docs" / "results.md"
        before, _, rest = page.read_text().partition(START)
        after = rest.partition(END)[2]
        page.write_text(f"{before}{START}\n{table()}{END}{after}")
    except (InvalidInput, json.JSONDecodeError) as error:
        raise SystemExit(f"record: {error}") from None


if __name__ == "__main__":
    main()
