# SPDX-License-Identifier: Apache-2.0
"""Sends a worker's actor the tensors of weights that are in a learner's actor."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import ray as _typed_ray

from rollouts.cluster.ray_weights import DirectWeights
from rollouts.distributed.agent_policies import PoliciesOffer
from rollouts.distributed.weights import StoredWeights, WithStatistics

# ray annotates only half of what it exports
ray: Any = _typed_ray

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SentWeights(DirectWeights):
    """The driver's form of an offer: `tensors` refers to what is in the learner, and stays here."""

    tensors: Any

    def __reduce__(self) -> Any:
        # Ray cannot pass such references on inside of objects
        return DirectWeights, (self.version, self.ref, self.name, self.layout)


class Sender:
    """Sends a worker's actor the tensors of offers; remembers which it was sent. No method blocks.

    What a failed transfer should have brought is in the object store; the first warns of why.
    """

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self._sent: set[str] = set()
        self._has_warned = False

    def send(self, offer: Any) -> None:
        """Sends what is new of an offer. To be called inside `connected`."""
        parts = {part.name: part.tensors for part in _sent_parts(offer)}
        for name in parts.keys() - self._sent:
            ref = self._actor.keep_weights.remote(name, parts[name], list(parts))
            ref.future().add_done_callback(self._on_sent)
        self._sent = set(parts)

    def _on_sent(self, transfer: Future[Any]) -> None:
        """Warns of the first transfer that failed. Deaths of workers are told of elsewhere."""
        error = transfer.exception()
        if error is None or self._has_warned or isinstance(error, ray.exceptions.RayActorError):
            return
        self._has_warned = True
        _log.warning(
            "a worker takes weights from the object store, as they did not come directly: %r",
            getattr(error, "cause", error),
        )


def _sent_parts(offer: Any) -> list[SentWeights]:
    """Returns what an offer has of them, of all policies."""
    if isinstance(offer, SentWeights):
        return [offer]
    inner: Iterable[Any] = ()
    if isinstance(offer, WithStatistics):
        inner = (offer.offer,)
    elif isinstance(offer, StoredWeights):
        inner = offer.parts
    elif isinstance(offer, PoliciesOffer):
        inner = offer.parts.values()
    return [part for one in inner for part in _sent_parts(one)]
