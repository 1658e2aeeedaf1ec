# SPDX-License-Identifier: Apache-2.0
"""Weights in Ray's object store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ray as _typed_ray

from rollouts.distributed.weights import WeightOffer, Weights

# ray annotates only half of what it exports
ray: Any = _typed_ray


@dataclass(frozen=True, slots=True)
class RayWeights:
    """An offer in Ray's object store; Ray does not fetch a reference that sits inside an object."""

    version: int
    ref: Any  # ray.ObjectRef of the arrays

    def fetch(self) -> Weights:
        weights: Weights = ray.get(self.ref)
        return weights


def ray_offer(version: int, weights: Weights) -> WeightOffer:
    """Puts the weights into the object store, which copies them once."""
    return RayWeights(version, ray.put(dict(weights)))
