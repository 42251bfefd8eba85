"""Callbacks hear of everything in order, may end training, and lose nothing where they fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slsac import Agent
from slsac.errors import InvalidInput
from slsac.runs.log import read_lines
from slsac.runs.steps import reached_step
from slsac.training import launch
from slsac.training.callbacks import Callbacks, KeepBest, StopAt
from tests.support.runs import quick_config


class Listening:
    """Writes down what it hears, and ends training at an event."""

    def __init__(self, stop: tuple[str, int]) -> None:
        self.heard: list[tuple[str, int]] = []
        self._stop = stop

    def _hear(self, event: str, record: Any) -> bool:
        self.heard.append((event, record["step"]))
        return self.heard[-1] != self._stop

    def episode(self, training: Any, record: Any) -> bool:
        return self._hear("episode", record)

    def epoch(self, training: Any, record: Any) -> bool:
        return self._hear("epoch", record)

    def evaluation(self, training: Any, record: Any) -> bool:
        assert training.step == record["step"]
        return self._hear("evaluation", record)

    def end(self, training: Any) -> None:
        self.heard.append(("end", training.step))


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Listening]:
    """A run in ten-step episodes, to be 97 steps long, that a callback has ended at step 60."""
    run = tmp_path_factory.mktemp("ended") / "run"
    listening = Listening(stop=("epoch", 60))
    config = quick_config(
        steps=97, warmup_steps=40, steps_per_epoch=30, evaluate_every_epochs=1,
        evaluation_episodes=1, final_evaluation_episodes=2, cost_limit=100.0,
    )  # fmt: skip
    trainer = launch.start(config, run)
    launch.train(trainer, config.steps, [listening, KeepBest()])
    trainer.close()
    return run, listening


def test_events_come_in_the_order_in_which_they_happen(ended: tuple[Path, Listening]) -> None:
    _, listening = ended
    episodes = [("episode", step) for step in (10, 20, 30, 40, 50, 60)]
    assert listening.heard == [
        *episodes[:3], ("epoch", 30), ("evaluation", 30),
        *episodes[3:], ("epoch", 60), ("evaluation", 60),
        ("evaluation", 60), ("end", 60),
    ]  # fmt: skip


def test_a_run_that_a_callback_ends_is_whole_and_can_continue(
    ended: tuple[Path, Listening],
) -> None:
    run, _ = ended
    assert read_lines(run / "evaluations.jsonl")[-1]["final"]
    resumed = launch.resume(run)
    assert resumed.step == 60
    resumed.close()


def test_the_best_safe_policy_can_be_used_like_a_run(ended: tuple[Path, Listening]) -> None:
    run, _ = ended
    (kept,) = read_lines(run / "best" / "evaluations.jsonl")
    with Agent.load(run / "best") as agent:
        returns = agent.evaluate(kept["episodes"]).returns
    assert returns.tolist() == kept["returns"]


def evaluated(total: float, cost: float, step: int = 1) -> dict[str, Any]:
    figures = {"return_mean": total, "cost_mean": cost, "cost_cvar": cost, "cost_limit": 5.0}
    episodes = {"returns": [total], "costs": [cost], "lengths": [10]}
    return {"step": step, "final": False, **figures, **episodes}


def test_a_target_must_be_held_within_the_limit() -> None:
    told = [(9, 1), (10, 1), (10, 6), (11, 5), (10, 0), (12, 4), (9, 0), (12, 0)]
    stop = StopAt(10.0, held=3)
    answers = [stop.evaluation(None, evaluated(*figures)) for figures in told]  # type: ignore[arg-type]
    assert answers == [True, True, True, True, True, False, True, True]
    with pytest.raises(InvalidInput, match="held is 0; it must be at least 1"):
        StopAt(10.0, held=0)


class Untrained:
    """As much of a run as is needed to keep its policy."""

    def __init__(self, run: Path) -> None:
        self.run, self.state, self.policy = run, self, np.zeros(2)
        (run / "config.json").write_text("{}")


def test_an_unsafe_or_worse_policy_is_not_kept(tmp_path: Path) -> None:
    training, keep, steps = Untrained(tmp_path), KeepBest(), []
    for step, figures in enumerate([(5, 9), (3, 5), (9, 6), (2, 0), (4, 1)]):
        keep.evaluation(training, evaluated(*figures, step))  # type: ignore[arg-type]
        steps.append([line["step"] for line in read_lines(tmp_path / "best" / "evaluations.jsonl")])
    assert steps == [[], [1], [1], [1], [4]]


class Failing:
    def __init__(self) -> None:
        self.ended = False

    def episode(self, training: Any, record: Any) -> None:
        if record["step"] == 30:
            raise ZeroDivisionError

    def end(self, training: Any) -> None:
        self.ended = True


def test_an_exception_in_a_callback_ends_training_with_a_checkpoint(tmp_path: Path) -> None:
    failing = Failing()
    trainer = launch.start(quick_config(checkpoint_every_steps=1_000), tmp_path / "run")
    with pytest.raises(ZeroDivisionError):
        launch.train(trainer, 300, [failing])
    trainer.close()
    assert failing.ended
    assert reached_step(tmp_path / "run") == 30


def test_what_is_no_callback_is_refused() -> None:
    for wrong in (print, KeepBest, 3):
        with pytest.raises(InvalidInput, match="allowed: objects with one of the methods"):
            Callbacks().begin([wrong])


def test_weights_and_biases_gets_epochs_and_evaluations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = pytest.importorskip("wandb", reason="needs the extra wandb")
    from slsac.training.callbacks import WeightsAndBiases

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    for variable in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(variable, str(tmp_path / "cache"))
    config = quick_config(steps=60, steps_per_epoch=30, warmup_steps=100)
    trainer = launch.start(config, tmp_path / "run")
    launch.train(trainer, config.steps, [WeightsAndBiases(project="test")])
    trainer.close()
    assert wandb.run is None, "it is finished"
    assert list((tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb"))
