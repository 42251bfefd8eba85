"""Keep the course of a trial, finished or not, as one file beside this one.

python benchmarks/sl-sac-2-trials/keep.py NAME=RUN [NAME=RUN ...]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SECOND_PART = 50_000


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def rounded(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value


def course(name: str, run: Path) -> list[dict[str, Any]]:
    """The settings, how many training episodes were over the limit, epochs and evaluations."""
    config = json.loads((run / "config.json").read_text())
    commit = (config.pop("provenance")["commit"] or "none")[:9]
    for key in ("spec", "identity"):
        config.pop(key, None)
    episodes = lines_of(run / "episodes.jsonl")
    late = [line for line in episodes if line["step"] > SECOND_PART]

    def over(lines: list[dict[str, Any]]) -> list[int]:
        return [sum(line["cost"] > config["cost_limit"] for line in lines), len(lines)]

    counts = {"training episodes": over(episodes), f"from {SECOND_PART:,} on": over(late)}
    kept = [
        {"kind": "config", "name": name, "commit": commit, **config},
        {"kind": "over the limit", **counts},
    ]
    for line in lines_of(run / "progress.jsonl"):
        kept.append({"kind": "train", **{key: rounded(value) for key, value in line.items()}})
    for line in lines_of(run / "evaluations.jsonl"):
        figures = {name: rounded(line[f"{name}_mean"]) for name in ("return", "cost", "length")}
        kept.append({"kind": "eval", "step": line["step"], **figures,
                     "episodes": line["episodes"], "final": line["final"]})  # fmt: skip
    return kept


def main() -> None:
    for argument in sys.argv[1:]:
        name, _, run = argument.partition("=")
        text = "".join(json.dumps(line) + "\n" for line in course(name, Path(run)))
        (HERE / f"{name}.jsonl").write_text(text)


if __name__ == "__main__":
    main()
