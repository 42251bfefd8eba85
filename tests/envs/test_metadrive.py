"""The real simulator, without a window; `make test` fetches its assets."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import http.client
import json
import os
import signal
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slsac import Agent
from slsac.cli import main
from slsac.config import Config, MetaDriveConfig
from slsac.config.overrides import to_dict, with_overrides
from slsac.config.presets import METADRIVE, preset
from slsac.envs import (
    copies_of,
    env_source,
    for_certificate,
    for_evaluation,
    make_env,
    metadrive_assets,
)
from slsac.envs.metadrive import DrivingEnv, MetaDriveFactory, simulator_settings
from slsac.envs.worker import WorkerEnv
from slsac.errors import InvalidInput
from slsac.runs import config_file
from slsac.runs.log import read_lines
from slsac.training import launch
from slsac.types import EnvSpec, Step
from tests.support.agents import small_config

ENV = "MetaDriveSafe-v0"


class Surveyed(DrivingEnv):
    """The env, with a look into the simulator that training has no need of."""

    def maps(self, scenarios: range) -> list[list[str]]:
        """Class names of the blocks of each scenario's map, after the piece all begin with."""
        from metadrive.component.map.pg_map import PGMap

        self._env.lazy_init()
        found = []
        for scenario in scenarios:
            settings = self._env.engine.global_config.copy()["map_config"]
            settings.update({"seed": scenario})
            made = self._env.engine.map_manager.spawn_object(
                PGMap, map_config=settings, random_seed=None
            )
            found.append([type(block).__name__ for block in made.blocks[1:]])
            made.detach_from_world()
            made.destroy()
        return found

    def present_scenario(self) -> int:
        return int(self._env.current_seed)

    def obstacles(self) -> int:
        """Cones, barriers and broken-down cars in the present scenario."""
        from metadrive.component.static_object.traffic_object import TrafficObject

        return len(self._env.engine.get_objects(lambda one: isinstance(one, TrafficObject)))

    def resident_megabytes(self) -> float:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def surveyed(factory: MetaDriveFactory) -> WorkerEnv:
    return WorkerEnv(lambda: Surveyed(factory.config, factory.scenarios))


@pytest.fixture(scope="module")
def simulator() -> None:
    if sys.version_info >= (3, 12):
        pytest.skip("MetaDrive has no release for Python 3.12 and later")


@pytest.fixture(scope="module")
def training(simulator: None) -> Iterator[WorkerEnv]:
    env = surveyed(MetaDriveFactory(METADRIVE))
    yield env
    env.close()


@pytest.fixture(scope="module")
def short_test(simulator: None) -> Iterator[WorkerEnv]:
    """Held-out scenarios with obstacles and episodes of 20 steps that a violation does not end."""
    config = replace(METADRIVE, horizon=20, end_at_violation=False, obstacle_probability=0.5)
    env = surveyed(MetaDriveFactory(config, "evaluation"))
    yield env
    env.close()


def drive(env: WorkerEnv, seed: int, steps: int = 60) -> tuple[str, Step]:
    """A hash of everything seen while driving on with a wobble, and the last step."""
    rng = np.random.default_rng(seed)
    seen = hashlib.sha256(env.reset(seed).tobytes())
    for _ in range(steps):
        result = env.step(np.array([0.1, 0.8], np.float32) + rng.normal(0.0, 0.2, 2))
        seen.update(result.observation.tobytes() + repr(tuple(result)[1:]).encode())
        if result.terminated or result.truncated:
            break
    return seen.hexdigest(), result


def test_the_task_is_the_papers(training: WorkerEnv) -> None:
    config = preset("sl-sac", ENV)
    assert config.cost_limit == 0.1
    assert config.metadrive is not None
    shares = [getattr(config.metadrive, name) for name in ("straight", "curve", "intersection")]
    assert [*shares, config.metadrive.roundabout] == [0.2, 0.3, 0.3, 0.2]
    assert (config.metadrive.blocks, config.metadrive.traffic_density) == (3, 0.12)
    # 240 lidar rays, 9 numbers on the vehicle itself and 10 on the route ahead.
    assert training.spec.observation_size == 240 + 19
    assert training.spec.action_low == (-1.0, -1.0)
    assert training.spec.horizon == 1_000


