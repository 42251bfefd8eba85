"""The files of a certificate: JSON, an HTML page, and the raw episodes."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from slsac.certificate.contents import (
    Calibration,
    Certificate,
    QuantileError,
    calibration_to_json,
    to_json,
)
from slsac.certificate.page import html_page
from slsac.errors import InvalidInput
from slsac.runs.layout import CALIBRATION, CERTIFICATE, write_atomically
from slsac.stats.summary import Evaluation, as_record


def base_of(out: Path) -> Path:
    """The path that the files of a certificate share: ``out`` without .html or .json."""
    base = out.with_suffix("") if out.suffix in (".html", ".json") else out
    if not base.name or out.is_dir():
        raise InvalidInput(f"out is {str(out)!r}; it must be the name of a file")
    return base


def require_writable(run: Path, base: Path | None) -> None:
    """Raise InvalidInput, before episodes are played, where `write` could not write."""
    name, folder = ("run", run) if base is None else ("out", base.parent)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InvalidInput(
            f"{name} is {str(base or run)!r}; no file can be written there: {error.strerror}"
        ) from None


def write(certificate: Certificate, played: Evaluation, run: Path, base: Path | None) -> Path:
    """Writes ``base``.json, .html and -episodes.json, and returns the path of the page.

    With None they are certificate.* in the run's folder, and the calibration of a quantile critic
    goes to calibration.json as well, where reports look for it.
    """
    if base is None:
        base = base_of(run / CERTIFICATE)
        calibration = certificate.calibration
        if isinstance(calibration, Calibration) and isinstance(calibration.error, QuantileError):
            _write_text(run / CALIBRATION, calibration_to_json(calibration))
    base.parent.mkdir(parents=True, exist_ok=True)
    page = base.with_name(base.name + ".html")
    _write_text(base.with_name(base.name + ".json"), to_json(certificate))
    _write_text(base.with_name(base.name + "-episodes.json"), json.dumps(as_record(played)))
    _write_text(page, html_page(certificate, played.costs))
    return page


def _write_text(path: Path, text: str) -> None:
    write_atomically(path, text.encode() + b"\n")
