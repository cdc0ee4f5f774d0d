"""Builders that the tests of SFT stages share: a run's parts around the scripted engine, a domain, files of rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from posttrain.core.protocols import GenerateRequest
from posttrain.core.types import Limits, Task
from posttrain.domains.function import FunctionDomain
from posttrain.engines.scripted import Reply, ScriptedEngine
from posttrain.gate.evaluate import EvaluationOptions
from posttrain.models import seedling
from posttrain.rewards.compose import outcome_reward
from posttrain.rollout.render import ChatRenderer
from posttrain.rollout.wave import Roller
from posttrain.run.config import DomainConfig, RunConfig, SftStage
from posttrain.run.parts import Parts, Rollouts, make_suite

CHAT_ROW = {
    "messages": [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi 12!"},
        {"role": "user", "content": "Bye"},
        {"role": "assistant", "content": "See you"},
    ]
}


class Listener:
    """An observer that remembers the notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def stage(self, name: str, total_steps: int | None, done: int = 0) -> None: ...

    def phase(self, name: str, total: int | None = None) -> None: ...

    def advance(self, amount: int = 1) -> None: ...

    def step(self, step: int, values: Mapping[str, float]) -> None: ...

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)


def additions(name: str = "additions") -> FunctionDomain:
    """Small sums; right is a reply that ends with the sum."""
    rows = [(f"{a} + {b} =", a + b) for a in range(1, 20) for b in range(1, 5)]
    return FunctionDomain(
        rows,
        lambda task, reply: reply.split()[-1:] == [str(task.hidden["answer"])],
        name=name,
        demonstrate=lambda task: str(task.hidden["answer"]),
        limits=Limits(max_new_tokens=12),
    )


def sft_stage(**options: Any) -> SftStage:
    return SftStage(kind="sft", **{"demonstrations": 8, **options})


def data_stage(*files: Path | str, **options: Any) -> SftStage:
    return sft_stage(**{"demonstrations": 0, "data": [str(file) for file in files], **options})


def make_renderer(folder: Path, template: str = seedling.TEMPLATE) -> ChatRenderer:
    folder.mkdir(exist_ok=True)
    seedling.create(folder, seed=0)
    (folder / "chat_template.jinja").write_text(template)
    return ChatRenderer.load(folder)


def make_parts(
    stage: SftStage, renderer: ChatRenderer, script: Callable[[GenerateRequest], Reply] | None = None
) -> tuple[Parts, ScriptedEngine, Listener]:
    """One domain, two evaluation tasks, no learner: nothing is trained."""
    domain, listener = additions(), Listener()
    engine = ScriptedEngine(script)
    config = RunConfig(
        model="seedling-random",
        domains={domain.name: DomainConfig()},
        stages=[stage],
        evaluation=EvaluationOptions(tasks=2, samples=1),
    )
    domains = {domain.name: domain}
    roller = Roller(domains, engine, renderer, None, outcome_reward, max_context=2048)
    learner: Any = None
    parts = Parts(
        config=config,
        rollouts=Rollouts(domains=domains, renderer=renderer, sandbox=None, engine=engine, roller=roller),
        suite=make_suite(config, domains),
        learner=learner,
        observer=listener,
        weights=Path("none"),
    )
    return parts, engine, listener


def replying(renderer: ChatRenderer, say: Callable[[Task, int], str]) -> Callable[[GenerateRequest], Reply]:
    """A script: `say(task, sibling)` and then the stop token; without one where the text ends with "…"."""
    tasks = {tuple(renderer.prompt(task.prompt)): task for task in additions().tasks if isinstance(task, Task)}

    def script(request: GenerateRequest) -> Reply:
        task = tasks[tuple(request.prompt.tolist())]
        sibling = int(request.request_id.split("/")[-2])
        text = say(task, sibling)
        ids = renderer.reply(text.removesuffix("…"))
        return Reply(tuple(ids[:-1] * 20 if text.endswith("…") else ids))

    return script


def write_rows(path: Path, rows: Sequence[Any]) -> Path:
    """JSONL; a string is written as it is."""
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def pairs(count: int) -> list[dict[str, str]]:
    """Rows that all differ."""
    return [{"prompt": f"Say {number}.", "completion": f"{number}!"} for number in range(count)]
