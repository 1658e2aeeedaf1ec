# SPDX-License-Identifier: Apache-2.0
"""Weights in Ray: in its object store, and on their direct way from a learner to a worker."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import ray as _typed_ray

from rollouts.cluster.flat_weights import Layout, unpack
from rollouts.distributed.weight_transport import pulls
from rollouts.distributed.weights import WeightOffer, Weights

if TYPE_CHECKING:
    from torch import Tensor

# ray annotates only half of what it exports
ray: Any = _typed_ray


@dataclass(frozen=True, slots=True)
class RayWeights:
    """An offer in Ray's object store; Ray does not fetch a reference that sits inside an object."""

    version: int
    ref: Any  # ray.ObjectRef of the arrays

    def fetch(self) -> Weights:
        weights: Weights = ray.get(self.ref)
        pulls.add("object_store")
        return weights


@dataclass(frozen=True, slots=True)
class DirectWeights(RayWeights):
    """An offer that also comes directly, as tensors that are sent to workers before they ask.

    `name` is that of this transfer, `layout` of its buffer. Where the tensors did not come, as the
    learner died or a worker is new, the object store has them.
    """

    name: str
    layout: Layout

    def fetch(self) -> Weights:
        buffer = _arrived.pop(self.name, None)
        if buffer is None:
            # by name: super() knows the class that slots=True replaced
            return RayWeights.fetch(self)
        pulls.add("direct")
        return cast(Weights, unpack(self.layout, buffer))


def ray_offer(version: int, weights: Weights) -> WeightOffer:
    """Puts the weights into the object store, which copies them once."""
    return RayWeights(version, ray.put(dict(weights)))


# of a worker's process: name of a transfer -> what came and was not fetched yet
_arrived: dict[str, Tensor] = {}


def keep(name: str, buffer: Tensor, live: Collection[str]) -> None:
    """Keeps what came for an offer until it is fetched.

    Args:
      name: Of the transfer.
      buffer: On any device.
      live: Names of the transfers that may still be fetched; the others are freed.
    """
    for other in _arrived.keys() - set(live):
        del _arrived[other]
    # a GPU's may be the learner's own memory
    _arrived[name] = buffer if buffer.device.type == "cpu" else buffer.clone()
