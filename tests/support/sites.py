"""Folders of packages for another Python process: the present ones, without some."""

from __future__ import annotations

import importlib.metadata
import re
import sysconfig
from pathlib import Path

from packaging.requirements import Requirement

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


def link_declared(folder: Path, package: str, extra: str = "") -> None:
    """Fill ``folder`` with links to what ``package`` declares to need, and what that needs, only.

    A package that is imported and not declared is missing there, as it is for whoever installs it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in declared(package, extra) - {_plain(package)}:
        for file in importlib.metadata.distribution(name).files or []:
            link = folder / file.parts[0]
            if file.parts[0] not in ("..", "__pycache__") and not link.is_symlink():
                link.symlink_to(PRESENT / file.parts[0])


def declared(package: str, extra: str = "") -> set[str]:
    """Names of a package and of all that its metadata say it needs, with one of its extras."""
    names: set[str] = set()
    waiting = {(package, extra)}
    seen = set(waiting)
    while waiting:
        name, wanted = waiting.pop()
        names.add(_plain(name))
        for text in importlib.metadata.requires(name) or []:
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": wanted}):
                waiting |= {(needed.name, each) for each in ("", *needed.extras)} - seen
                seen |= waiting
    return names


def pretend_version(folder: Path, package: str, version: str) -> Path:
    """Metadata that say ``version`` to whoever looks in ``folder`` before anywhere else."""
    facts = folder / f"{package.replace('-', '_')}-{version}.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    return folder


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
