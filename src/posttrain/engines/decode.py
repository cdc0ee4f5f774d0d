"""One call's requests from prompts to finished sequences: who is in the batch at each step, and who holds which page.

Every prompt of a group is computed and stored once. All rows decode together; a finished row leaves the batch and the
next waiting one takes its place. Rows are admitted in the order of the requests, siblings together, so that the same
call takes the same steps and gives the same bits. It does no arithmetic on hidden states itself.

Where the pages are limited and run out, the row admitted last gives its own back and waits again (preemption by
recomputation, Kwon et al., arXiv:2309.06180). It goes on by feeding the tokens that it had, one a step, beside the
other rows; its next token is drawn with the same random number as it would have been.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from posttrain.core.errors import EngineError
from posttrain.core.protocols import GenerateRequest, Generation
from posttrain.core.types import StopReason
from posttrain.engines.llama import Llama
from posttrain.engines.operations import DecodePlan
from posttrain.engines.pages import PAGE, PagePool, num_pages_of
from posttrain.engines.sampling import sample, uniforms
from posttrain.engines.synchronous import Deadline, token_limit

_PREFILL_TOKENS = 2048
"""Prompts are computed together up to this many tokens; a longer one alone. Bounds the memory of activations."""
_LOGIT_ROWS = 128
"""Logits exist for this many rows at a time: 25 MB at a vocabulary of 49,152."""

Ints = npt.NDArray[np.int64]


@dataclass(eq=False)
class _Prompt:
    tokens: Tensor  # [P] int64
    users: int = 0
    """Rows that wait or run; at zero its pages are given back."""
    running: int = 0
    """Of those the ones that run; at zero its pages may be taken for others, and it is computed again."""
    pages: list[int] = field(default_factory=list)
    hidden: Tensor | None = None  # [H] of its last token; None until it is computed


@dataclass(eq=False)
class _Row:
    request: GenerateRequest
    prompt: int
    """Index into the call's prompts."""
    limit: int
    stop: StopReason
    """Why the row ends; until a stop token comes, why it will end at its limit."""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