def test_runs_from_before_the_choice_keep_the_simulators_distance(tmp_path: Path) -> None:
    config = preset("sac-lag", ENV)
    values = to_dict(config)
    del values["metadrive"]["lidar"]
    spec = EnvSpec(1, 1, 1, (-1.0,), (1.0,))._asdict()
    (tmp_path / "config.json").write_text(json.dumps({**values, "spec": spec, "provenance": {}}))
    found = config_file.read(tmp_path)[0]
    assert found.metadrive == replace(METADRIVE, lidar="distance")


@pytest.mark.usefixtures("simulator")
def test_block_frequencies_are_those_of_the_distribution() -> None:
    # An env of its own, in which no episode has begun: its road would be in the way.
    with contextlib.closing(surveyed(MetaDriveFactory(METADRIVE))) as env:
        maps = env.call("maps", range(60))
    assert all(len(blocks) == 3 for blocks in maps)
    counts = Counter(name for blocks in maps for name in blocks)
    expected = {"Straight": 0.2, "Curve": 0.3, "InterSection": 0.3, "Roundabout": 0.2}
    assert set(counts) <= {"Straight", "Curve", "StdInterSection", "Roundabout"}
    # A block that would cross the road so far is drawn again, so 180 blocks are not quite a sample.
    for name, share in expected.items():
        count = sum(counts[found] for found in counts if found.endswith(name))
        assert count / 180 == pytest.approx(share, abs=4 * (share * (1 - share) / 180) ** 0.5)


def test_rays_are_told_as_closeness_or_as_the_simulators_distance(training: WorkerEnv) -> None:
    simulators = MetaDriveFactory(replace(METADRIVE, lidar="distance"))
    with contextlib.closing(simulators()) as by_distance:
        pairs = [(training.reset(3), by_distance.reset(3))]
        for _ in range(3):
            action = np.ones(2, np.float32)
            pairs.append((training.step(action)[0], by_distance.step(action)[0]))
    for told, distance in pairs:
        np.testing.assert_array_equal(told[:19], distance[:19])
        np.testing.assert_array_equal(told[19:], np.float32(1.0) - distance[19:])
        assert (told[19:] == 0.0).mean() > 0.5  # nothing there


@pytest.mark.usefixtures("simulator")
def test_each_share_reaches_its_block() -> None:
    shares = {"straight": 0.1, "curve": 0.15, "intersection": 0.2, "t_intersection": 0.25}
    config = replace(METADRIVE, **shares, roundabout=0.3)
    settings = simulator_settings(config, range(1))
    found = settings["block_dist_config"].BLOCK_TYPE_DISTRIBUTION_V2
    assert {name: share for name, share in found.items() if share} == pytest.approx({
        "Straight": 0.1, "Curve": 0.15, "StdInterSection": 0.2, "StdTInterSection": 0.25,
        "Roundabout": 0.3,
    })  # fmt: skip


@pytest.mark.usefixtures("simulator")
def test_shares_are_made_to_sum_to_one_exactly() -> None:
    thirds = dict.fromkeys(("straight", "curve", "roundabout"), 0.3333333)
    settings = simulator_settings(replace(METADRIVE, **thirds, intersection=0.0), range(1))
    found = settings["block_dist_config"].BLOCK_TYPE_DISTRIBUTION_V2
    # As the simulator draws a block.
    np.random.default_rng(0).choice(list(found), p=list(found.values()))


def test_training_and_test_scenarios_are_disjoint(
    training: WorkerEnv, short_test: WorkerEnv
) -> None:
    seeds = range(2_000)
    trained = {training.call("scenario", seed) for seed in seeds}
    tested = {short_test.call("scenario", seed) for seed in seeds}
    assert trained <= set(range(1_000))
    assert tested == set(range(10_000, 10_200))
    assert len(trained) > 800
    for env in (training, short_test):
        env.reset(7)
        assert env.call("present_scenario") == env.call("scenario", 7)


def test_an_episode_depends_on_its_seed_and_actions_alone(training: WorkerEnv) -> None:
    first = [drive(training, seed)[0] for seed in (0, 1, 2)]
    # Other episodes before, one left in its middle, the same in another order, a new process.
    drive(training, 11)
    drive(training, 12, steps=5)
    assert [drive(training, seed)[0] for seed in (2, 0, 1)] == [first[2], first[0], first[1]]
    os.kill(training.pid, signal.SIGKILL)
    assert drive(training, 1)[0] == first[1]


