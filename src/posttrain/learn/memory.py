"""The flat vectors that all ranks of a learner share: weights, optimizer state, gradients, a kept reference.

One copy of each on the machine, frozen weights included, except for gradients, of which each rank has its own. It only
allocates and copies.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from posttrain.learn.optimizer import OptimizerState
from posttrain.learn.parameters import FlatParameters
from posttrain.learn.peers import Peers
from posttrain.learn.policy import wide_dtype


class Memory:
    """Made by all ranks together; the model's trained parameters are views of `weights` afterwards."""

    def __init__(self, parameters: FlatParameters, dtype: torch.dtype, peers: Peers) -> None:
        self._parameters = parameters
        self._peers = peers
        size, wide = parameters.num_elements, wide_dtype(dtype)
        self.weights = peers.allocate(size, dtype)  # [P], what the model computes with
        master = self.weights if wide == dtype else peers.allocate(size, wide)
        self.state = OptimizerState(master, peers.allocate(size, wide), peers.allocate(size, wide))
        self.gradients = [peers.allocate(size, wide) for _ in range(peers.world_size)]  # [ranks] of [P]
        self.reference: Tensor | None = None  # [P], in the dtype of `weights`
        if peers.rank == 0:
            parameters.copy_to(self.weights)
            self.state.master[:] = self.weights
        peers.gather("share the weights")
        parameters.bind(self.weights)
        parameters.accumulate_gradients_in(self.gradients[peers.rank])

    def keep_reference(self) -> None:
        """The present weights, as they are now, become the reference."""
        reference = self._allocated_reference()
        if self._peers.rank == 0:
            reference[:] = self.weights
        self._peers.gather("keep a reference")

    def vectors(self, names: set[str] | None = None) -> dict[str, Tensor]:
        """What a checkpoint holds, by name; `names` are those of a checkpoint to be read."""
        if names is not None:
            self.reference = self._allocated_reference() if "reference" in names else None
        vectors = {
            "master": self.state.master,
            "first_moment": self.state.first_moment,
            "second_moment": self.state.second_moment,
        }
        return vectors if self.reference is None else {**vectors, "reference": self.reference}

    def _allocated_reference(self) -> Tensor:
        if self.reference is None:
            self.reference = self._peers.allocate(self._parameters.num_elements, self.weights.dtype)
        return self.reference


def share_frozen(model: nn.Module, dtype: torch.dtype, peers: Peers) -> None:
    """The model's frozen parameters become rank 0's, which all ranks see: one copy on the machine."""
    frozen = FlatParameters(model, trained=False)
    if peers.world_size == 1 or not frozen.num_elements:
        return
    flat = peers.allocate(frozen.num_elements, dtype)
    if peers.rank == 0:
        frozen.copy_to(flat)
    peers.gather("share the frozen weights")
    frozen.bind(flat)
