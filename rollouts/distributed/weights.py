# SPDX-License-Identifier: Apache-2.0
"""Versioned policy weights: stored once per version, pulled by a worker when newer than its own."""

from __future__ import annotations

import copy
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np

from rollouts.distributed.weight_transport import (
    Array,
    Stored,
    Way,
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
        """Returns the arrays, which may be read-only: load_weights copies them.

        Or tensors of a GPU, where they came so: see `WeightTransport.tensor_transport`.
        """
        ...


class Pulls:
    """Counts the ways in which this process got weights. Not thread-safe."""

    def __init__(self) -> None:
        """Begins at none."""
        self._counts: Counter[Way] = Counter()

    def add(self, way: Way) -> None:
        """Counts one."""
        self._counts[way] += 1

    def take(self) -> dict[str, int]:
        """Returns what was counted since the last call."""
        counts, self._counts = self._counts, Counter()
        return {way: count for way, count in counts.items()}


pulls = Pulls()


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Snapshot:
    """Weights that were stored elsewhere, by whoever has them.

    Attributes:
      sizes      name -> bytes, of all arrays.
      names      Those that were stored, as `DeltaPlan.names_to_store` says.
      make_offer  Returns the offer of these, given a version.
    """

    sizes: Mapping[str, int]
    names: frozenset[str]
    make_offer: Callable[[int], WeightOffer]


# told what of the version before is stored where, takes a snapshot
TakeSnapshot = Callable[["DeltaPlan"], Snapshot]


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

    `_publishing` is held while weights are stored, so that versions become visible in their order;
    `_lock` guards the rest, and is never held for long. Lock order: as here.
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
        self._publishing = threading.Lock()
        self._lock = threading.Lock()
        self._latest: WeightOffer | None = None
        self._parts = DeltaParts()
        # whose weights the parts are: None for those of this process
        self._source: object = None
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
        with self._publishing:
            version = self._next_version()
            if self._transport.delta:
                plan = self._plan_of(None)
                before = self._parts.fetch_stored() if plan.homes else {}
                names = plan.names_to_store(stored, before)
            else:
                names = frozenset(stored)
            snapshot = Snapshot(
                sizes={name: bytes_of(value) for name, value in stored.items()},
                names=names,
                make_offer=lambda version: self._make_offer(
                    version, cast(Weights, {name: stored[name] for name in stored if name in names})
                ),
            )
            is_plain = all(isinstance(value, np.ndarray) for value in stored.values())
            return self._keep(version, snapshot, statistics, is_plain=is_plain)

    def publish_from(
        self,
        source: object,
        take: TakeSnapshot,
        statistics: Mapping[str, RunningStatistics] | None = None,
    ) -> int:
        """Publishes what somebody else stores; returns the version.

        Args:
          source: Whose weights they are, for `==`: parts are only shared between versions of one.
          take: Stores them. What it raises leaves the newest version as it was.
          statistics: See `publish`.
        """
        with self._publishing:
            snapshot = take(self._plan_of(source))
            return self._keep(self._next_version(), snapshot, statistics, is_plain=False)

    def _next_version(self) -> int:
        latest = self._latest
        return self._transport.first_version if latest is None else latest.version + 1

    def _plan_of(self, source: object) -> DeltaPlan:
        """Says what is stored of the version before, which is nothing where it had another source.

        That version's parts stay until the new one is there.
        """
        if source != self._source:
            self._parts, self._source = DeltaParts(), source
        return self._parts.plan()

    def _keep(
        self,
        version: int,
        snapshot: Snapshot,
        statistics: Mapping[str, RunningStatistics] | None,
        *,
        is_plain: bool,
    ) -> int:
        if self._transport.delta:
            parts, num_bytes = self._parts.add(version, snapshot)
            offer: WeightOffer = StoredWeights(version, parts)
        else:
            offer = snapshot.make_offer(version)
            offer = offer if is_plain else StoredWeights(version, (offer,))
            num_bytes = sum(snapshot.sizes.values())
        with self._lock:
            self._latest = WithStatistics(offer, dict(statistics)) if statistics else offer
            self._published_bytes += num_bytes
        return version


MAX_PARTS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaPlan:
    """What is stored of the version before, in numbers: small, and fit to travel.

    Attributes:
      homes       name -> number of the part that has its array; empty where nothing is stored.
      part_bytes  Of each part.
    """

    homes: Mapping[str, int] = field(default_factory=dict)
    part_bytes: tuple[int, ...] = ()

    def names_to_store(
        self, stored: Mapping[str, Stored], before: Mapping[str, Stored]
    ) -> frozenset[str]:
        """Returns which arrays of the next version must be stored: those that are not as before.

        When the parts would have more than twice the bytes of the weights, or be more than
        MAX_PARTS, that is all.
        """
        names = frozenset(stored)
        if names != before.keys() or names != self.homes.keys():
            return names
        changed = {name for name in names if not is_same(stored[name], before[name])}
        kept = {self.homes[name] for name in names - changed}
        num_bytes = sum(self.part_bytes[part] for part in kept)
        num_bytes += sum(bytes_of(stored[name]) for name in changed)
        full_bytes = sum(map(bytes_of, stored.values()))
        if changed and (len(kept) >= MAX_PARTS or num_bytes > 2 * full_bytes):
            return names
        return frozenset(changed)


class DeltaParts:
    """What is stored of the newest version, each array in the part in which it last changed.

    A part is dropped when a later one replaced all its arrays. Not thread-safe.
    """

    def __init__(self) -> None:
        """Begins with nothing stored."""
        self._homes: dict[str, _Part] = {}
        self._parts: tuple[_Part, ...] = ()

    def plan(self) -> DeltaPlan:
        """Says what is stored."""
        return DeltaPlan(
            homes={name: self._parts.index(part) for name, part in self._homes.items()},
            part_bytes=tuple(part.num_bytes for part in self._parts),
        )

    def add(self, version: int, snapshot: Snapshot) -> tuple[tuple[WeightOffer, ...], int]:
        """Adds a version; returns the parts that make it up and the bytes stored for it."""
        num_bytes = sum(snapshot.sizes[name] for name in snapshot.names)
        if snapshot.sizes.keys() != self._homes.keys():
            self._homes, self._parts = {}, ()
        if snapshot.names or not self._parts:
            part = _Part(snapshot.make_offer(version), num_bytes)
            self._homes |= dict.fromkeys(snapshot.names, part)
            live = {part, *self._homes.values()}
            self._parts = tuple(sorted(live, key=lambda part: part.offer.version))
        return tuple(part.offer for part in self._parts), num_bytes

    def fetch_stored(self) -> dict[str, Stored]:
        """Returns the arrays of the newest version, as they are stored."""
        parts = {part: part.offer.fetch() for part in self._parts}
        return {name: cast(Stored, parts[home][name]) for name, home in self._homes.items()}


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    offer: WeightOffer
    num_bytes: int
