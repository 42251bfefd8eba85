"""Driving in traffic: the MetaDrive simulator, without a window, as a ``SafeEnv``.

The simulator allows one engine per process, so `MetaDriveFactory` puts each env into a process of
its own; `DrivingEnv` is what lives there.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from slsac.config import MetaDriveConfig
from slsac.envs.metadrive_assets import require_ready
from slsac.envs.worker import WorkerEnv
from slsac.tasks import METADRIVE_ID
from slsac.types import EnvSpec, Step

CERTIFICATE_SCENARIOS = 100_000
"""So many that a certificate hardly meets one twice: it is about the task, not a list of maps."""


@dataclass(frozen=True)
class MetaDriveFactory:
    """Makes driving envs, each in a process of its own; the factory itself can be pickled."""

    config: MetaDriveConfig
    use: Literal["training", "evaluation", "certificate"] = "training"
    """What the envs are for; each use has its own scenarios."""

    @property
    def scenarios(self) -> range:
        """The numbers of the scenarios that the envs draw from."""
        first = self.config.first_test_scenario
        beyond = first + self.config.test_scenarios
        return {
            "training": range(self.config.training_scenarios),
            "evaluation": range(first, beyond),
            "certificate": range(beyond, beyond + CERTIFICATE_SCENARIOS),
        }[self.use]

    def __call__(self) -> WorkerEnv:
        require_ready()
        return WorkerEnv(self.make_here, source=self, env_id=METADRIVE_ID)

    def make_here(self) -> DrivingEnv:
        """The env itself, in this process; a process can hold only one."""
        return DrivingEnv(self.config, self.scenarios)

    def for_evaluation(self) -> MetaDriveFactory:
        return self if self.use == "certificate" else replace(self, use="evaluation")

    def for_certificate(self) -> MetaDriveFactory:
        return replace(self, use="certificate")


class DrivingEnv:
    """One simulator. An episode is a scenario: a map, its traffic, a lane and a destination."""

    def __init__(self, config: MetaDriveConfig, scenarios: range) -> None:
        from metadrive.envs.metadrive_env import MetaDriveEnv

        self._config = config
        self._scenarios = scenarios
        self._env = MetaDriveEnv(simulator_settings(config, scenarios))
        box = self._env.action_space
        self.spec = EnvSpec(
            observation_size=self._env.observation_space.shape[0],
            action_size=box.shape[0],
            horizon=config.horizon,
            action_low=tuple(box.low.tolist()),
            action_high=tuple(box.high.tolist()),
        )
        self._steps = 0
        self._violations: dict[str, float] = {}

    def scenario(self, seed: int) -> int:
        """The number of the scenario that ``seed`` stands for."""
        return self._scenarios[np.random.default_rng(seed).integers(len(self._scenarios))]

    def reset(self, seed: int) -> np.ndarray:
        observation, _ = self._env.reset(seed=self.scenario(seed))
        self._steps = 0
        self._violations = {"crash": 0.0, "off_road": 0.0}
        return self._as_network_input(observation)

    def _as_network_input(self, observation: np.ndarray) -> np.ndarray:
        values = np.array(observation, np.float32)
        if self._config.lidar == "closeness":
            # Most rays meet nothing. As some 240 ones they would push first-layer units below 0 in
            # every state, and a ReLU that is 0 everywhere never learns again.
            rays = values[-self._config.lasers :]
            np.subtract(1.0, rays, out=rays)
        return values

    def step(self, action: np.ndarray) -> Step:
        unit = np.clip(np.asarray(action, np.float64), -1.0, 1.0)
        observation, reward, _, _, info = self._env.step(unit)
        self._steps += 1
        # The simulator's own "crash" includes the pavement, which is leaving the road.
        crash = any(info[f"crash_{what}"] for what in ("vehicle", "object", "building", "human"))
        off_road = bool(info["out_of_road"]) or bool(info["crash_sidewalk"])
        success, violation = bool(info["arrive_dest"]), crash or off_road
        self._violations["crash"] = max(self._violations["crash"], float(crash))
        self._violations["off_road"] = max(self._violations["off_road"], float(off_road))
        terminated = success or (violation and self._config.end_at_violation)
        truncated = self._steps >= self._config.horizon and not terminated
        extras = None
        if terminated or truncated:
            completed = float(np.clip(info["route_completion"], 0.0, 1.0))
            extras = {"success": float(success), "route_completion": completed, **self._violations}
        return Step(
            self._as_network_input(observation),
            float(reward),
            float(violation),
            terminated,
            truncated,
            extras,
        )

    def close(self) -> None:
        self._env.close()


def simulator_settings(config: MetaDriveConfig, scenarios: range) -> dict[str, Any]:
    """The settings that differ from the simulator's own defaults."""
    from metadrive.component.algorithm.blocks_prob_dist import PGBlockDistConfig

    shares = dict.fromkeys(PGBlockDistConfig.BLOCK_TYPE_DISTRIBUTION_V2, 0.0) | {
        "Straight": config.straight,
        "Curve": config.curve,
        "StdInterSection": config.intersection,
        "StdTInterSection": config.t_intersection,
        "Roundabout": config.roundabout,
    }
    # numpy insists on a sum of 1 more strictly than the configuration does.
    shares = {name: share / sum(shares.values()) for name, share in shares.items()}

    class BlockShares(PGBlockDistConfig):  # type: ignore[misc]
        BLOCK_TYPE_DISTRIBUTION_V2 = shares

    ends = config.end_at_violation
    return {
        "start_seed": scenarios.start,
        "num_scenarios": len(scenarios),
        "map": config.blocks,
        "block_dist_config": BlockShares,
        "traffic_density": config.traffic_density,
        "accident_prob": config.obstacle_probability,
        "vehicle_config": {"lidar": {"num_lasers": config.lasers}},
        "crash_vehicle_penalty": config.violation_penalty,
        "crash_object_penalty": config.violation_penalty,
        "out_of_road_penalty": config.violation_penalty,
        "crash_vehicle_done": ends,
        "crash_object_done": ends,
        "out_of_road_done": ends,
        # A vehicle from the simulator's pool keeps state of its last episode: the same scenario and
        # actions would then end differently, and no run could be repeated.
        "force_destroy": True,
        # Stored maps fill memory without bound; generating a map takes a fifth of a second.
        "store_map": False,
        "log_level": logging.CRITICAL,
    }
