"""Folders of packages for another Python process: the present ones, without some."""

from __future__ import annotations

import re
import sysconfig
from pathlib import Path

PRESENT = Path(sysconfig.get_path("purelib"))
SIMULATORS = ("mujoco", "safety-gymnasium", "metadrive-simulator")


def link_packages(folder: Path, without: tuple[str, ...]) -> Path:
    """Fill ``folder`` with links to the installed packages except those named ``without``.

    This package is never among them: it is installed from its own folder.
    """
    folder.mkdir(parents=True)
    left_out = {_plain(name) for name in (*without, "slsac", "__editable__")}
    for entry in PRESENT.iterdir():
        name = _plain(re.split(r"-\d|\.(?:pth|libs|py|so)", entry.name)[0])
        if name not in left_out and entry.suffix != ".pth" and entry.name != "__pycache__":
            (folder / entry.name).symlink_to(entry)
    return folder


def pretend_version(folder: Path, package: str, version: str) -> Path:
    """Metadata that say ``version`` to whoever looks in ``folder`` before anywhere else."""
    facts = folder / f"{package.replace('-', '_')}-{version}.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    return folder


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
