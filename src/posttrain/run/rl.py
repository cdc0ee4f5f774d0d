"""One RL stage from its begin, or from where a checkpoint left it, to its end: the loop, and the returns of the loop.

A rule that asks for it sends the stage back to its last good checkpoint; what happens between is `run/loop.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from posttrain.core.protocols import Mixture, StageSpec
from posttrain.core.rules import Action
from posttrain.run.health import Health
from posttrain.run.loop import RlLoop, RollBackRequested
from posttrain.run.parts import Parts
from posttrain.run.record import Recorder, RunState
from posttrain.run.rl_stage import RlStage
from posttrain.schedule.stratified import Stratified


async def run_rl_stage(
    stage: RlStage,
    parts: Parts,
    recorder: Recorder,
    position: RunState | None,
    on_evaluation: Callable[[int], Awaitable[None]],
) -> int:
    """Returns the number of steps. `position` is where a resumed stage stands; None: at its begin.

    Raises `StoppedByRuleError`, and whatever else ends the loop.
    """
    if position is None:
        await _begin(stage, parts, recorder)
    if not recorder.has_checkpoint and any(rule.action is Action.ROLL_BACK for rule in stage.rules):
        await recorder.checkpoint(0, mixture=_mixture(parts).state())
    for name in recorder.verifiers({name: domain.version for name, domain in parts.rollouts.domains.items()}):
        parts.observer.note(f"the verifier of {name} is another one than before: if the domain was paused, it goes on")
    while True:
        state = recorder.state
        mixture = _mixture(parts)
        if state.step:
            mixture.load_state(state.mixture)
        health = Health(
            stage.rules,
            recorder.history(),
            state.roll_backs,
            max_roll_backs=stage.max_roll_backs,
            lifted=state.lifted,
        )
        loop = RlLoop(stage, parts, recorder, mixture, health, state.steering, on_evaluation)
        try:
            await loop.run()
        except RollBackRequested as asked:
            back_to = recorder.return_to_good(asked.roll_back)
            parts.observer.note(f"{stage.name} returns to its step {recorder.state.step}: {asked.roll_back.reason}")
            await _return(stage, parts, recorder, back_to)
        else:
            return stage.steps


async def _begin(stage: RlStage, parts: Parts, recorder: Recorder) -> None:
    await parts.learner.begin_stage(rl_spec(stage))
    if stage.kl is not None:
        recorder.reference(parts.version, parts.fingerprint)


async def _return(stage: RlStage, parts: Parts, recorder: Recorder, checkpoint: Path) -> None:
    await parts.learner.load(checkpoint)
    await parts.publish(parts.version + 1)
    state = recorder.state
    if state.step == 0:
        await _begin(stage, parts, recorder)
    # Written at once: a run that is killed now must still know that it went back.
    await recorder.checkpoint(state.step, mixture=state.mixture, steering=state.steering)


def rl_spec(stage: RlStage) -> StageSpec:
    """What the learner is told."""
    return StageSpec(
        losses=stage.losses,
        optimizer=stage.optimizer,
        total_steps=stage.steps,
        keep_reference=stage.kl is not None,
    )


def _mixture(parts: Parts) -> Mixture:
    configs = parts.config.domains
    return Stratified(
        domains=parts.rollouts.domains,
        weights={name: config.weight for name, config in configs.items()},
        levels={name: dict.fromkeys(config.levels, 1.0) for name, config in configs.items()},
        seed=parts.config.seed,
        excluded=parts.suite.task_ids,
    )
