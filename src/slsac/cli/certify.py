"""``slsac certify``: a certificate of a trained policy's tail risk."""

from __future__ import annotations

import argparse
from pathlib import Path

from slsac.cli.options import add_device, add_trust, say_if_edited
from slsac.runs.layout import CERTIFICATE_PAGE

HELP = "state a trained policy's tail risk, and how surely"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="run directory")
    add_device(parser)
    parser.add_argument("--episodes", type=int, default=200, help="episodes (%(default)s)")
    parser.add_argument("--stochastic", action="store_true", help="sample actions")
    parser.add_argument(
        "--confidence", type=float, default=0.95, help="confidence of each bound (%(default)s)"
    )
    parser.add_argument("--seed", type=int, help="episode seed (the run's own)")
    parser.add_argument("--max-step-cost", type=float, help="largest cost of a step, if not known")
    parser.add_argument("--out", help=f"file to write ({CERTIFICATE_PAGE} in RUN)")
    add_trust(parser)


def run(options: argparse.Namespace) -> int:
    from slsac.certificate import base_of, certify, plain_text, require_writable, write
    from slsac.compilation import prepare
    from slsac.display import counter

    prepare(options.device)
    folder = Path(options.run)
    base = base_of(Path(options.out)) if options.out else None
    if folder.is_dir():  # a run that is not there gets its own message
        require_writable(folder, base)
    with counter() as tick:
        certificate, played = certify(
            folder,
            options.episodes,
            deterministic=not options.stochastic,
            confidence=options.confidence,
            seed=options.seed,
            max_step_cost=options.max_step_cost,
            trust_env=options.trust_env,
            tick=tick,
        )
    say_if_edited(folder)
    print(plain_text(certificate))  # first: what cannot be written is still shown
    page = write(certificate, played, folder, base)
    print(f"\nwritten to {page}, and beside it the same as JSON and the raw episodes")
    return 0
