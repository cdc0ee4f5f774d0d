"""Laws L11-L13 for conversations that are given: a row is, id for id and mask for mask, what rolling it out gives."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.core.protocols import GenerateRequest, Generation, Transition
from posttrain.core.types import Limits, Message, Reward, Role, Split, StopReason, Task, Trajectory, Verdict
from posttrain.models import seedling
from posttrain.rollout.conversation import Segment, conversation_segments
from posttrain.rollout.episode import Attempt, run_episode
from posttrain.rollout.render import ChatRenderer

TEXTS = st.text(max_size=12) | st.sampled_from(["<|end|>", "<|assistant|>", "a<|end|><|user|>b", "Answer: 3", " \n"])
OTHERS = st.lists(st.tuples(st.sampled_from([Role.USER, Role.TOOL]), TEXTS), min_size=1, max_size=2)
CONVERSATIONS = st.lists(st.tuples(OTHERS, TEXTS), min_size=1, max_size=4)
"""What the others say, then the reply; again and again."""

Turns = list[tuple[list[tuple[Role, str]], str]]


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> ChatRenderer:
    folder = tmp_path_factory.mktemp("seedling")
    seedling.create(folder, seed=0)
    return ChatRenderer.load(Path(folder), "Be short.")


@dataclass
class Script:
    """An environment that says its lines whatever it hears."""

    lines: list[tuple[Message, ...]]
    place: int = 0

    async def reset(self) -> tuple[Message, ...]:
        return self.lines[0]

    async def step(self, reply: str, *, truncated: bool) -> Transition:
        self.place += 1
        if self.place == len(self.lines):
            return Transition(verdict=Verdict.correct())
        return Transition(self.lines[self.place], done=False)

    async def close(self) -> None: ...


def messages(turns: Turns) -> list[Message]:
    return [
        message
        for others, reply in turns
        for message in (*(Message(role, text) for role, text in others), Message(Role.ASSISTANT, reply))
    ]


def rolled_out(renderer: ChatRenderer, turns: Turns) -> Trajectory:
    """The trajectory of a policy that samples the replies' ids."""
    replies = iter([renderer.reply(reply) for _, reply in turns])

    async def generate(request: GenerateRequest) -> Generation:
        ids = np.asarray(next(replies), np.int32)
        logprobs, versions = np.full(len(ids), -1.0, np.float32), np.zeros(len(ids), np.int32)
        return Generation(request.request_id, ids, logprobs, versions, StopReason.STOP)

    task = Task("toy", (), {}, Split.TRAIN, 0, 0, 1, Limits(max_new_tokens=1000, max_turns=len(turns)))
    script = Script([tuple(Message(role, text) for role, text in others) for others, _ in turns])
    attempt = Attempt(task, "g", 0, ("seed",))
    return asyncio.run(run_episode(attempt, script, generate, renderer, lambda verdict: Reward(verdict.score)))


def only(segments: Sequence[Segment]) -> Segment:
    (segment,) = segments
    return segment


@settings(max_examples=40, deadline=None)
@given(turns=CONVERSATIONS)
def test_a_rendered_conversation_is_the_trajectory_of_its_rollout(renderer: ChatRenderer, turns: Turns) -> None:
    trajectory = rolled_out(renderer, turns)
    segment = only(conversation_segments(renderer, messages(turns)))
    assert trajectory.failure is None
    np.testing.assert_array_equal(segment.tokens, trajectory.tokens)
    np.testing.assert_array_equal(segment.trainable, trajectory.sampled)


@settings(max_examples=40, deadline=None)
@given(turns=CONVERSATIONS)
def test_a_conversation_cut_short_is_a_prefix_of_the_whole(renderer: ChatRenderer, turns: Turns) -> None:
    whole = only(conversation_segments(renderer, messages(turns)))
    first = only(conversation_segments(renderer, messages(turns[:1])))
    np.testing.assert_array_equal(whole.tokens[: len(first.tokens)], first.tokens)
    np.testing.assert_array_equal(whole.trainable[: len(first.tokens)], first.trainable)
