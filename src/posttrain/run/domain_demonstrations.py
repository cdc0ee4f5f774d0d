"""The domains' own demonstrations: distinct training tasks, each with the correct reply that its domain writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from posttrain.core.errors import ConfigError
from posttrain.core.protocols import Domain
from posttrain.core.seeding import stable_hash
from posttrain.core.types import Message, Role, Split, Task
from posttrain.gate.suite import check_disjoint
from posttrain.run.config import RunConfig, SftStage
from posttrain.run.parts import Parts
from posttrain.run.rows import Rows, conversation_samples


def domain_rows(stage: SftStage, parts: Parts, held_out: int) -> Rows:
    """Of each domain `held_out` rows for validation, then the stage's number for training.

    Raises `ConfigError` where a domain has too few, `OverlapError` where one is of the evaluation suite.
    """
    rows = Rows([], [])
    for name, pairs in demonstrations(stage, parts.config, parts.rollouts.domains, held_out).items():
        check_disjoint((task for task, _ in pairs), parts.suite)
        samples = [
            conversation_samples(
                parts.rollouts.renderer,
                f"demonstration/{task.task_id}",
                name,
                (*task.prompt, Message(Role.ASSISTANT, reply)),
                first_trained=len(task.prompt),
                prompt_loss_weight=stage.prompt_loss_weight,
            )[0]  # one turn to learn is one segment
            for task, reply in pairs
        ]
        rows += Rows(samples[held_out:], samples[:held_out])
    return rows


def demonstrations(
    stage: SftStage, config: RunConfig, domains: Mapping[str, Domain], held_out: int
) -> dict[str, list[tuple[Task, str]]]:
    """Of each domain, those held out first. Raises `ConfigError` where a domain has too few."""
    return {
        name: [(task, _reply(domains[name], task)) for task in tasks]
        for name, tasks in training_tasks(stage, config, domains, held_out).items()
    }


def training_tasks(
    stage: SftStage, config: RunConfig, domains: Mapping[str, Domain], held_out: int
) -> dict[str, list[Task]]:
    """Distinct ones of each domain, those held out first. Raises `ConfigError` where a domain has too few."""
    count = stage.demonstrations + held_out
    return {
        name: distinct_tasks(domain, config.domains[name].levels, count, config.seed)
        for name, domain in domains.items()
    }


def distinct_tasks(domain: Domain, levels: Sequence[int], count: int, seed: int) -> list[Task]:
    """`count` training tasks that all differ. Raises `ConfigError` where the domain has fewer."""
    found: dict[str, Task] = {}
    stream = stable_hash("demonstrations", seed)
    for index in range(20 * count):
        task = domain.task(Split.TRAIN, stream, index // len(levels), levels[index % len(levels)])
        found.setdefault(task.task_id, task)
        if len(found) == count:
            return list(found.values())
    raise ConfigError(
        f"domain {domain.name} has only {len(found)} distinct training tasks at level {', '.join(map(str, levels))}; "
        f"the stage asks for {count}"
    )


def _reply(domain: Domain, task: Task) -> str:
    reply = domain.demonstration(task)
    if reply is None:
        raise ConfigError(
            f"domain {domain.name} has no demonstrations: an sft stage can learn from it only what the policy itself "
            'solves (source = "self")'
        )
    return reply
