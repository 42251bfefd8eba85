"""MetaDrive's assets, which its own wheel lacks: `slsac setup metadrive` puts them in place.

A run without a window reads no texture and no model, but the simulator refuses to start without a
version file and one texture.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path

from slsac.errors import InvalidInput

VERSION = "0.4.3"
"""Version of the simulator and of its assets."""
ARCHIVE = (
    f"https://github.com/metadriverse/metadrive/releases/download/MetaDrive-{VERSION}/assets.zip"
)
WHEEL = "metadrive-simulator==0.3.0.1"
"""The last release whose wheel contains the assets."""
TEXTURE = Path("textures", "grass1", "GroundGrassGreen002_COL_1K.jpg")
"""The file by which the simulator tells that assets are recent enough."""
OLD_TEXTURE = Path("textures", "grass2", "color.jpg")
SECONDS_TO_CONNECT = 10.0


def require_ready() -> None:
    """Raise InvalidInput, with what to run, unless simulator and assets are in place."""
    if not is_complete(package_folder() / "assets"):
        raise InvalidInput("MetaDrive has no assets yet; run `slsac setup metadrive`")


def package_folder() -> Path:
    """Where the simulator is installed. Raise InvalidInput, with what to run, if it is not."""
    module = importlib.util.find_spec("metadrive")
    if module is None or module.origin is None:
        raise InvalidInput(
            "MetaDrive is not installed; run `pip install 'slsac[metadrive]'` and "
            "`slsac setup metadrive` (it needs Python 3.11)"
        )
    version = importlib.metadata.version("metadrive-simulator")
    if version != VERSION:
        raise InvalidInput(f"metadrive-simulator is {version}; it must be {VERSION}")
    return Path(module.origin).parent


def is_complete(assets: Path) -> bool:
    """Whether the simulator would start with the assets in this folder."""
    version = assets / "version.txt"
    return (
        version.is_file()
        and version.read_text(encoding="utf-8").strip() == VERSION
        and (assets / TEXTURE).is_file()
    )


def prepare(note: Callable[[str], None]) -> None:
    """Put the assets in place unless they are there; ``note`` receives a line about each step."""
    package = package_folder()
    assets = package / "assets"
    if is_complete(assets):
        note(f"MetaDrive's assets are in place: {assets}")
        return
    # In the same folder, so that the last move is one rename and never leaves half the assets.
    with tempfile.TemporaryDirectory(dir=package, prefix="assets-") as name:
        folder = Path(name)
        try:
            unpacked = _download(folder)
            origin = "the official archive"
        except (OSError, HTTPException, zipfile.BadZipFile, zlib.error) as error:
            reason = getattr(error, "reason", None) or error
            note(f"the official archive is not available ({reason}); using the wheel {WHEEL}")
            unpacked = _from_wheel(folder)
            origin = (
                f"the wheel {WHEEL}, with version.txt set to {VERSION} and its older grass as "
                f"{TEXTURE.name}"
            )
        if not is_complete(unpacked):
            raise InvalidInput(f"the assets from {origin} lack version {VERSION} or {TEXTURE}")
        if assets.exists():
            os.replace(assets, folder / "before")
        os.replace(unpacked, assets)
    note(f"MetaDrive's assets are now in {assets}, from {origin}")


def _download(folder: Path) -> Path:
    archive = folder / "assets.zip"
    with (
        urllib.request.urlopen(ARCHIVE, timeout=SECONDS_TO_CONNECT) as response,
        archive.open("wb") as file,
    ):
        shutil.copyfileobj(response, file)
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(folder)
    if not is_complete(folder / "assets"):
        raise zipfile.BadZipFile(f"it lacks version {VERSION} or {TEXTURE.name}")
    return folder / "assets"


def _from_wheel(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-input"]
    pip = subprocess.run(
        [*command, "--disable-pip-version-check", "--dest", str(folder), WHEEL],
        capture_output=True,
        text=True,
    )
    if pip.returncode:
        lines = pip.stderr.strip().splitlines() or ["no message"]
        raise InvalidInput(f"pip cannot fetch {WHEEL}: {lines[-1]}")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        members = [name for name in opened.namelist() if name.startswith("metadrive/assets/")]
        opened.extractall(folder, members)
    assets = folder / "metadrive" / "assets"
    (assets / "version.txt").write_text(f"{VERSION}\n", encoding="utf-8")
    (assets / TEXTURE).parent.mkdir(exist_ok=True)
    shutil.copyfile(assets / OLD_TEXTURE, assets / TEXTURE)
    return assets
