"""Reinforcement learning against a verifier, all of it, from top to bottom of one file.

    tasks ─▶ prompts ─▶ G replies each ─▶ verify ─▶ rewards ─▶ advantages ─▶ policy gradient ─▶ AdamW ─▶ repeat

`posttrain train` does the same with engines and learners in processes of their own, packed batches, many domains,
sandboxes, evaluation and checkpoints. In its plainest setting (float32, the reference engine, one learner, one sample
a row, no staleness) it gives the weights that this file gives, bit for bit: `tests/e2e/test_one_file.py` holds both to
it. So where the order of a sum is spelled out below, it is the library's order.

Only what is not the idea is imported from there: tasks and their checks, the chat template, the model's folder, a hash.

    python examples/one_file.py --steps 20
"""

from __future__ import annotations

import argparse
import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from posttrain.core.protocols import Domain
from posttrain.core.seeding import stable_hash
from posttrain.core.types import Limits, Split, Task, Verdict
from posttrain.domains.function import FunctionDomain
from posttrain.models.catalog import resolve
from posttrain.models.tokenizer import ChatTokenizer
from posttrain.verifiers.numeric import verify_number

CLIP_LOW, CLIP_HIGH = 0.2, 0.28
MAX_IMPORTANCE_WEIGHT = 2.0
MAX_GRAD_NORM = 1.0
SUM_BLOCK = 256  # of the vocabulary: summed in float32, the blocks' sums are added in float64
NORM_BLOCK = 1 << 16  # of the gradient, likewise
MASK_64 = (1 << 64) - 1


@dataclass(frozen=True)
class Options:
    steps: int = 3
    groups_per_step: int = 8
    """P: tasks a step."""
    group_size: int = 8
    """G: replies a task."""
    learning_rate: float = 1e-3
    seed: int = 0


@dataclass
class Reply:
    """One attempt at a task. N is the number of sampled tokens, the end of the turn among them."""

    prompt: list[int]
    tokens: list[int]  # [N]
    behavior_logprobs: Tensor  # [N], of the policy at the moment of sampling
    reward: float = 0.0
    advantage: float = 0.0

    @property
    def ids(self) -> Tensor:
        return torch.tensor([self.prompt + self.tokens])  # [1, T]


# ── The world: a task and what a reply to it is worth ────────────────────────────────────────────────────────────────


def make_domain() -> FunctionDomain:
    """Additions of a number below 100 and a digit."""
    rows = [(f"Compute {a} + {b}. End with 'Answer: N'.", a + b) for a in range(1, 100) for b in range(1, 10)]
    return FunctionDomain(rows, reward, name="additions", limits=Limits(max_new_tokens=12))


def reward(task: Task, reply: str) -> Verdict | float:
    """1 for the right answer; else a half for any digit, so that random weights have something to learn from."""
    verdict = verify_number(reply, task.hidden["answer"])
    return verdict if verdict.score else 0.5 * any(map(str.isdecimal, reply))


def verify(domain: Domain, task: Task, reply: str) -> float:
    """The environment's verdict; environments are asynchronous because others run programs or talk for many turns."""
    step = asyncio.run(domain.environment(task, sandbox=None).step(reply, truncated=False))
    assert step.verdict is not None
    return step.verdict.score


# ── Sampling: a token is a function of its request's seed, its position and the logits, whatever else is running ─────


@torch.inference_mode()
def sample(model: Any, prompt: list[int], stop_tokens: Sequence[int], max_new_tokens: int, seed: int) -> Reply:
    """At temperature 1, from the whole distribution."""
    tokens: list[int] = []
    logprobs: list[float] = []
    while len(tokens) < max_new_tokens and not (tokens and tokens[-1] in stop_tokens):
        ids = prompt + tokens
        logits = model(input_ids=torch.tensor([ids]), use_cache=False, logits_to_keep=1).logits[0, -1]
        token, logprob = draw(logits, uniform(seed, position=len(ids)))
        tokens.append(token)
        logprobs.append(logprob)
    return Reply(prompt, tokens, torch.tensor(logprobs))


def draw(logits_V: Tensor, number: float) -> tuple[int, float]:
    """Inverse CDF: the first token whose cumulative probability exceeds `number`; and its log-prob."""
    weights = (logits_V - logits_V.max()).exp()
    blocks = torch.split(weights, SUM_BLOCK)
    cumulative = torch.stack([block.sum() for block in blocks]).double().cumsum(0)
    total = cumulative[-1]
    target = number * total
    index = int(torch.searchsorted(cumulative, target, right=True))
    before = cumulative[index - 1] if index else 0.0
    inside = torch.searchsorted(blocks[index].double().cumsum(0), target - before, right=True)
    token = index * SUM_BLOCK + min(int(inside), len(blocks[index]) - 1)
    return token, float((logits_V[token].double() - logits_V.max().double() - total.log()).float())


def uniform(seed: int, position: int) -> float:
    """In (0, 1), with 52 random bits: SplitMix64 of a counter."""
    key, counter = (seed + 0x9E3779B97F4A7C15) & MASK_64, (position + 1) * 0xD1342543DE82EF95 & MASK_64
    return ((splitmix64(splitmix64(key) ^ splitmix64(counter)) >> 12) + 0.5) * 2.0**-52


def splitmix64(state: int) -> int:
    state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & MASK_64
    state = (state ^ state >> 27) * 0x94D049BB133111EB & MASK_64
    return state ^ state >> 31


# ── Credit: how much better than its siblings was a reply? ───────────────────────────────────────────────────────────


