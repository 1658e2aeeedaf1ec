# SPDX-License-Identifier: Apache-2.0
"""Versioned policy weights: stored once per version, pulled by a worker when newer than its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from rollouts.errors import SpecError

if TYPE_CHECKING:
    import ray

Weights = Mapping[str, np.ndarray]


class WeightOffer(Protocol):
    """A version that a worker may pull; the offer itself is small and travels with every call."""

    @property
    def version(self) -> int: ...

    def fetch(self) -> Weights:
        """Returns the arrays, which may be read-only: load_weights copies them."""
        ...


@dataclass(frozen=True, slots=True)
class LocalWeights:
    """An offer inside one process."""

    version: int
    weights: Weights

    def fetch(self) -> Weights:
        return self.weights


@dataclass(frozen=True, slots=True)
class RayWeights:
    """An offer in Ray's object store; Ray does not fetch a reference that sits inside an object."""

    version: int
    ref: ray.ObjectRef[Weights]

    def fetch(self) -> Weights:
        import ray

        weights: Weights = ray.get(self.ref)
        return weights


def local_offer(version: int, weights: Weights) -> WeightOffer:
    """Copies the weights: a learner that updates its tensors in place changes nothing here."""
    return LocalWeights(version, {name: np.array(value) for name, value in weights.items()})


def ray_offer(version: int, weights: Weights) -> WeightOffer:
    """Puts the weights into the object store, which copies them once."""
    import ray

    return RayWeights(version, ray.put(dict(weights)))


class WeightStore:
    """Numbers the published weights 1, 2, ... and keeps the newest. Thread-safe."""

    def __init__(self, make_offer: Callable[[int, Weights], WeightOffer] = local_offer) -> None:
        self._make_offer = make_offer
        self._lock = threading.Lock()
        self._latest: WeightOffer | None = None

    @property
    def latest(self) -> WeightOffer | None:
        """The newest offer, None before the first `publish`."""
        with self._lock:
            return self._latest

    @property
    def version(self) -> int:
        """The newest version, 0 before the first `publish`."""
        latest = self.latest
        return 0 if latest is None else latest.version

    def publish(self, weights: Weights) -> int:
        """Stores the weights as the next version and returns its number.

        Args:
          weights: name -> numpy array, any shapes and dtypes but object.
        Raises:
          SpecError: a value is not a numeric numpy array.
        """
        for name, value in weights.items():
            if not isinstance(value, np.ndarray) or value.dtype.hasobject:
                raise SpecError(
                    f"weights[{name!r}] is {type(value).__name__}, expected a numeric numpy array: "
                    "pass policy.weights()"
                )
        # held while storing, so that versions become visible in their order
        with self._lock:
            version = 1 if self._latest is None else self._latest.version + 1
            self._latest = self._make_offer(version, weights)
            return version
