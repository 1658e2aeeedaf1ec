# SPDX-License-Identifier: Apache-2.0
"""Weights in Ray: in its object store, and on their direct way from a learner to a worker."""

from __future__ import annotations

import logging
from collections.abc import Collection
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import ray as _typed_ray

from rollouts.workers.offers import WeightOffer, WeightPart, Weights
from rollouts.workers.on_ray.flat_weights import Layout, unpack
from rollouts.workers.weight_transport import pulls

if TYPE_CHECKING:
    from torch import Tensor

# ray annotates only half of what it exports
ray: Any = _typed_ray

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WeightTransfer:
    """The weights of a part as one tensor, which is sent to workers before they fetch the part.

    Attributes:
      name     A name that no other transfer has.
      layout   The layout of the buffer.
      tensors  The driver's reference to the buffer in the learner's process; None elsewhere.
    """

    name: str
    layout: Layout
    tensors: Any = None

    def __reduce__(self) -> Any:
        # Ray cannot send references to tensors inside of objects
        return WeightTransfer, (self.name, self.layout)


@dataclass(frozen=True, slots=True)
class RayWeights:
    """A part in Ray's object store; Ray does not fetch a reference that sits inside an object.

    With a `transfer` the weights are also sent directly. If they did not arrive, because the
    learner died or the worker is new, they are fetched from the object store.
    """

    version: int
    ref: Any  # ray.ObjectRef of the arrays
    transfer: WeightTransfer | None = None

    def fetch(self) -> Weights:
        if self.transfer is not None:
            buffer = _arrived.pop(self.transfer.name, None)
            if buffer is not None:
                pulls.add("direct")
                return cast(Weights, unpack(self.transfer.layout, buffer))
        weights: Weights = ray.get(self.ref)
        pulls.add("object_store")
        return weights


def ray_part(version: int, weights: Weights) -> WeightPart:
    """Puts the weights into the object store, which copies them once."""
    return RayWeights(version, ray.put(dict(weights)))


# in a worker's process: name of a transfer -> its buffer, which was not fetched yet
_arrived: dict[str, Tensor] = {}


def keep(name: str, buffer: Tensor, live: Collection[str]) -> None:
    """Keeps the buffer of a transfer until it is fetched.

    Args:
      name: Name of the transfer.
      buffer: The bytes, on any device.
      live: Names of the transfers that may still be fetched; the others are freed.
    """
    for other in _arrived.keys() - set(live):
        del _arrived[other]
    # a buffer on a GPU is copied, because it may be the learner's own memory
    _arrived[name] = buffer if buffer.device.type == "cpu" else buffer.clone()


class Sender:
    """Sends each tensor of offers to a worker's actor once. No method blocks.

    If a transfer fails, the worker fetches from the object store; the first failure is a warning.
    """

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self._sent: set[str] = set()
        self._has_warned = False

    def send(self, offer: WeightOffer) -> None:
        """Sends tensors that the last offer did not have. To be called inside `connected`."""
        tensors = {
            part.transfer.name: part.transfer.tensors
            for stored in offer.policies.values()
            for part in stored.parts
            if isinstance(part, RayWeights) and part.transfer is not None
        }
        for name in tensors.keys() - self._sent:
            ref = self._actor.keep_weights.remote(name, tensors[name], list(tensors))
            ref.future().add_done_callback(self._on_sent)
        self._sent = set(tensors)

    def _on_sent(self, transfer: Future[Any]) -> None:
        """Warns of the first transfer that failed. Deaths of workers are reported elsewhere."""
        error = transfer.exception()
        if error is None or self._has_warned or isinstance(error, ray.exceptions.RayActorError):
            return
        self._has_warned = True
        _log.warning(
            "a worker takes weights from the object store, as they did not come directly: %r",
            getattr(error, "cause", error),
        )
