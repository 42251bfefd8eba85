"""What determines a run: dataclasses (`parts`, `run`), their values (`presets`), and conversion to
and from plain data (`overrides`)."""

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