def set_advantages(group: Sequence[Reply]) -> None:
    """Reward minus the group's mean. Taken from the first reward before: equal rewards then give exactly 0."""
    shifted = [reply.reward - group[0].reward for reply in group]
    mean = math.fsum(shifted) / len(shifted)
    for reply, value in zip(group, shifted, strict=True):
        reply.advantage = value - mean


# ── Learning: make what was better likelier ──────────────────────────────────────────────────────────────────────────


def accumulate_gradient(model: Any, reply: Reply, num_loss_tokens: int) -> None:
    """Add one reply's share of ∇L to the parameters' `.grad`.

    L = −Σ min(r A, clip(r) A) / num_loss_tokens over all tokens of the step, with r = π(token) / π_behavior(token).
    As ∇r = r ∇log π, a token that is not clipped contributes −r A ∇log π, and ∇log π with respect to its logits is
    one-hot(token) − softmax(logits).
    """
    predicts_from = slice(len(reply.prompt) - 1, None)  # the last prompt token predicts the first sampled one
    hidden = model.base_model(input_ids=reply.ids[:, :-1], use_cache=False).last_hidden_state[0, predicts_from]
    logits = hidden @ model.get_output_embeddings().weight.t()  # [N, V]
    tokens = torch.tensor(reply.tokens)[:, None]
    with torch.no_grad():
        table = logits.log_softmax(dim=-1)
        ratio = (table.gather(1, tokens)[:, 0] - reply.behavior_logprobs).exp()  # [N], near 1: nothing is stale here
        clipped = ratio * reply.advantage > ratio.clamp(1.0 - CLIP_LOW, 1.0 + CLIP_HIGH) * reply.advantage
        credit = torch.tensor(reply.advantage) * (1.0 / num_loss_tokens) * ratio.clamp(max=MAX_IMPORTANCE_WEIGHT)
        one_hot = torch.zeros_like(table).scatter_(1, tokens, 1.0)
        gradient = (table.exp() - one_hot) * credit.masked_fill(clipped, 0.0)[:, None]
    logits.backward(gradient)


def clip_gradient(parameters: Sequence[Tensor]) -> float:
    """Scale the whole gradient down to MAX_GRAD_NORM; returns its norm before."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    norm = math.sqrt(math.fsum(float(piece.dot(piece)) for piece in torch.split(flat, NORM_BLOCK)))
    if norm > MAX_GRAD_NORM:
        for gradient in gradients:
            gradient.mul_(MAX_GRAD_NORM / norm)
    return norm


def learn(model: Any, optimizer: torch.optim.Optimizer, batch: Sequence[Reply]) -> float:
    """One step; returns the gradient's norm. Summed over tokens and divided once: long replies are not discounted."""
    num_loss_tokens = sum(len(reply.tokens) for reply in batch)
    for reply in sorted(batch, key=lambda reply: -reply.ids.numel()):  # longest first
        accumulate_gradient(model, reply, num_loss_tokens)
    norm = clip_gradient(optimizer.param_groups[0]["params"])
    optimizer.step()
    optimizer.zero_grad()
    return norm


# ── The loop ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def train(folder: Path, domain: Domain, options: Options) -> Any:
    """The trained model. `folder` is a Hugging Face folder with a chat template."""
    tokenizer = ChatTokenizer.load(folder)
    model, optimizer = load(folder, options.learning_rate)
    for step in range(options.steps):
        groups: list[list[Reply]] = []
        for position in range(options.groups_per_step):
            task = domain.task(Split.TRAIN, options.seed, step * options.groups_per_step + position, level=1)
            prompt = tokenizer.prompt_ids(task.prompt)
            group: list[Reply] = []
            for sibling in range(options.group_size):
                seed = stable_hash("rollout", options.seed, f"rl-{step:05d}-{position:04d}", sibling, 0)
                reply = sample(model, prompt, tokenizer.stop_tokens, task.limits.max_new_tokens, seed)
                reply.reward = verify(domain, task, tokenizer.decode(reply.tokens))
                group.append(reply)
            set_advantages(group)
            groups.append(group)
        # Where all siblings did equally well there is nothing to learn: their tokens do not count either.
        batch = [reply for group in groups if any(reply.advantage for reply in group) for reply in group]
        norm = learn(model, optimizer, batch) if batch else 0.0
        mean = math.fsum(reply.reward for group in groups for reply in group) / sum(map(len, groups))
        print(
            f"step {step + 1}: reward {mean:.4f}, {len(batch)} replies with signal, gradient norm {norm:.4f}",
            flush=True,
        )
    return model


def load(folder: Path, learning_rate: float) -> tuple[Any, torch.optim.Optimizer]:
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)  # comes with dropout off
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()  # out of the file's mapping, where products round by address
    parameters = sorted(model.parameters(), key=lambda parameter: parameter.ndim < 2)  # matrices first
    return model, torch.optim.AdamW(parameters, learning_rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Reinforcement learning in one file.")
    parser.add_argument("--model", default="seedling-random", help="a built-in name, a Hugging Face folder or a hub id")
    parser.add_argument("--steps", type=int, default=Options.steps)
    parser.add_argument("--learning-rate", type=float, default=Options.learning_rate)
    parser.add_argument("--seed", type=int, default=Options.seed)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # small matrices: a second thread waits more than it computes
    options = Options(steps=arguments.steps, learning_rate=arguments.learning_rate, seed=arguments.seed)
    train(resolve(arguments.model), make_domain(), options)


if __name__ == "__main__":
    main()
