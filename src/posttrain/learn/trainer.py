"""One rank of a learner: samples in, a better policy out.

Every rank is given all samples of a step, computes its share, and leaves with the same weights. The loss is
Σ loss weight · term over all trainable tokens of the step, divided once by the samples' Σ weight (law L2), so the
result does not depend on micro-batches, rows, ranks or order (law L1). It is blind to the algorithm: it owns no
prompts, rewards or advantages, and writes no logs.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from posttrain.core.errors import ConfigError, NonFiniteError, UserError
from posttrain.core.protocols import UNCHANGED, StageSpec, StepControls, StepMetrics
from posttrain.core.registry import fill
from posttrain.core.types import FloatArray, Sample
from posttrain.learn import checkpoint
from posttrain.learn.export import export, refuse_renamed, weights_fingerprint
from posttrain.learn.layout import LayoutOptions, layout
from posttrain.learn.lora_config import LoraConfig
from posttrain.learn.memory import Memory, share_frozen
from posttrain.learn.objective import Objective
from posttrain.learn.optimizer import OptimizerOptions, ShardedAdamW
from posttrain.learn.pack import Batch, collate
from posttrain.learn.parameters import FlatParameters
from posttrain.learn.peers import Peers
from posttrain.learn.policy import Policy, compute_dtype, wide_dtype
from posttrain.learn.tally import Tally
from posttrain.losses.base import LossInputs, Terms
from posttrain.workers import heap

MAX_IDS_SHOWN = 5


@dataclass
class _Stage:
    spec: StageSpec
    objective: Objective
    options: OptimizerOptions
    optimizer: ShardedAdamW
    step: int = 0
    """Steps done, empty ones included."""


class Trainer:
    """Synchronous; lives in a learner process. All ranks call `begin_stage`, `step`, `save` and `load` together."""

    def __init__(
        self,
        model: str | Path,
        dtype: str = "bfloat16",
        rank: int = 0,
        world_size: int = 1,
        rendezvous: str = "",
        row_tokens: int = 0,
        micro_batch_tokens: int = 4096,
        recompute: bool = False,
        critic: bool = False,
        lora: LoraConfig | None = None,
        seed: int = 0,
        peer_timeout_s: float = 600.0,
    ) -> None:
        """`model` is a Hugging Face folder; `rendezvous` a folder of their own that all ranks are given.

        `row_tokens` and `micro_batch_tokens` as in `LayoutOptions`, `recompute`, `critic`, `lora` and `seed` as in
        `Policy`. Raises `ModelError`, `ConfigError`.
        """
        self._dtype = dtype
        self._policy = Policy(
            Path(model), compute_dtype(dtype), recompute=recompute, critic=critic, lora=lora, seed=seed
        )
        self._layout = LayoutOptions(micro_batch_tokens, row_tokens, self._policy.hidden_size)
        self._parameters = FlatParameters(self._policy.model)
        refuse_renamed(self._policy.folder, self._policy.parameters())
        self._peers = Peers(rank, world_size, rendezvous, peer_timeout_s)
        with self._peers.together():
            self._memory = Memory(self._parameters, self._policy.trained_dtype, self._peers)
            share_frozen(self._policy.model, self._policy.dtype, self._peers)
        heap.give_back(0)  # the weights as they were loaded, which `Memory` and rank 0 have copied
        self._stage: _Stage | None = None

    def begin_stage(self, spec: StageSpec) -> None:
        """A new loss, schedule and optimizer; the weights go on from where they are, in full precision.

        Raises `ConfigError`, `UnknownNameError`.
        """
        stage = self._make_stage(spec)
        with self._peers.together():
            stage.optimizer.forget()
            if spec.keep_reference:
                self._memory.keep_reference()
            else:
                self._memory.reference = None
            self._peers.gather("begin a stage")
        self._stage = stage

    def step(self, samples: Sequence[Sample], controls: StepControls = UNCHANGED) -> StepMetrics:
        """One optimizer step. Raises `NonFiniteError`, `UserError`; the weights are then as before.

        Without any loss token there is no update and the values say `empty_step` (law L4); the schedule goes on.
        """
        started = time.perf_counter()
        stage = self._stage_for(samples, controls)
        global_weight = math.fsum(sample.weight for sample in samples)
        rate = controls.learning_rate_factor * stage.options.learning_rate_at(
            max(0, stage.step - controls.further_update), stage.spec.total_steps
        )
        norm, tally = 0.0, Tally()
        if global_weight != 0.0:
            with self._peers.together():
                tally = self._backward(stage.objective, samples, global_weight, controls)
                norm = stage.optimizer.update(self._memory.gradients, self._memory.weights, rate)
            if not math.isfinite(norm):
                raise NonFiniteError(f"the gradient's norm is {norm}, of {_listed([s.trajectory_id for s in samples])}")
        stage.step += not controls.further_update
        values = tally.values() | {
            "empty_step": float(global_weight == 0.0),
            "samples_without_loss_tokens": float(sum(sample.num_loss_tokens == 0 for sample in samples)),
        }
        wall_s = time.perf_counter() - started
        return StepMetrics(tally.loss, norm, rate, tally.num_loss_tokens, tally.num_computed_tokens, values, wall_s)

    def _stage_for(self, samples: Sequence[Sample], controls: StepControls) -> _Stage:
        if self._stage is None:
            raise UserError("a step needs a stage: call begin_stage first")
        self._refuse_too_long(samples)
        objective = self._stage.objective
        objective.check_factors(controls.loss_factors)
        if objective.needs_reference and any(s.reference_logprobs is None for s in samples):
            raise UserError("the loss compares with a reference, and samples came without reference_logprobs")
        if objective.needs_critic and any(s.values is None or s.returns is None for s in samples):
            raise UserError("the loss trains a critic, and samples came without values and returns")
        return self._stage

    def refresh_reference(self) -> None:
        """The present weights become the reference policy. Raises `UserError` where the stage keeps none."""
        if self._memory.reference is None:
            raise UserError("no reference policy was kept: begin the stage with keep_reference = true")
        with self._peers.together():
            self._memory.keep_reference()

    def logprobs(self, samples: Sequence[Sample], *, reference: bool = False) -> list[FloatArray]:
        """`[T]` for each sample: log-probs of its trainable tokens at its temperature, 0 elsewhere.

        The ranks do not meet in this: each may be given other samples.
        """
        self._refuse_too_long(samples)
        memory = self._memory
        if not reference:
            return self._logprobs(samples)
        if memory.reference is None:
            raise UserError("no reference policy was kept: begin the stage with keep_reference = true")
        with self._parameters.bound(memory.reference, back_to=memory.weights):
            return self._logprobs(samples)

    def values(self, samples: Sequence[Sample]) -> list[FloatArray]:
        """`[T]` for each sample: the critic's value before each trainable token, 0 elsewhere. The ranks do not meet.

        Raises `UserError` where there is no critic.
        """
        self._refuse_too_long(samples)
        return self._of_each_token(samples, self._policy.values)

    def export(self, folder: Path) -> str:
        """The policy as a Hugging Face folder in the dtype it computes in; returns its fingerprint (law L17).

        An adapter is merged. Called on one rank. In a folder that was exported to before, only the weights are
        replaced.
        """
        return export(folder, self._policy.folder, self._policy.tensors())

    def export_adapter(self, folder: Path) -> None:
        """The adapter alone, in peft's format. Called on one rank. Raises `UserError` where there is none."""
        if self._policy.adapter is None:
            raise UserError("all weights are trained, so there is no adapter to export: give the learner lora = {}")
        self._policy.adapter.export(folder)

    def save(self, folder: Path) -> None:
        """All that `load` needs to go on bit for bit (law L21), with any number of ranks."""
        stage = self._stage
        state = checkpoint.TrainerState(
            dtype=self._dtype,
            stage=stage.spec if stage else None,
            step=stage.step if stage else 0,
            num_updates=stage.optimizer.num_updates if stage else 0,
            frozen=self._frozen,
        )
        with self._peers.together():
            if self._peers.rank == 0:
                checkpoint.write(folder, state, self._parameters, self._memory.vectors())
            self._peers.gather("save a checkpoint")

    def load(self, folder: Path) -> None:
        """Go on from `save`; the stage, if one had begun, goes on too. Raises `StoreError`, `ConfigError`."""
        state, names = checkpoint.read_state(folder)
        if state.dtype != self._dtype:
            raise ConfigError(f"{folder} was saved by a {state.dtype} trainer and this one computes in {self._dtype}")
        if state.frozen != self._frozen:
            raise ConfigError(f"{folder} was not saved beside the weights that are frozen here: resume with its model")
        with self._peers.together():
            vectors = self._memory.vectors(names)
            if self._peers.rank == 0:
                for name, flat in vectors.items():
                    checkpoint.read_vector(folder, name, self._parameters, flat)
                self._memory.weights[:] = self._memory.state.master
            self._peers.gather("load a checkpoint")
        self._stage = None
        if state.stage is not None:
            self._stage = self._make_stage(state.stage)
            self._stage.step = state.step
            self._stage.optimizer.num_updates = state.num_updates

    def close(self) -> None:
        self._peers.close()

    @functools.cached_property
    def _frozen(self) -> str:
        """As in `TrainerState`."""
        return "" if self._policy.adapter is None else weights_fingerprint(self._policy.parameters())

    def _make_stage(self, spec: StageSpec) -> _Stage:
        options: OptimizerOptions = fill(OptimizerOptions, spec.optimizer, where="optimizer")
        optimizer = ShardedAdamW(options, self._parameters, self._memory.state, self._peers)
        return _Stage(spec, Objective.build(spec.losses), options, optimizer)

    def _backward(
        self, objective: Objective, samples: Sequence[Sample], global_weight: float, controls: StepControls
    ) -> Tally:
        """This rank's share of the gradient into its buffer; returns the tally of all ranks."""
        self._memory.gradients[self._peers.rank].zero_()
        mine = Tally()
        for batch in self._batches(samples, self._peers.world_size, self._peers.rank):
            terms = objective.terms(self._loss_inputs(batch), controls.loss_factors)
            self._backward_one(terms, batch, global_weight, samples, mine)
            if mine.non_finite:
                break
        tally = Tally.merged(self._peers.gather("finish the backward pass", mine.plain()))
        if tally.non_finite:
            raise NonFiniteError(f"the loss is not finite for {_listed(tally.non_finite)}")
        return tally

    def _loss_inputs(self, batch: Batch) -> LossInputs:
        outputs = self._policy.outputs(batch)
        return LossInputs(
            trainer_logprobs=outputs.logprobs,
            behavior_logprobs=batch.behavior_logprobs,
            advantages=batch.advantages,
            segments=batch.owners,
            num_segments=len(batch.samples),
            reference_logprobs=batch.reference_logprobs,
            entropy=outputs.entropy,
            values=outputs.values,
            old_values=batch.values,
            returns=batch.returns,
        )

    def _backward_one(
        self, terms: Terms, batch: Batch, global_weight: float, samples: Sequence[Sample], tally: Tally
    ) -> None:
        shares = batch.loss_weights / global_weight
        objective = sum((term * shares for term in terms.terms.values()), start=torch.zeros_like(shares))
        bad = ~torch.isfinite(objective.detach())
        if bad.any():
            owners = sorted(set(batch.owners[bad].tolist()))
            tally.non_finite += [samples[batch.samples[owner]].trajectory_id for owner in owners]
            return
        torch.autograd.backward(objective.sum())
        tally.add(terms, shares, batch.num_computed_tokens)

    def _logprobs(self, samples: Sequence[Sample]) -> list[FloatArray]:
        return self._of_each_token(samples, lambda batch: self._policy.logprobs(batch)[0])

    @torch.no_grad()
    def _of_each_token(self, samples: Sequence[Sample], measure: Callable[[Batch], Tensor]) -> list[FloatArray]:
        results = [np.zeros(len(sample.tokens), np.float32) for sample in samples]
        for batch in self._batches(samples, world_size=1, rank=0):
            values = measure(batch)
            for owner, index in enumerate(batch.samples):
                own = batch.owners == owner
                results[index][batch.places[own].numpy()] = values[own].float().numpy()
        return results

    def _batches(self, samples: Sequence[Sample], world_size: int, rank: int) -> Iterator[Batch]:
        for micro_batch in layout(samples, world_size, self._layout)[rank]:
            yield collate(samples, micro_batch, wide_dtype(self._policy.dtype))

    def _refuse_too_long(self, samples: Sequence[Sample]) -> None:
        for sample in samples:
            if len(sample.tokens) > self._policy.max_context:
                raise UserError(
                    f"sample {sample.trajectory_id} has {len(sample.tokens)} tokens and the model's context is "
                    f"{self._policy.max_context}"
                )


def _listed(ids: Sequence[str]) -> str:
    unique = sorted(set(ids))
    more = f" and {len(unique) - MAX_IDS_SHOWN} more" if len(unique) > MAX_IDS_SHOWN else ""
    return f"sample{'s' if len(unique) > 1 else ''} {', '.join(unique[:MAX_IDS_SHOWN])}{more}"
