"""A minibatch to try critics on."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from slsac.types import Batch, EnvSpec

SPEC = EnvSpec(3, 2, 10, (-1.0, -1.0), (1.0, 1.0))


def make_batch(size: int = 6, **fields: Any) -> Batch:
    rng = np.random.default_rng(7)
    batch = Batch(
        observation=rng.normal(size=(size, 3)),
        action=rng.uniform(-1.0, 1.0, (size, 2)),
        reward=rng.normal(size=size),
        cost=rng.uniform(size=size),
        next_observation=rng.normal(size=(size, 3)),
        terminated=np.zeros(size),
    )
    return jax.tree.map(lambda field: jnp.asarray(field, jnp.float32), batch)._replace(**fields)