def test_obstacles_are_there_where_they_are_asked_for(
    training: WorkerEnv, short_test: WorkerEnv
) -> None:
    def found(env: WorkerEnv) -> int:
        counts = []
        for seed in range(6):
            env.reset(seed)
            counts.append(env.call("obstacles"))
        return sum(counts)

    assert found(training) == 0
    assert found(short_test) > 0


def test_a_violation_costs_one_and_ends_the_episode(training: WorkerEnv) -> None:
    training.reset(0)
    costs = []
    for _ in range(100):
        result = training.step(np.array([1.0, 1.0], np.float32))  # full speed into the roadside
        costs.append(result.cost)
        if result.terminated:
            break
    assert (costs[-1], sum(costs)) == (1.0, 1.0)
    assert (result.terminated, result.truncated) == (True, False)
    assert result.reward == -METADRIVE.violation_penalty
    assert result.extras is not None
    assert set(result.extras) == {"success", "route_completion", "crash", "off_road"}
    # Over the pavement: that is leaving the road and no collision.
    assert (result.extras["success"], result.extras["off_road"]) == (0.0, 1.0)
    assert result.extras["crash"] == 0.0
    assert 0.0 <= result.extras["route_completion"] < 0.5


def test_time_runs_out_at_the_horizon_and_that_is_no_end_of_the_task(
    short_test: WorkerEnv,
) -> None:
    short_test.reset(0)
    results = [short_test.step(np.zeros(2, np.float32)) for _ in range(20)]
    assert [result.truncated for result in results] == [False] * 19 + [True]
    assert not any(result.terminated for result in results)
    assert [result.extras is None for result in results] == [True] * 19 + [False]


def test_without_an_end_at_violation_every_step_off_the_road_costs_one(
    short_test: WorkerEnv,
) -> None:
    short_test.reset(0)
    results = [short_test.step(np.array([1.0, 1.0], np.float32)) for _ in range(20)]
    costs = [result.cost for result in results]
    assert set(costs) <= {0.0, 1.0}
    assert sum(costs) > 1
    assert not any(result.terminated for result in results)


def test_resets_do_not_eat_memory(training: WorkerEnv) -> None:
    """benchmarks/metadrive_memory.py is the long version."""

    def play(seeds: range) -> float:
        for seed in seeds:
            training.reset(seed)
            for _ in range(5):
                training.step(np.array([0.0, 1.0], np.float32))
        return float(training.call("resident_megabytes"))

    # A stored map takes 6 MB, so that twenty of them would show.
    warm = play(range(5))
    assert play(range(5, 25)) - warm < 60


def driving_config(**overrides: Any) -> Config:
    settings: dict[str, Any] = {
        "steps": 120, "warmup_steps": 30, "batch_size": 16, "steps_per_epoch": 50,
        "checkpoint_every_steps": 25, "evaluate_every_epochs": 2, "evaluation_episodes": 1,
        "metadrive__horizon": 20, "policy__temperature": 0.1,
    }  # fmt: skip
    return small_config(ENV, **(settings | overrides))


EXACT_FILES = ("progress.jsonl", "episodes.jsonl", "evaluations.jsonl", "policy.safetensors")


@pytest.mark.usefixtures("simulator")
def test_killed_workers_and_an_abandoned_run_leave_the_same_bytes(tmp_path: Path) -> None:
    config = driving_config()
    trainer = launch.start(config, tmp_path / "undisturbed")
    trainer.advance(config.steps)
    trainer.finish()
    trainer.close()

    trainer = launch.start(config, tmp_path / "disturbed")
    for stop in (33, 71):
        trainer.advance(stop)
        assert isinstance(trainer.env, WorkerEnv)
        os.kill(trainer.env.pid, signal.SIGKILL)
    trainer.advance(87)
    trainer.close()
    trainer = launch.resume(tmp_path / "disturbed")
    assert 0 < trainer.step < 87
    trainer.advance(config.steps)
    trainer.finish()
    trainer.close()

    for name in EXACT_FILES:
        one, other = ((tmp_path / run / name).read_bytes() for run in ("undisturbed", "disturbed"))
        assert one == other, name
    lengths = [line["length"] for line in read_lines(tmp_path / "disturbed" / "episodes.jsonl")]
    assert max(lengths) == 20
    recorded = json.loads((tmp_path / "disturbed" / "config.json").read_text())
    assert recorded["metadrive"]["horizon"] == 20
    final = read_lines(tmp_path / "disturbed" / "evaluations.jsonl")[-1]
    assert final["final"]
    for name in ("success", "route_completion", "crash", "off_road"):
        assert final[f"{name}_mean"] == pytest.approx(np.mean(final[name]))
        assert len(final[name]) == config.final_evaluation_episodes


