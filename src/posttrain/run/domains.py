"""What the domain commands print: the registered domains, and a few tasks of one."""

from __future__ import annotations

from typing import Any

from posttrain.core.protocols import Domain
from posttrain.core.registry import build, names
from posttrain.core.types import Split
from posttrain.run.parts import check_level


def list_domains() -> list[dict[str, Any]]:
    """One row a registered domain, sorted by name."""
    domains: list[Domain] = [build("domain", name) for name in names("domain")]
    return [
        {
            "name": domain.name,
            "version": domain.version,
            "licence": domain.licence,
            "levels": domain.levels,
            "needs_sandbox": domain.needs_sandbox,
        }
        for domain in domains
    ]


def show_domain(name: str, level: int, count: int) -> list[dict[str, Any]]:
    """`count` training tasks of one level, with their demonstrations."""
    domain: Domain = build("domain", name)
    check_level(domain, level)
    tasks = [domain.task(Split.TRAIN, 0, index, level) for index in range(count)]
    return [
        {
            "task_id": task.task_id,
            "prompt": "\n".join(message.content for message in task.prompt),
            "demonstration": domain.demonstration(task),
        }
        for task in tasks
    ]
