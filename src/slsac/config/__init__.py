"""What a run is made of: dataclasses (`parts`, `run`), their values (`presets`), and the way in and
out of plain data (`overrides`)."""

from slsac.config.parts import (
    ClippedConfig,
    CostCriticConfig,
    GaussianPolicyConfig,
    MetaDriveConfig,
    MultiplierConfig,
    OptimiserConfig,
    OptimiserKind,
    PolicyConfig,
    RewardCriticConfig,
    TrustRegionConfig,
    ValueCriticConfig,
)
from slsac.config.run import Config, OffPolicyConfig, OnPolicyConfig

__all__ = [
    "ClippedConfig", "Config", "CostCriticConfig", "GaussianPolicyConfig", "MetaDriveConfig",
    "MultiplierConfig", "OffPolicyConfig", "OnPolicyConfig", "OptimiserConfig", "OptimiserKind",
    "PolicyConfig", "RewardCriticConfig", "TrustRegionConfig", "ValueCriticConfig",
]  # fmt: skip
