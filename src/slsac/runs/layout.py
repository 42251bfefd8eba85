"""What a run directory holds. No other module spells these names; what lies inside ``replay/`` and
``checkpoints/`` is named by the module that writes it.

``config.json`` says what the run is. ``progress.jsonl`` has a line per epoch, ``episodes.jsonl``
one per training episode, ``evaluations.jsonl`` one per evaluation, ``timing.jsonl`` the wall-clock
times. ``policy.safetensors`` is the newest policy. ``checkpoints/`` and, off-policy, ``replay/``
are what a resumed run continues from.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

MARKER = ".slsac-run"
"""Says that a directory is ours, even before it has a config."""
LOCK = ".lock"
CONFIG = "config.json"
POLICY = "policy.safetensors"

PROGRESS = "progress.jsonl"
EPISODES = "episodes.jsonl"
EVALUATIONS = "evaluations.jsonl"
TIMING = "timing.jsonl"
EXACT_LOGS = (PROGRESS, EPISODES, EVALUATIONS)
"""Hold no wall-clock figure, so that a resumed run ends with the bytes of an undisturbed one."""
LOGS = (*EXACT_LOGS, TIMING)

CHECKPOINTS = "checkpoints"
REPLAY = "replay"
TENSORBOARD = "tensorboard"
BEST = "best"
"""The best safe policy so far, where it is kept: see `slsac.training.callbacks.KeepBest`."""
WANDB = "wandb"
FOLDERS = (REPLAY, CHECKPOINTS, TENSORBOARD, BEST, WANDB)

CALIBRATION = "calibration.json"
CERTIFICATE = "certificate.json"
CERTIFICATE_PAGE = "certificate.html"
CERTIFICATE_EPISODES = "certificate-episodes.json"
ABOUT_POLICY = (CALIBRATION, CERTIFICATE, CERTIFICATE_PAGE, CERTIFICATE_EPISODES)
"""Files that `slsac certify` writes. They describe one policy and are replaced with it."""

REPLACED = ".replaced"
"""An old run's files, from the moment they are to be overwritten until the new run has begun."""
MOVING = ".replaced.moving"
"""The same folder while files are on their way into it, or back."""
STALE = "STALE"
"""A file of this name says that later changes of the source altered learning."""

STATE_TENSORS = "state.safetensors"
STATE_FACTS = "state.json"
"""The two files of a checkpoint."""


def is_run(folder: Path) -> bool:
    """Whether a directory holds a run that has begun."""
    return (folder / CONFIG).exists() and (folder / PROGRESS).exists()


def policy_digest(run: Path) -> str:
    """SHA-256 of the newest policy's file."""
    return hashlib.sha256((run / POLICY).read_bytes()).hexdigest()


def write_atomically(path: Path, data: bytes) -> None:
    """Replaces a file so that a reader sees the old bytes or the new, never a part."""
    temporary = path.with_name(path.name + ".writing")
    # Made anew: what is there may be a link to somewhere else.
    temporary.unlink(missing_ok=True)
    with open(temporary, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
