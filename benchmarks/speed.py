"""`make bench`: tokens a second of both engines and of the learner, on the demonstration run's model and tasks.

Every number counts sampled tokens, the ones that an RL step learns from, and is the median of repeats in which the
parts take turns, with the range that holds 95 % of them. Parts are placed as in a run. It measures no quality.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from posttrain.core.protocols import GenerateRequest, Generation, RolloutEngine, StageSpec
from posttrain.core.seeding import stable_hash
from posttrain.core.types import Sample, Split
from posttrain.fleet.local import start_engines, start_learners
from posttrain.learn.samples import demonstration_sample
from posttrain.models.catalog import resolve
from posttrain.rollout.render import ChatRenderer
from posttrain.run.config import RunConfig
from posttrain.run.load import load
from posttrain.run.parts import engine_spec, make_domains

MAX_NEW_TOKENS = 64


@dataclass
class Part:
    """One row of the table."""

    name: str
    num_sequences: int
    work: Callable[[], Awaitable[int]]
    """Does one repeat; returns the number of sampled tokens that it was about."""
    tokens_per_s: list[float] = field(default_factory=list)

    @property
    def summary(self) -> tuple[float, float, float]:
        """The median, and the range that holds 95 % of the repeats."""
        low, median, high = np.percentile(self.tokens_per_s, [2.5, 50, 97.5]).tolist()
        return median, low, high


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    arguments = parser.parse_args()
    config = load(Path("configs/quickstart.toml"))
    parts = asyncio.run(measure(config, arguments.prompts, arguments.group_size, arguments.repeats))
    print(as_json(config, parts) if arguments.json else as_table(parts))


async def measure(config: RunConfig, num_prompts: int, group_size: int, repeats: int) -> list[Part]:
    """The two engines and the learner, in this order: each once unmeasured, then in turn."""
    model = resolve(config.model)
    requests = make_requests(config, ChatRenderer.load(model, config.system_prompt), num_prompts, group_size)
    few = requests[::group_size][: len(config.domains)]  # nothing is shared between them: few tell the speed of many
    async with contextlib.AsyncExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="posttrain-bench-")))
        engines = []
        for engine in (replace(config.engine, name=name, options={}) for name in ("torch", "reference")):
            spec = engine_spec(engine, model, config.learner.dtype)
            engines.append(await start_engines(spec, engine.placement, logs / engine.name))
            stack.push_async_callback(engines[-1].close)
        options = {"model": model, "dtype": config.learner.dtype}
        learner = await start_learners(options, config.learner.placement, logs / "learner")
        stack.push_async_callback(learner.close)
        await learner.begin_stage(
            StageSpec([{"name": "clipped_policy_gradient"}], {"learning_rate": 0.0}, total_steps=1)
        )
        samples = list(map(make_sample, requests, await engines[0].generate(requests)))

        async def step() -> int:
            return (await learner.step(samples)).num_loss_tokens

        parts = [
            Part("embedded engine", len(requests), partial(generate, engines[0], requests)),
            Part("reference engine", len(few), partial(generate, engines[1], few)),
            Part("learner, one step", len(samples), step),
        ]
        for part in parts:
            await part.work()
        for repeat in range(repeats):
            for part in parts:
                started = time.perf_counter()
                num_tokens = await part.work()
                part.tokens_per_s.append(num_tokens / (time.perf_counter() - started))
            print(f"repeat {repeat + 1} of {repeats}", file=sys.stderr)
        return parts


async def generate(engine: RolloutEngine, requests: Sequence[GenerateRequest]) -> int:
    return sum(len(generation.tokens) for generation in await engine.generate(requests))


def make_requests(
    config: RunConfig, renderer: ChatRenderer, num_prompts: int, group_size: int
) -> list[GenerateRequest]:
    """The domains' prompts in turn, each `group_size` times."""
    domains = list(make_domains(config.domains).items())
    requests = []
    for number in range(num_prompts):
        name, domain = domains[number % len(domains)]
        prompt = renderer.prompt(domain.task(Split.TRAIN, 0, number, config.domains[name].levels[0]).prompt)
        for sibling in range(group_size):
            seed = stable_hash("bench", number, sibling)
            one = GenerateRequest(f"{number}/{sibling}", np.asarray(prompt, np.int32), MAX_NEW_TOKENS, seed)
            requests.append(replace(one, stop_tokens=renderer.stop_tokens, group=str(number)))
    return requests


def make_sample(request: GenerateRequest, generation: Generation) -> Sample:
    """What was sampled, with some advantage."""
    tokens = np.concatenate([request.prompt, generation.tokens])
    sampled = np.arange(len(tokens)) >= len(request.prompt)
    sample = demonstration_sample(request.request_id, "bench", tokens, sampled)
    logprobs = np.concatenate([np.zeros(len(request.prompt), np.float32), generation.logprobs])
    return replace(sample, group_id=request.group, behavior_logprobs=logprobs, advantages=sampled.astype(np.float32))


def as_table(parts: Sequence[Part]) -> str:
    lines = ["| part | sequences | sampled tokens/s, median | 95 % of repeats |", "|---|---|---|---|"]
    for part in parts:
        median, low, high = part.summary
        lines.append(f"| {part.name} | {part.num_sequences} | {median:.1f} | {low:.1f} to {high:.1f} |")
    return "\n".join(lines)


def as_json(config: RunConfig, parts: Sequence[Part]) -> str:
    rows = {}
    for part in parts:
        median, *range95 = part.summary
        rows[part.name] = {"sequences": part.num_sequences, "tokens_per_s": median, "range95": range95}
    return json.dumps({"model": config.model, "dtype": config.learner.dtype, "parts": rows}, indent=2)


if __name__ == "__main__":
    main()
