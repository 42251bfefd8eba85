"""Which run a file belongs to.

A run's identity is a digest of the configuration and the task that it began with: runs that differ
in their seed have different ones, and a run that is repeated has the same. ``config.json`` and
every checkpoint carry it, and a checkpoint knows its replay by checksums. That catches mistakes. It
is no signature: whoever can write the files can write an identity too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from slsac.config import Config
from slsac.config.overrides import to_dict
from slsac.types import EnvSpec

WITHOUT_EFFECT = ("worker_processes",)
"""Config fields on which no number of a run depends."""
NO_PART_OF_IT = ("steps", *WITHOUT_EFFECT)
"""Fields that may change while a run stays the same run."""


def digest(values: Mapping[str, Any]) -> str:
    """SHA-256 of plain data, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def of_run(config: Config, spec: EnvSpec) -> str:
    """The identity of a run that begins with ``config`` on the task ``spec``."""
    fields = {name: part for name, part in to_dict(config).items() if name not in NO_PART_OF_IT}
    return digest({**fields, "spec": spec._asdict()})