class Decoding:
    """One call. Rows are numbered in the order of admission; arrays `[N]` are indexed by that number."""

    def __init__(
        self,
        model: Llama,
        version: int,
        max_rows: int,
        requests: Sequence[GenerateRequest],
        max_pages: int | None = None,
    ) -> None:
        """Raises `EngineError` where `max_pages` cannot hold one of the sequences alone."""
        self._model = model
        self._version = version
        self._max_rows = max_rows
        self._requests = requests
        self._prompts, self._rows, self._order = _arrange(requests, model.shape.max_context)
        rows = self._rows
        self._waiting = [number for number, row in enumerate(rows) if row.limit > 0][::-1]  # the next one is last
        self._running: Ints = np.empty(0, dtype=np.int64)
        self._prompt_of = np.array([row.prompt for row in rows], dtype=np.int64)
        self._prompt_lengths = np.array([len(prompt.tokens) for prompt in self._prompts], dtype=np.int64)
        self._seeds = np.array([row.request.seed for row in rows], dtype=np.uint64)
        self._temperatures = np.array([row.request.temperature for row in rows], dtype=np.float32)
        self._num_sampled = np.zeros(len(rows), dtype=np.int64)
        self._num_fed = np.zeros(len(rows), dtype=np.int64)
        """Own tokens whose keys and values are stored: all but the last sampled one, fewer after a preemption."""
        self._next_tokens = np.zeros(len(rows), dtype=np.int64)
        """What each row is fed next."""
        self.num_preemptions = 0
        self._own_pages = np.zeros((len(rows), max((num_pages_of(row.limit) for row in rows), default=0)), np.int32)
        self._prompt_pages = np.zeros(
            (len(self._prompts), num_pages_of(int(self._prompt_lengths.max(initial=0)))), np.int32
        )
        shape = model.shape
        if max_pages is not None:
            self._refuse_too_long(max_pages)
        num_pages = 2 * min(max_rows, len(rows))
        self.pool = PagePool(
            shape.num_layers, shape.num_kv_heads, shape.head_dim, model.operations.dtype, num_pages, max_pages
        )

    @torch.inference_mode()
    def run(self, deadline: Deadline) -> list[Generation]:
        """In the order of the requests. Raises `DeadlineExceededError` between two steps."""
        total = len(self._rows)
        while self._waiting or len(self._running):
            deadline.check(total - len(self._waiting) - len(self._running), total)
            self._step()
        return [self._generation(self._rows[number]) for number in self._order]

    def _step(self) -> None:
        """One more token for every row: those that run are fed, new ones start from their prompt."""
        self._make_room()
        admitted = self._admit()
        fed = self._running
        hidden = self._decode(fed) if len(fed) else None
        fresh = admitted[self._num_sampled[admitted] == 0]
        caught_up = self._num_fed[fed] == self._num_sampled[fed]  # the others are still fed what they had
        states = [] if hidden is None else [hidden[torch.from_numpy(caught_up)]]
        for number in fresh:
            start = self._prompts[self._rows[number].prompt].hidden
            assert start is not None
            states.append(start[None])
        self._running = np.concatenate([self._running, admitted])
        assert len(self._running), "rows wait, none runs and none may start: this would go on for ever"
        sampling = np.concatenate([fed[caught_up], fresh])
        if len(sampling):
            self._sample(sampling, torch.cat(states))

    def _make_room(self) -> None:
        """Preempt rows, the last first, until every row that runs can store its next token."""
        while not self._has(self._num_turning(self._running)):
            self._preempt(self._running[-1])

    def _num_turning(self, rows: Ints) -> int:
        """How many of them begin a page with their next token."""
        return int((self._num_fed[rows] % PAGE == 0).sum())

    def _preempt(self, number: int) -> None:
        self.num_preemptions += 1
        self._give_back_own(number)
        self._num_fed[number] = 0
        self._next_tokens[number] = self._rows[number].tokens[0]
        self._prompts[self._rows[number].prompt].running -= 1
        self._running = self._running[:-1]
        self._waiting.append(number)

    def _admit(self) -> Ints:
        """Fill the free rows from the queue; prompts that nobody computed yet, or no longer, are computed now."""
        admitted: list[int] = []
        needed: list[int] = []
        promised = 0
        while self._waiting and len(self._running) + len(admitted) < self._max_rows:
            index = self._rows[self._waiting[-1]].prompt
            prompt = self._prompts[index]
            absent = prompt.hidden is None and prompt.running == 0
            own = num_pages_of(len(prompt.tokens)) if absent else 0
            rows = len(self._running) + len(admitted) + 1  # each is left a page, or it would be preempted at once
            if not self._has(promised + own + rows, keep=index):
                break
            admitted.append(self._waiting.pop())
            prompt.running += 1
            promised += own
            if absent:
                needed.append(index)
        together: list[int] = []
        for index in needed:
            if together and self._prompt_lengths[[*together, index]].sum() > _PREFILL_TOKENS:
                self._prefill(together)
                together = []
            together.append(index)
        if together:
            self._prefill(together)
        return np.array(admitted, dtype=np.int64)

    def _has(self, count: int, keep: int = -1) -> bool:
        """Whether `count` pages can be taken. Prompts that wait for a row to run give theirs first, except `keep`."""
        if not self.pool.has(count):
            for index, prompt in enumerate(self._prompts):
                if prompt.running == 0 and index != keep:
                    self._give_back(prompt)
        return self.pool.has(count)

    def _prefill(self, numbers: list[int]) -> None:
        prompts = [self._prompts[number] for number in numbers]
        slots = []
        for number, prompt in zip(numbers, prompts, strict=True):
            prompt.pages = self.pool.take(num_pages_of(len(prompt.tokens)))
            self._prompt_pages[number, : len(prompt.pages)] = prompt.pages
            places = torch.arange(len(prompt.tokens))
            slots.append(torch.tensor(prompt.pages)[places // PAGE] * PAGE + places % PAGE)
        hidden = self._model.prefill([prompt.tokens for prompt in prompts], torch.cat(slots), self.pool)
        for prompt, last in zip(prompts, hidden, strict=True):
            prompt.hidden = last

    def _decode(self, rows: Ints) -> Tensor:
        """Feed each row its next token."""
        own = self._num_fed[rows]
        page, offset = own // PAGE, own % PAGE
        turning = rows[offset == 0]
        self._own_pages[turning, page[offset == 0]] = self.pool.take(len(turning))
        slots = self._own_pages[rows, page].astype(np.int64) * PAGE + offset
        prompts, prompt_of_row = np.unique(self._prompt_of[rows], return_inverse=True)
        lengths = self._prompt_lengths[prompts]
        plan = DecodePlan(
            prompt_of_row=_int32(prompt_of_row),
            prompt_pages=_int32(self._prompt_pages[prompts, : num_pages_of(int(lengths.max()))]),
            prompt_lengths=_int32(lengths),
            own_pages=_int32(self._own_pages[rows, : num_pages_of(int(own.max()) + 1)]),
            own_lengths=_int32(own + 1),
        )
        positions = self._prompt_lengths[self._prompt_of[rows]] + own
        tokens = torch.from_numpy(self._next_tokens[rows])
        hidden = self._model.decode(tokens, torch.from_numpy(positions), torch.from_numpy(slots), self.pool, plan)
        self._num_fed[rows] += 1
        for number in rows[self._num_fed[rows] < self._num_sampled[rows]]:
            self._next_tokens[number] = self._rows[number].tokens[self._num_fed[number]]
        return hidden

    def _sample(self, rows: Ints, hidden: Tensor) -> None:
        positions = self._prompt_lengths[self._prompt_of[rows]] + self._num_sampled[rows]
        numbers = torch.from_numpy(uniforms(self._seeds[rows], positions))
        temperatures = torch.from_numpy(self._temperatures[rows])
        parts = [
            sample(self._model.logits(part), temperature, number)
            for part, temperature, number in zip(
                hidden.split(_LOGIT_ROWS), temperatures.split(_LOGIT_ROWS), numbers.split(_LOGIT_ROWS), strict=True
            )
        ]
        tokens = torch.cat([part[0] for part in parts])
        logprobs = torch.cat([part[1] for part in parts])
        self._num_sampled[rows] += 1
        self._next_tokens[rows] = tokens.numpy()
        self._record(rows, tokens.tolist(), logprobs.tolist())

    def _record(self, rows: Ints, tokens: list[int], logprobs: list[float]) -> None:
        """Append to each row; rows that end give their pages back and leave the batch."""
        ended = []
        for number, token, logprob in zip(rows.tolist(), tokens, logprobs, strict=True):
            row = self._rows[number]
            row.tokens.append(token)
            row.logprobs.append(logprob)
            if token in row.request.stop_tokens:
                row.stop = StopReason.STOP
            elif len(row.tokens) < row.limit:
                continue
            ended.append(number)
            self._release(number, row)
        self._running = self._running[~np.isin(self._running, ended)]

    def _release(self, number: int, row: _Row) -> None:
        self._give_back_own(number)
        prompt = self._prompts[row.prompt]
        prompt.users -= 1
        prompt.running -= 1
        if prompt.users == 0:
            self._give_back(prompt)

    def _give_back_own(self, number: int) -> None:
        held = num_pages_of(int(self._num_fed[number]))
        self.pool.give_back(self._own_pages[number, :held].tolist())

    def _give_back(self, prompt: _Prompt) -> None:
        self.pool.give_back(prompt.pages)
        prompt.pages = []
        prompt.hidden = None

    def _refuse_too_long(self, max_pages: int) -> None:
        for row in self._rows:
            prompt = len(self._prompts[row.prompt].tokens)
            pages = num_pages_of(prompt) + num_pages_of(row.limit)
            if row.limit > 0 and pages > max_pages:
                raise EngineError(
                    f"request {row.request.request_id} may need {pages} pages of keys and values ({prompt} + "
                    f"{row.limit} tokens), and the engine's cache_mib allows {max_pages}: raise it"
                )

    def _generation(self, row: _Row) -> Generation:
        return Generation(
            request_id=row.request.request_id,
            tokens=np.asarray(row.tokens, dtype=np.int32),
            logprobs=np.asarray(row.logprobs, dtype=np.float32),
            versions=np.full(len(row.tokens), self._version, dtype=np.int32),
            stop=row.stop,
        )


def _arrange(requests: Sequence[GenerateRequest], max_context: int) -> tuple[list[_Prompt], list[_Row], list[int]]:
    """The distinct prompts, the rows in order of admission, and each request's row number."""
    prompts: list[_Prompt] = []
    known: dict[tuple[str, bytes], int] = {}
    members: list[list[int]] = []
    for index, request in enumerate(requests):
        tokens = np.ascontiguousarray(request.prompt, dtype=np.int64)
        number = known.get((request.group, tokens.tobytes())) if request.group else None
        if number is None:
            number = len(prompts)
            known[request.group, tokens.tobytes()] = number
            prompts.append(_Prompt(torch.from_numpy(tokens)))
            members.append([])
        members[number].append(index)
    rows: list[_Row] = []
    order = [0] * len(requests)
    for number, indices in enumerate(members):
        for index in indices:
            limit, stop = token_limit(requests[index], max_context)
            order[index] = len(rows)
            rows.append(_Row(requests[index], number, limit, stop))
            prompts[number].users += limit > 0
    return prompts, rows, order


def _int32(array: npt.NDArray[np.integer]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.int32))