@pytest.mark.usefixtures("simulator")
def test_evaluation_draws_from_the_held_out_scenarios() -> None:
    config = with_overrides(preset("wcsac", ENV), {"metadrive.traffic-density": "0.2"})
    source = env_source(ENV, config)
    assert isinstance(source, MetaDriveFactory)
    assert (source.use, source.config.traffic_density) == ("training", 0.2)
    assert for_evaluation(source) == replace(source, use="evaluation")
    copies = copies_of(source)
    for make, use in ((copies.training, "training"), (copies.evaluation, "evaluation")):
        with contextlib.closing(make()) as env:
            assert isinstance(env, WorkerEnv)
            assert env.source == replace(source, use=use)
    hopper = preset("sl-sac", "SafetyHopperVelocity-v1")
    assert (env_source(hopper.env, hopper), hopper.metadrive) == (hopper.env, None)


@pytest.mark.usefixtures("simulator")
def test_an_env_object_is_evaluated_on_the_held_out_scenarios_too() -> None:
    with contextlib.closing(make_env(ENV)) as env:
        agent = Agent("sac-lag", env=env)
        assert agent.config.cost_limit == 0.1
        assert for_evaluation(env) == MetaDriveFactory(METADRIVE, "evaluation")
        assert for_certificate(env) == MetaDriveFactory(METADRIVE, "certificate")
        with contextlib.closing(copy.deepcopy(env)) as other:
            assert other.source == MetaDriveFactory(METADRIVE)
        with pytest.raises(InvalidInput, match="pass the id as env"):
            Agent("sac-lag", env=env, metadrive={"traffic_density": 0.3})


@pytest.mark.usefixtures("simulator")
def test_an_on_policy_agent_learns_from_two_cars(tmp_path: Path) -> None:
    config = small_config(
        ENV, "ppo-lag", steps=80, num_envs=2, steps_per_epoch=80, batch_size=20,
        metadrive__horizon=20, final_evaluation_episodes=2,
    )  # fmt: skip
    trainer = launch.start(config, tmp_path / "run")
    trainer.advance(80)
    trainer.finish()
    trainer.close()
    episodes = read_lines(tmp_path / "run" / "episodes.jsonl")
    assert len(episodes) >= 4
    assert {"success", "crash"} <= set(episodes[0])


@pytest.mark.usefixtures("simulator")
def test_a_certificate_has_scenarios_that_no_evaluation_has_seen() -> None:
    factory = MetaDriveFactory(METADRIVE)
    certified = for_certificate(factory)
    # A loaded agent asks for an env for evaluation, and must not fall back to the held-out ones.
    assert for_evaluation(certified) == certified
    ranges = [factory.scenarios, for_evaluation(factory).scenarios, certified.scenarios]
    assert ranges == [range(1_000), range(10_000, 10_200), range(10_200, 110_200)]
    env = surveyed(certified)
    try:
        env.reset(7)
        assert env.call("present_scenario") == env.call("scenario", 7) in certified.scenarios
    finally:
        env.close()


