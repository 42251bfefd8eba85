"""Training as the bench measures it. Never a time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slsac.bench.update import matrix_products
from slsac.cli import main
from slsac.config.presets import off_policy_preset
from slsac.envs import make_env


def test_training_is_measured_beside_its_matrix_products(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    command = ["bench", "--only", "training", "--algos", "sac-lag", "--env", "ProbeCounts-v0"]
    assert main([*command, "--rounds", "1", "--steps", "5", "--json", str(file)]) == 0
    (row,) = json.loads(file.read_text())["training"]
    config = off_policy_preset("sac-lag", "ProbeCounts-v0")
    products = matrix_products(config, make_env("ProbeCounts-v0").spec)
    multiplications = sum(stack * m * k * n * times for stack, m, k, n, times in products)
    assert row["algo"] == "sac-lag"
    assert row["gflop"] == pytest.approx(2e-9 * multiplications)
