# SPDX-License-Identifier: Apache-2.0
"""Versioned policy weights: stored once per version, pulled by a worker when newer than its own."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np

from rollouts.distributed.weight_transport import (
    Array,
    Stored,
    WeightTransport,
    bytes_of,
    from_stored,
    is_same,
    to_stored,
)

if TYPE_CHECKING:
    from torch import Tensor

    from rollouts.policy import Policy
    from rollouts.pool.statistics import RunningStatistics

Weights = Mapping[str, Array]
MakeOffer = Callable[[int, Weights], "WeightOffer"]


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


def local_offer(version: int, weights: Weights) -> WeightOffer:
    """Copies the weights: a learner that updates its tensors in place changes nothing here."""
    return LocalWeights(version, {name: copy.deepcopy(value) for name, value in weights.items()})


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """An offer of what WeightStore made of the weights: narrowed, or in parts.

    The parts are in the order of their versions; a later one replaces the arrays it also has. Ray
    keeps a part on each node that fetched it, so only parts that are new there travel.
    """

    version: int
    parts: tuple[WeightOffer, ...]

    def fetch(self) -> Weights:
        return from_stored(self.fetch_stored())

    def fetch_stored(self) -> dict[str, Stored]:
        """Returns the arrays as they are stored."""
        stored: dict[str, Stored] = {}
        for part in self.parts:
            stored.update(cast(Mapping[str, Stored], part.fetch()))
        return stored


@dataclass(frozen=True, slots=True, eq=False)
class WithStatistics:
    """An offer that running statistics come with, by "observation" and "reward"."""

    offer: WeightOffer
    statistics: Mapping[str, RunningStatistics]

    @property
    def version(self) -> int:
        return self.offer.version

    def fetch(self) -> Weights:
        return self.offer.fetch()


def take_over(policy: Policy, offer: WeightOffer) -> None:
    """Gives a policy the offered weights.

    A policy with a method `load_offer(offer)` decides itself what to fetch; any other gets the
    arrays through `load_weights`.
    """
    load_offer = getattr(policy, "load_offer", None)
    if callable(load_offer):
        load_offer(offer)
    else:
        policy.load_weights(offer.fetch(), offer.version)


class WeightStore:
    """Numbers the published weights, 1, 2, ... by default, and keeps the newest. Thread-safe.

    Older versions are freed as soon as no call in flight offers them any more.
    """

    def __init__(
        self,
        make_offer: MakeOffer = local_offer,
        transport: WeightTransport = WeightTransport(),
    ) -> None:
        """Makes an empty store.

        Args:
          make_offer: Stores arrays and returns the offer of them: `local_offer` or `ray_offer`.
          transport: What is stored of the weights, and from which version on they are counted.
        """
        self._transport = transport
        self._make_offer = make_offer
        self._lock = threading.Lock()
        self._latest: WeightOffer | None = None
        self._parts = DeltaParts(make_offer)
        self._published_bytes = 0

    @property
    def latest(self) -> WeightOffer | None:
        """The newest offer, None before the first `publish`. Never waits for a `publish`."""
        return self._latest

    @property
    def version(self) -> int:
        """The newest version, 0 before the first `publish`."""
        latest = self.latest
        return 0 if latest is None else latest.version

    @property
    def published_bytes(self) -> int:
        """Bytes that all `publish` stored: in 16 bits where narrowed, without unchanged parts."""
        with self._lock:
            return self._published_bytes

    def publish(
        self,
        weights: Mapping[str, Array | Tensor],
        statistics: Mapping[str, RunningStatistics] | None = None,
    ) -> int:
        """Stores a copy of the weights as the next version and returns its number.

        Args:
          weights: name -> numpy array or torch tensor, such as `module.state_dict()`; any shapes,
            any numeric dtypes. The memory of contiguous CPU tensors is copied once, into the store;
            tensors of a GPU are copied to pinned memory first. bfloat16 tensors come back as
            float32 arrays of the same values.
          statistics: What workers that normalise go on from.
        Raises:
          SpecError: a value is not numeric, or a finite number does not fit the store's dtype.
        """
        stored = to_stored(weights, self._transport.dtype)
        # held while storing, so that versions become visible in their order
        with self._lock:
            latest = self._latest
            version = self._transport.first_version if latest is None else latest.version + 1
            if self._transport.delta:
                parts, num_bytes = self._parts.store(version, stored)
                self._latest = StoredWeights(version, parts)
            else:
                offer = self._make_offer(version, cast(Weights, stored))
                is_plain = all(isinstance(value, np.ndarray) for value in stored.values())
                self._latest = offer if is_plain else StoredWeights(version, (offer,))
                num_bytes = sum(map(bytes_of, stored.values()))
            if statistics:
                self._latest = WithStatistics(self._latest, dict(statistics))
            self._published_bytes += num_bytes
            return version


class DeltaParts:
    """What is stored of the newest version, each array in the part in which it last changed.

    A part is dropped when a later one replaced all its arrays. When the parts have more than twice
    the bytes of the weights, or are more than `MAX_PARTS`, everything is stored anew in one. Not
    thread-safe.
    """

    MAX_PARTS = 8

    def __init__(self, make_offer: MakeOffer) -> None:
        self._make_offer = make_offer
        self._homes: dict[str, _Part] = {}
        self._parts: tuple[_Part, ...] = ()

    def store(self, version: int, stored: dict[str, Stored]) -> tuple[tuple[WeightOffer, ...], int]:
        """Stores what changed; returns the parts that make up the version and the bytes stored."""
        before = self._fetch_stored()
        if stored.keys() != before.keys():
            self._homes, self._parts, before = {}, (), {}
        changed = {
            name: value
            for name, value in stored.items()
            if name not in before or not is_same(value, before[name])
        }
        kept = {name: self._homes[name] for name in stored.keys() - changed.keys()}
        full_bytes = sum(map(bytes_of, stored.values()))
        kept_bytes = sum(part.num_bytes for part in set(kept.values()))
        num_bytes = sum(map(bytes_of, changed.values()))
        is_crowded = len(set(kept.values())) >= self.MAX_PARTS
        if changed and (is_crowded or kept_bytes + num_bytes > 2 * full_bytes):
            changed, kept, num_bytes = stored, {}, full_bytes
        if changed or not self._parts:
            part = _Part(self._make_offer(version, cast(Weights, changed)), num_bytes)
            self._homes = kept | dict.fromkeys(changed, part)
            live = {part, *self._homes.values()}
            self._parts = tuple(sorted(live, key=lambda part: part.offer.version))
        return tuple(part.offer for part in self._parts), num_bytes

    def _fetch_stored(self) -> dict[str, Stored]:
        parts = {part: part.offer.fetch() for part in self._parts}
        return {name: cast(Stored, parts[home][name]) for name, home in self._homes.items()}


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    offer: WeightOffer
    num_bytes: int
