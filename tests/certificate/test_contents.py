"""Certificates as JSON: every recorded file is read, and written back with the same bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slsac.certificate.contents import (
    Certificate,
    MeanError,
    NotCalibrated,
    QuantileError,
    calibration_from_json,
    calibration_to_json,
    from_json,
    to_json,
)
from tests.support.paths import ROOT

RECORDED = sorted((ROOT / "results").rglob("certificate.json"))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: str(path.parent.relative_to(ROOT)))
def test_a_recorded_certificate_is_read_and_written_back(path: Path) -> None:
    text = path.read_text()
    certificate = from_json(text)
    assert to_json(certificate) + "\n" == text
    assert calibration_from_json(text.encode()) == certificate.calibration
    left = path.with_name("calibration.json")
    if left.exists():
        assert calibration_to_json(certificate.calibration) + "\n" == left.read_text()


def any_certificate() -> Certificate:
    return from_json(RECORDED[0].read_text())


def test_recorded_certificates_show_every_kind_of_calibration_and_tail() -> None:
    certificates = [from_json(path.read_text()) for path in RECORDED]
    calibrations = [certificate.calibration for certificate in certificates]
    kinds = {None if isinstance(each, NotCalibrated) else type(each.error) for each in calibrations}
    assert kinds == {None, QuantileError, MeanError}
    fits = [certificate.statements.tail.fit for certificate in certificates]
    tails = {(fit.credible, fit.shape is None) for fit in fits}
    assert tails == {(True, False), (False, False), (False, True)}


def test_what_only_some_certificates_have_is_kept() -> None:
    certificate = any_certificate()
    certificate = certificate._replace(
        sample=certificate.sample._replace(extra_means={"success_mean": 0.5}),
        calibration=NotCalibrated("no point was usable", "0123"),
    )
    assert from_json(to_json(certificate)) == certificate
    values = json.loads(to_json(certificate))
    assert list(values["sample"])[-2:] == ["success_mean", "cost_max"]
    assert values["calibration"] == {"reason": "no point was usable", "policy_sha256": "0123"}
    never = NotCalibrated("there is no critic")
    assert json.loads(calibration_to_json(never)) == {"reason": "there is no critic"}
