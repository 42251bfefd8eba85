"""The training loop: when the policy and the multiplier move, and what is compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import numpy as np
import pytest

from slsac.training.off_policy import OffPolicyTrainer
from tests.support.compilations import compilations

Start = Callable[..., OffPolicyTrainer]


def test_the_multiplier_moves_at_every_step_after_its_rest(start: Start) -> None:
    # Every episode has one step and costs 2, one more than the limit.
    trainer = start(
        "ProbeConstant-v0", cost_limit=1.0, multiplier__learning_rate=0.01,
        multiplier_warmup_steps=5,
    )  # fmt: skip
    found = {}
    for step in (5, 6, 7, 15):
        trainer.advance(step)
        found[step] = trainer.session.lagrangian.state.value
    assert found == pytest.approx({5: 0.0, 6: 0.01, 7: 0.02, 15: 0.1})


def test_critics_learn_at_every_step_and_the_policy_at_every_second(start: Start) -> None:
    trainer = start("ProbeConstant-v0", warmup_steps=10, batch_size=4)
    moved: dict[str, list[bool]] = {"policy": [], "reward_critics": [], "cost_critic": []}
    trainer.advance(10)
    for step in range(11, 15):
        # Copied, since an update reuses the memory of the state it is given.
        before = {name: jax.tree.map(np.array, getattr(trainer.state, name)) for name in moved}
        trainer.advance(step)
        for name, old in before.items():
            pairs = zip(
                jax.tree.leaves(old), jax.tree.leaves(getattr(trainer.state, name)), strict=True
            )
            moved[name].append(any(np.any(one != two) for one, two in pairs))
    assert moved == {
        "policy": [False, True, False, True],
        "reward_critics": [True] * 4,
        "cost_critic": [True] * 4,
    }
    assert trainer.session.clock.updates == 4


def test_one_episode_in_three_is_played_without_noise(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every episode has one step, so episode n begins at step n.
    trainer = start(
        "ProbeConstant-v0", warmup_steps=10, batch_size=4, noiseless_every=3,
        policy__averaging_rate=0.1,
    )  # fmt: skip
    played = []

    def play(observations: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        played.append(trainer.step)
        return type(trainer.learner).play(trainer.learner, observations)

    monkeypatch.setattr(trainer.learner, "play", play)
    trainer.advance(17)
    assert played == [11, 14]
    expected = trainer.agent.predict(trainer.state.policy, trainer.observation())
    trainer.advance(18)
    assert played == [11, 14, 17]
    actions = trainer.replay._of_transitions()[0]
    np.testing.assert_array_equal(actions[17], expected)


def test_a_second_seed_in_the_same_process_compiles_nothing(start: Start) -> None:
    def train(seed: int, steps: int) -> None:
        # No other test has this share, so that the first seed is the first to be compiled.
        trainer = start(
            "ProbeChoice-v0", seed=seed, steps=steps, warmup_steps=10, batch_size=4, polyak=0.037
        )
        trainer.advance(steps)
        trainer.finish()

    with compilations() as compiled:
        train(seed=0, steps=20)
        assert compiled
        compiled.clear()
        train(seed=1, steps=30)
        assert not compiled
