"""One call's requests from prompts to finished sequences: who is in the batch at each step, and who holds which page.

Every prompt of a group is computed and stored once. All rows decode together; a finished row leaves the batch and the
next waiting one takes its place. Rows are admitted in the order of the requests, siblings together, so that the same
call takes the same steps and gives the same bits. It does no arithmetic on hidden states itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

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

    def __init__(self, model: Llama, version: int, max_rows: int, requests: Sequence[GenerateRequest]) -> None:
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
        self._last_tokens = np.zeros(len(rows), dtype=np.int64)
        self._own_pages = np.zeros((len(rows), max((num_pages_of(row.limit) for row in rows), default=0)), np.int32)
        self._prompt_pages = np.zeros(
            (len(self._prompts), num_pages_of(int(self._prompt_lengths.max(initial=0)))), np.int32
        )
        shape = model.shape
        self.pool = PagePool(
            shape.num_layers, shape.num_kv_heads, shape.head_dim, model.operations.dtype, 2 * min(max_rows, len(rows))
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
        """One more token for every row: those that run feed their last one, new ones start from their prompt."""
        admitted = self._admit()
        hidden = [self._decode(self._running)] if len(self._running) else []
        for number in admitted:
            start = self._prompts[self._rows[number].prompt].hidden
            assert start is not None
            hidden.append(start[None])
        self._running = np.concatenate([self._running, admitted])
        if len(self._running):
            self._sample(torch.cat(hidden))

    def _admit(self) -> Ints:
        """Fill the free rows from the queue; prompts that nobody computed yet are computed now."""
        count = min(self._max_rows - len(self._running), len(self._waiting))
        admitted = np.array([self._waiting.pop() for _ in range(count)], dtype=np.int64)
        needed = dict.fromkeys(self._prompt_of[admitted].tolist())
        together: list[int] = []
        for number in [number for number in needed if self._prompts[number].hidden is None]:
            if together and self._prompt_lengths[[*together, number]].sum() > _PREFILL_TOKENS:
                self._prefill(together)
                together = []
            together.append(number)
        if together:
            self._prefill(together)
        return admitted

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
        own = self._num_sampled[rows]  # the last one is fed now: what the row attends to of its own
        page, offset = (own - 1) // PAGE, (own - 1) % PAGE
        turning = rows[offset == 0]
        self._own_pages[turning, page[offset == 0]] = self.pool.take(len(turning))
        slots = self._own_pages[rows, page].astype(np.int64) * PAGE + offset
        prompts, prompt_of_row = np.unique(self._prompt_of[rows], return_inverse=True)
        lengths = self._prompt_lengths[prompts]
        plan = DecodePlan(
            prompt_of_row=_int32(prompt_of_row),
            prompt_pages=_int32(self._prompt_pages[prompts, : num_pages_of(int(lengths.max()))]),
            prompt_lengths=_int32(lengths),
            own_pages=_int32(self._own_pages[rows, : num_pages_of(int(own.max()))]),
            own_lengths=_int32(own),
        )
        positions = self._prompt_lengths[self._prompt_of[rows]] + own - 1
        tokens = torch.from_numpy(self._last_tokens[rows])
        return self._model.decode(tokens, torch.from_numpy(positions), torch.from_numpy(slots), self.pool, plan)

    def _sample(self, hidden: Tensor) -> None:
        rows = self._running
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
        self._last_tokens[rows] = tokens.numpy()
        self._record(tokens.tolist(), logprobs.tolist())

    def _record(self, tokens: list[int], logprobs: list[float]) -> None:
        """Append to every row; rows that end give their pages back and leave the batch."""
        going = np.ones(len(self._running), dtype=np.bool_)
        for place, number in enumerate(self._running.tolist()):
            row = self._rows[number]
            row.tokens.append(tokens[place])
            row.logprobs.append(logprobs[place])
            if tokens[place] in row.request.stop_tokens:
                row.stop = StopReason.STOP
            elif len(row.tokens) < row.limit:
                continue
            going[place] = False
            self._release(number, row)
        self._running = self._running[going]

    def _release(self, number: int, row: _Row) -> None:
        fed = len(row.tokens) - 1  # the last token was sampled and never fed
        self.pool.give_back(self._own_pages[number, : num_pages_of(fed)].tolist())
        prompt = self._prompts[row.prompt]
        prompt.users -= 1
        if prompt.users == 0:
            self.pool.give_back(prompt.pages)
            prompt.pages = []
            prompt.hidden = None

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
