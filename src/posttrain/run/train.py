"""A whole run: base evaluation, then stage after stage with an evaluation behind each, into one run directory.

`start_run` begins one, `resume_run` picks one up where its last whole checkpoint stands; both end in `_drive`. What
the stages do is in `run/sft.py` and `run/rl.py`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from posttrain.core import registry
from posttrain.core.protocols import Domain, Observer
from posttrain.core.registry import build
from posttrain.core.types import EvalReport
from posttrain.gate.evaluate import best_constants, evaluate
from posttrain.gate.statistics import Gain, paired_gain
from posttrain.learn.lora_config import require_peft
from posttrain.models.catalog import resolve
from posttrain.run.config import RunConfig, SftStage
from posttrain.run.demonstrations import check_sources, gather
from posttrain.run.held_out import check_held_out
from posttrain.run.load import dump, parse
from posttrain.run.parts import Parts, engine_spec, make_domains, start
from posttrain.run.record import Recorder, RunState
from posttrain.run.rl import run_rl_stage
from posttrain.run.rl_stage import RlStage
from posttrain.run.sft import Plateau, SftLoop, sft_spec
from posttrain.store.files import write_bytes
from posttrain.store.run_directory import Manifest, RunDirectory

BASE = "base"
MODEL_FOLDER = "model"
"""The trained policy, a Hugging Face folder in the run directory."""
ADAPTER_FOLDER = "adapter"
"""Beside it with LoRA: the adapter alone, as peft reads it."""
TOKENIZER_FILE = "tokenizer.json"
"""Kept with the run, so that its tokens can be read for as long as it is."""


@dataclass(frozen=True)
class TrainResult:
    """What a finished run says of itself; `posttrain show` has the rest."""

    run: Path
    model: str
    reports: Mapping[str, EvalReport]
    """By label: "base" and the names of the evaluated stages, in order."""
    gain_rl: Gain | None
    """Of the last RL stage over the report before it; None where either is missing."""
    steps: int
    wall_s: float


def start_run(
    config: RunConfig, run: Path, observer: Observer, domains: Mapping[str, Domain] | None = None
) -> TrainResult:
    """Train from the beginning into a new run directory.

    `domains` replaces the configuration's own, by name. Raises `UserError` for what the user can mend, before anything
    is started where that is possible.
    """
    made = dict(domains) if domains is not None else make_domains(config.domains)
    check(config, made)
    directory = RunDirectory.create(run, Manifest.now(config.model, config.seed, sys.argv), dump(config))
    with directory.lock():
        return asyncio.run(_drive(config, directory, made, observer))


def resume_run(run: Path, observer: Observer, domains: Mapping[str, Domain] | None = None) -> TrainResult:
    """Go on from the last whole checkpoint; a run killed before its first one begins again."""
    directory = RunDirectory.open(run)
    config = parse(directory.config())
    made = dict(domains) if domains is not None else make_domains(config.domains)
    check(config, made)
    with directory.lock():
        return asyncio.run(_drive(config, directory, made, observer))


def check(config: RunConfig, domains: Mapping[str, Domain]) -> None:
    """What can be found wrong without loading a model. Raises `UserError`."""
    if any(domain.needs_sandbox for domain in domains.values()):
        _ = build("sandbox", config.sandbox).tier  # asking for it probes the machine (law L27)
    check_held_out(config.domains, domains)
    if config.learner.lora is not None:
        require_peft()
    registry.check("engine", engine_spec(config.engine, resolve(config.model), config.learner.dtype))
    from posttrain.learn.optimizer import OptimizerOptions  # brings torch, which importing this file must not

    for stage in config.stages:
        registry.fill(OptimizerOptions, stage.optimizer, where=f"optimizer of stage {stage.name}")
        if isinstance(stage, RlStage):
            for loss in stage.losses:
                build("loss", loss)
            build("advantage", stage.advantage)
        else:
            build("loss", stage.loss)
            check_sources(stage, config, domains)


async def _drive(
    config: RunConfig, directory: RunDirectory, domains: Mapping[str, Domain], observer: Observer
) -> TrainResult:
    async with start(config, domains, observer, logs=directory.logs) as parts:
        write_bytes(directory.path / TOKENIZER_FILE, (resolve(config.model) / TOKENIZER_FILE).read_bytes())
        recorder = Recorder(directory, config, parts)
        position = recorder.state
        if recorder.restored is not None:
            observer.note(f"resuming stage {config.stages[position.stage].name} after step {position.step}")
            await parts.learner.load(recorder.restored)
        await parts.publish(position.version)
        reports: dict[str, EvalReport] = {}
        if config.evaluate_base:
            reports[BASE] = await _report(parts, recorder, 0, BASE)
        for number, stage in enumerate(config.stages):
            if number > position.stage or (number == position.stage and not position.finished):
                await _stage(number, stage, parts, recorder, position)
            if stage.evaluate:
                reports[stage.name] = await _report(parts, recorder, number + 1, stage.name)
        observer.phase("writing the model")
        await parts.learner.export(directory.path / MODEL_FOLDER)
        if config.learner.lora is not None:
            await parts.learner.export_adapter(directory.path / ADAPTER_FOLDER)
        result = TrainResult(
            run=directory.path,
            model=config.model,
            reports=reports,
            gain_rl=_gain_rl(config, reports),
            steps=sum(recorder.state.steps.values()),
            wall_s=recorder.wall_s,
        )
        recorder.finish(gain_rl=result.gain_rl, steps=result.steps)
        return result


async def _stage(number: int, stage: SftStage | RlStage, parts: Parts, recorder: Recorder, position: RunState) -> None:
    """Run one stage, from the restored position where that lies in it."""
    resumed = number == position.stage and position.step > 0
    if not resumed:
        if isinstance(stage, SftStage):
            await parts.learner.begin_stage(sft_spec(stage))
        recorder.begin_stage(number)
    done = position.step if resumed else 0
    parts.observer.stage(stage.name, _num_steps(stage), done)
    if isinstance(stage, SftStage):
        plateau = (
            Plateau(best=position.plateau["best"], failures=int(position.plateau["failures"] or 0))
            if resumed
            else Plateau()
        )
        parts.observer.phase("gathering demonstrations")
        rows = await gather(stage, number, parts, recorder.demonstrations, resumed=resumed)
        steps = await SftLoop(
            stage,
            parts,
            recorder,
            rows,
            first_step=done,
            plateau=plateau,
            on_evaluation=_evaluation(number, stage, parts, recorder),
        ).run()
        await parts.publish(parts.version + 1)
    else:
        steps = await run_rl_stage(
            stage, parts, recorder, position if resumed else None, _evaluation(number, stage, parts, recorder)
        )
    await recorder.checkpoint(steps, finished=True)


def _num_steps(stage: SftStage | RlStage) -> int:
    return stage.max_steps if isinstance(stage, SftStage) else stage.steps


def _evaluation(
    number: int, stage: SftStage | RlStage, parts: Parts, recorder: Recorder
) -> Callable[[int], Awaitable[None]]:
    """Scores the policy that the engine holds, while the stage goes on: after the step whose number it is given."""

    async def evaluate_after(step: int) -> None:
        await _report(parts, recorder, number + 1, f"{stage.name}-{step:06d}", step)
        parts.observer.stage(stage.name, _num_steps(stage), step)

    return evaluate_after


async def _report(parts: Parts, recorder: Recorder, number: int, label: str, step: int = 0) -> EvalReport:
    """The report of the weights that the engine now holds, or the one that an earlier process already wrote."""
    known = recorder.known_report(number, label)
    if known is not None and known.suite_id == parts.suite.suite_id:
        return known
    options = parts.config.evaluation
    parts.observer.stage(f"evaluation of {label}", None)
    constants = recorder.known_constants(parts.suite.suite_id)
    if constants is None:
        parts.observer.phase("measuring the best constant answers")
        constants = await best_constants(parts.rollouts.domains, parts.suite, parts.rollouts.sandbox)
        recorder.constants(parts.suite.suite_id, constants)
    parts.observer.phase("evaluating", total=len(parts.suite) * (options.samples + 1))
    report, groups = await evaluate(
        parts.rollouts.roller,
        parts.suite,
        options,
        constants,
        label=label,
        model=parts.config.model,
        version=parts.version,
        on_done=parts.observer.advance,
    )
    recorder.report(number, step, report, groups)
    parts.observer.note(
        f"{label}: pass@1 {report.mean.pass_at_1:.3f} [{report.mean.ci95[0]:.3f}, {report.mean.ci95[1]:.3f}]"
    )
    return report


def _gain_rl(config: RunConfig, reports: Mapping[str, EvalReport]) -> Gain | None:
    """Of the last RL stage over the last report before it."""
    labels = list(reports)
    for stage in reversed(config.stages):
        if isinstance(stage, RlStage) and stage.name in labels and labels.index(stage.name) > 0:
            return paired_gain(reports[labels[labels.index(stage.name) - 1]], reports[stage.name])
    return None
