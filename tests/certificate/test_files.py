"""The files of a certificate: their names, and which run gets a calibration.json."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from slsac.certificate import base_of, write
from slsac.certificate.contents import from_json
from slsac.errors import InvalidInput
from slsac.stats.summary import Evaluation
from tests.support.certificates import certificate_of

PLAYED = Evaluation(np.zeros(2), np.zeros(2), np.ones(2, int))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_name_with_a_dot_is_kept(tmp_path: Path) -> None:
    for out in ("tail-0.5.html", "tail-0.2"):
        write(certificate_of("sl-sac"), PLAYED, tmp_path, base_of(tmp_path / out))
    expected = [f"tail-0.{k}{end}" for k in (2, 5) for end in ("-episodes.json", ".html", ".json")]
    assert names(tmp_path) == sorted(expected)


def test_a_folder_is_no_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="it must be the name of a file"):
        base_of(tmp_path)


@pytest.mark.parametrize(("algo", "more"), [("sl-sac", ["calibration.json"]), ("sac-lag", [])])
def test_a_run_gets_the_calibration_of_a_quantile_critic(
    algo: str, more: list[str], tmp_path: Path
) -> None:
    certificate = certificate_of(algo)
    page = write(certificate, PLAYED, tmp_path, None)
    assert page == tmp_path / "certificate.html"
    expected = ["certificate-episodes.json", "certificate.html", "certificate.json"]
    assert names(tmp_path) == more + expected
    assert from_json((tmp_path / "certificate.json").read_text()) == certificate
    # Elsewhere no report would look for it.
    write(certificate, PLAYED, tmp_path, tmp_path / "elsewhere" / "certificate")
    assert names(tmp_path / "elsewhere") == expected