def test_settings_are_refused_by_name() -> None:
    config = preset("sl-sac", ENV)
    for name, value, text in (
        ("metadrive.curve", 0.4, r"^metadrive.straight is 0.2; .* is 1, not 1.1$"),
        ("metadrive.traffic_density", -1, "^metadrive.traffic_density is -1.0; it must be 0, or"),
        ("metadrive.obstacle_probability", 0.01, "it must be 0, or above 0.01 and at most 1$"),
        ("metadrive.training_scenarios", 20_000, "no scenario may be in both"),
        ("traffic_density", 0.1, "did you mean metadrive.traffic_density"),
    ):
        with pytest.raises(InvalidInput, match=text):
            with_overrides(config, {name: value})
    with pytest.raises(InvalidInput, match="metadrive is none for this env"):
        with_overrides(preset("sl-sac", "ProbeChoice-v0"), {"metadrive.blocks": 2})
    with pytest.raises(InvalidInput, match="allows None"):
        make_env(ENV, render_mode="rgb_array")
    assert isinstance(config.metadrive, MetaDriveConfig)


def test_without_assets_training_says_what_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(metadrive_assets, "package_folder", lambda: tmp_path)
    assert main(["train", "--env", ENV, "--run", str(tmp_path / "run")]) == 2
    told = capsys.readouterr().err.strip()
    assert told == "slsac: MetaDrive has no assets yet; run `slsac setup metadrive`"
    assert not (tmp_path / "run").exists()


def test_without_the_simulator_training_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(metadrive_assets.importlib.util, "find_spec", lambda name: None)
    assert main(["train", "--env", ENV, "--run", str(tmp_path / "run")]) == 2
    told = capsys.readouterr().err.strip()
    assert told.startswith(
        "slsac: MetaDrive is not installed; run `pip install 'slsac[metadrive]'`"
    )
    assert len(told.splitlines()) == 1


def test_assets_come_from_the_wheel_where_the_archive_cannot_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, told = tmp_path / "package", list[str]()
    package.mkdir()

    def pip(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        assert metadrive_assets.WHEEL in command
        folder = Path(command[command.index("--dest") + 1])
        with zipfile.ZipFile(folder / "metadrive_simulator-0.3.0.1-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"metadrive/assets/{metadrive_assets.OLD_TEXTURE.as_posix()}", "grass")
            wheel.writestr("metadrive/assets/version.txt", "0.3.0.1")
            wheel.writestr("metadrive/code.py", "not an asset")
        return subprocess.CompletedProcess(command, 0)

    def garbled(*_: Any, **__: Any) -> Any:
        raise http.client.BadStatusLine("nonsense")

    monkeypatch.setattr(metadrive_assets, "package_folder", lambda: package)
    monkeypatch.setattr(metadrive_assets.urllib.request, "urlopen", garbled)
    monkeypatch.setattr(metadrive_assets.subprocess, "run", pip)
    metadrive_assets.prepare(told.append)
    assert told[0].startswith("the official archive is not available (nonsense); using the wheel")
    assert metadrive_assets.is_complete(package / "assets")
    assert (package / "assets" / metadrive_assets.TEXTURE).read_text() == "grass"
    assert [path.name for path in package.iterdir()] == ["assets"]


@pytest.mark.usefixtures("simulator")
def test_setup_leaves_assets_that_are_in_place_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assets = metadrive_assets.package_folder() / "assets"
    version = assets / "version.txt"
    before = version.stat().st_mtime_ns
    assert main(["setup", "metadrive"]) == 0
    assert capsys.readouterr().out.strip() == f"MetaDrive's assets are in place: {assets}"
    assert version.stat().st_mtime_ns == before
    assert metadrive_assets.is_complete(assets)


def test_an_archive_of_other_content_is_not_put_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "assets.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("assets/version.txt", "0.2.0")
    package, told = tmp_path / "package", list[str]()
    package.mkdir()

    def from_wheel(folder: Path) -> Path:
        assets = folder / "wheel"
        (assets / metadrive_assets.TEXTURE).parent.mkdir(parents=True)
        (assets / metadrive_assets.TEXTURE).write_text("grass")
        (assets / "version.txt").write_text(metadrive_assets.VERSION)
        return assets

    monkeypatch.setattr(metadrive_assets, "package_folder", lambda: package)
    monkeypatch.setattr(metadrive_assets, "ARCHIVE", archive.as_uri())
    monkeypatch.setattr(metadrive_assets, "_from_wheel", from_wheel)
    metadrive_assets.prepare(told.append)
    assert "not available (it lacks version 0.4.3" in told[0]
    assert metadrive_assets.is_complete(package / "assets")
