"""``slsac bench``: how fast this machine trains."""

from __future__ import annotations

import argparse
from pathlib import Path

from slsac.bench import PEERS, SECTIONS
from slsac.errors import InvalidInput

HELP = "measure this machine: training, update, tasks, a peer"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--algos", nargs="+", default=["sl-sac", "sac-lag"], help="algorithms to measure"
    )
    parser.add_argument("--env", default="SafetyAntVelocity-v1", help="task (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each measurement")
    parser.add_argument("--steps", type=int, default=120, help="training steps in a round")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, help="only these sections (all)")
    parser.add_argument("--peer", choices=tuple(PEERS), help="also train this peer, in turns")
    parser.add_argument("--peer-python", type=Path, help="the Python of the peer's environment")
    parser.add_argument("--json", type=Path, help="write the figures and the machine here")
    parser.add_argument("--page", type=Path, help="Markdown page whose tables to replace")


def run(options: argparse.Namespace) -> int:
    import json

    from slsac.bench.sections import COLUMNS, measurements
    from slsac.bench.timing import around, table, write_page
    from slsac.compilation import prepare
    from slsac.config.presets import off_policy_preset
    from slsac.envs import require_known
    from slsac.runs import provenance

    prepare()
    for name in ("rounds", "steps"):
        if getattr(options, name) < 1:
            raise InvalidInput(f"{name} is {getattr(options, name)}; it must be at least 1")
    require_known(options.env)
    for algo in options.algos:
        off_policy_preset(algo, options.env)  # raises for an unknown or on-policy algorithm
    measure = measurements(
        options.algos, options.env, options.rounds, options.steps, options.peer,
        options.peer_python,
    )  # fmt: skip
    sections = options.only or SECTIONS
    if options.page:
        for name in sections:  # raises for a page without marks, before minutes of measuring
            around(options.page, name)
    if options.json and not options.json.parent.is_dir():
        raise InvalidInput(f"json is {str(options.json)!r}; its folder does not exist")
    machine = provenance.describe()
    results: dict[str, object] = {"machine": machine, "peer": options.peer}
    print(f"{machine['cpu']}, {machine['cores']} cores, medians of {options.rounds} rounds")
    for name in sections:
        records = measure[name]()
        results[name] = records
        shown = table(records, COLUMNS[name])
        print(f"\n{name}\n\n{shown}", flush=True)
        if options.page:
            write_page(options.page, name, shown)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0
