"""Record a run as a trial: its settings, how it trained and its evaluations, in one small file.

    python -m tools.trial RUN NAME      writes benchmarks/sl-sac-2-trials/NAME.jsonl

The run may have been stopped at any step. What the trial showed belongs into docs/sl-sac-2.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slsac.runs import layout

ROOT = Path(__file__).resolve().parent.parent
TRIALS = ROOT / "benchmarks" / "sl-sac-2-trials"
LATE = 50_000
"""Steps from which on violations are counted apart: by then an agent has learned something."""


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def trial(run: Path, name: str) -> Iterator[dict[str, Any]]:
    """The lines of a trial's file."""
    config = json.loads((run / layout.CONFIG).read_text())
    about = {"spec", "provenance", "identity"}
    settings = {key: value for key, value in config.items() if key not in about}
    yield {"kind": "config", "name": name, "commit": config["provenance"]["commit"][:9]} | settings
    episodes = lines_of(run / layout.EPISODES)
    over = [episode["step"] for episode in episodes if episode["cost"] > config["cost_limit"]]
    late = [step for step in over if step > LATE]
    ended = [episode["step"] for episode in episodes]
    yield {
        "kind": "over the limit",
        "training episodes": [len(over), len(ended)],
        f"from {LATE:,} on": [len(late), sum(step > LATE for step in ended)],
    }
    for epoch in lines_of(run / layout.PROGRESS):
        yield {"kind": "train"} | {
            key: float(f"{value:.4g}") if isinstance(value, float) else value
            for key, value in epoch.items()
        }
    for evaluation in lines_of(run / layout.EVALUATIONS):
        returns, costs = evaluation["returns"], evaluation["costs"]
        yield {
            "kind": "eval",
            "step": evaluation["step"],
            "return": round(sum(returns) / len(returns), 2),
            "cost": round(sum(costs) / len(costs), 2),
            "episodes": len(returns),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("name")
    arguments = parser.parse_args()
    path = TRIALS / f"{arguments.name}.jsonl"
    text = "".join(json.dumps(line) + "\n" for line in trial(arguments.run, arguments.name))
    path.write_text(text)
    print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
