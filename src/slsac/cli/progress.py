"""What `slsac train` and `slsac resume` share: saying what is trained, and training to the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slsac.display import Terminal
    from slsac.training.launch import Trainer


def announce(trainer: Trainer, display: Terminal) -> None:
    """Say what is trained, under which limit, and when learning takes place."""
    from slsac.formatting import percent
    from slsac.stats.bounds import discounted_cost_limit

    config, spec = trainer.config, trainer.spec
    discounted = discounted_cost_limit(config.cost_limit, config.cost_critic.discount, spec.horizon)
    mean = config.multiplier.signal == "mean"
    limited = "all" if mean else f"the worst {percent(config.tail_fraction)} of"
    display.note(
        f"{config.algo} on {config.env}, seed {config.seed}, {config.steps:,} steps; "
        f"observations {spec.observation_size}, actions {spec.action_size}, "
        f"episodes of up to {spec.horizon} steps"
    )
    display.note(
        f"cost limit {config.cost_limit:g} per episode, undiscounted ({discounted:.4g} discounted "
        f"at {config.cost_critic.discount:g}), for the mean of {limited} episodes; "
        f"run directory {trainer.run}"
    )
    display.note(trainer.schedule)


def train_to_end(trainer: Trainer, display: Terminal, callbacks: Sequence[Any]) -> int:
    """Train to the run's last step, evaluate, and return the exit code; closes the trainer."""
    from slsac.envs.imports import needs_trust
    from slsac.runs.layout import CONFIG, EXACT_LOGS, POLICY
    from slsac.runs.steps import reached_step
    from slsac.training import launch
    from slsac.training.failures import MACHINE_FAILURES

    trust = " --trust-env" if needs_trust(trainer.config.env) else ""
    try:
        launch.train(trainer, trainer.config.steps, callbacks)
    except KeyboardInterrupt:
        display.note(
            f"stopped at step {trainer.step:,}, saved at step {reached_step(trainer.run):,}; "
            f"continue: slsac resume {trainer.run}{trust}"
        )
        return 130
    except MACHINE_FAILURES as error:
        trainer.session.failures.of_machine(trainer.step, error)
    finally:
        trainer.close()
    display.note(
        f"results are in {trainer.run}: {', '.join((CONFIG, *EXACT_LOGS, POLICY))}; "
        f"evaluate again with `slsac evaluate {trainer.run}{trust}`"
    )
    return 0
