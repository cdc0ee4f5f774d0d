"""What a configuration will do, in numbers, before anything is loaded: `posttrain train --dry-run`."""

from __future__ import annotations

from typing import Any

from posttrain.gate.suite import Suite
from posttrain.run.config import RunConfig, SftStage


def plan(config: RunConfig, suite: Suite) -> dict[str, Any]:
    """Derived sizes of every stage and evaluation; plain data."""
    evaluations = config.evaluate_base + sum(stage.evaluate for stage in config.stages)
    return {
        "model": config.model,
        "seed": config.seed,
        "domains": {name: {"level": domain.level, "weight": domain.weight} for name, domain in config.domains.items()},
        "stages": [_stage(stage) for stage in config.stages],
        "evaluation": {
            "suite_id": suite.suite_id,
            "tasks_per_domain": config.evaluation.tasks,
            "attempts_each_time": len(suite) * (config.evaluation.samples + 1),
            "times": evaluations,
        },
        "learner": {
            "dtype": config.learner.dtype,
            "trains": "all weights" if config.learner.lora is None else f"LoRA of rank {config.learner.lora.rank}",
        },
        "processes": {"engine": config.engine.processes, "learner": config.learner.processes},
    }


def _stage(stage: Any) -> dict[str, Any]:
    if isinstance(stage, SftStage):
        return {
            "name": stage.name,
            "kind": stage.kind,
            "max_steps": stage.max_steps,
            "source": stage.source,
            "demonstrations_per_domain": stage.demonstrations,
            "data": list(stage.data),
            "demonstrations_per_step": stage.demonstrations_per_step,
            "stops_at_plateau": stage.plateau is not None,
        }
    return {
        "name": stage.name,
        "kind": stage.kind,
        "steps": stage.steps,
        "groups_per_step": stage.groups_per_step,
        "completions_per_step": stage.groups_per_step * stage.group_size,
        "completions": stage.steps * stage.groups_per_step * stage.group_size,
        "max_staleness": stage.max_staleness,
        "slots": (stage.max_staleness + 1) * stage.groups_per_step,
    }
