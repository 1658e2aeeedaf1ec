# SPDX-License-Identifier: Apache-2.0
"""Versioned policy weights: stored once per version, pulled by a worker when newer than its own."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, cast

from rollouts.distributed.weight_transport import (
    Array,
    Shapes,
    Stored,
    WeightTransport,
    bytes_of,
    check_shapes,
    from_stored,
    is_same,
    said_of,
    to_stored,
)
from rollouts.errors import SpecError

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
    keeps a part on each node that fetched it, so only parts that are new there travel. `origin`
    says who gave the weights, where it was not the coordinator's process.
    """

    version: int
    parts: tuple[WeightOffer, ...]
    origin: str | None = None

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
    """Weights of one policy that were stored, by whoever has them.

    Attributes:
      sizes      name -> bytes, of all arrays.
      names      Those that were stored, as `DeltaPlan.names_to_store` says.
      make_offer  Returns the offer of these, given a version.
      source     Whose weights they are, for `==`: parts are only shared between versions of one.
                   None for those of this process.
      number     By which the source knows this snapshot.
      origin     See `StoredWeights`.
    """

    sizes: Mapping[str, int]
    names: frozenset[str]
    make_offer: Callable[[int], WeightOffer]
    source: object = None
    number: int = 0
    origin: str | None = None


# what is stored of each policy's newest weights, of those that came from a source
PlansOf = Callable[[object], Mapping[str, "DeltaPlan"]]
# takes snapshots of some policies, by their names
TakeSnapshots = Callable[[PlansOf], Mapping[str, Snapshot]]


def take_over(policy: Policy, offer: WeightOffer) -> None:
    """Gives a policy the offered weights.

    A policy with a method `load_offer(offer)` decides itself what to fetch; any other gets the
    arrays through `load_weights`.
    """
    load_offer = getattr(policy, "load_offer", None)
    if callable(load_offer):
        load_offer(offer)
    else:
        load(policy, offer, offer.version)


def load(policy: Policy, offer: WeightOffer, version: int) -> None:
    """Gives a policy the arrays of an offer, as this version.

    Raises:
      SpecError: It does not take what a learner gave, who is named.
      Exception: What the policy raised.
    """
    weights = offer.fetch()
    try:
        policy.load_weights(weights, version)
    except Exception as error:
        origin = offer.origin if isinstance(offer, StoredWeights) else None
        if origin is None:
            raise
        raise SpecError(f"the policy does not take the weights of {origin}: {error!r}") from error


# the name of the policy where there is one agent
ONLY = ""


class WeightStore:
    """Numbers the published weights, 1, 2, ... by default, and keeps the newest. Thread-safe.

    Older versions are freed as soon as no call in flight offers them any more.

    `_publishing` is held while weights are stored, so that versions become visible in their order;
    `_lock` guards the rest, and is never held for long. Lock order: as here.

    Attributes:
      policies  Their names; None where they are not known here.
      shapes    policy -> name -> shape, of those whose weights are known: others are refused.
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
        self.policies: tuple[str, ...] | None = (ONLY,)
        self.shapes: Mapping[str, Shapes] = {}
        self._transport = transport
        self._make_offer = make_offer
        self._publishing = threading.Lock()
        self._lock = threading.Lock()
        self._latest: WeightOffer | None = None
        # of each policy that was published
        self._parts: dict[str, DeltaParts] = {}
        self._offers: dict[str, WeightOffer] = {}
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
          SpecError: a value is not numeric, a finite number does not fit the store's dtype, or
            names or shapes are not those of the policy.
        """
        return self._publish({ONLY: weights}, statistics)

    def publish_from(
        self, take: TakeSnapshots, statistics: Mapping[str, RunningStatistics] | None = None
    ) -> int:
        """Publishes what somebody else stores; returns the version.

        Args:
          take: Stores them. What it raises leaves the newest version as it was.
          statistics: See `publish`.
        """
        with self._publishing:
            return self._keep(take(self._plans_of), statistics)

    def _publish(
        self,
        weights: Mapping[str, Mapping[str, Array | Tensor]],
        statistics: Mapping[str, RunningStatistics] | None,
    ) -> int:
        stored = {}
        for policy, own in weights.items():
            with said_of(policy):
                check_shapes(own, self.shapes.get(policy))
                stored[policy] = to_stored(own, self._transport.dtype)
        with self._publishing:
            snapshots = {policy: self._take(policy, own) for policy, own in stored.items()}
            return self._keep(snapshots, statistics)

    def _take(self, policy: str, stored: Mapping[str, Stored]) -> Snapshot:
        """Makes a snapshot of weights of this process, which `_keep` copies."""
        plan = self._plans_of(None).get(policy)
        names = frozenset(stored)
        if plan is not None:
            names = plan.names_to_store(stored, self._parts[policy].fetch_stored())
        return Snapshot(
            sizes={name: bytes_of(value) for name, value in stored.items()},
            names=names,
            make_offer=lambda version: self._make_offer(
                version, cast(Weights, {name: stored[name] for name in stored if name in names})
            ),
        )

    def _plans_of(self, source: object) -> dict[str, DeltaPlan]:
        return {
            policy: parts.plan() for policy, parts in self._parts.items() if parts.source == source
        }

    def _keep(
        self,
        snapshots: Mapping[str, Snapshot],
        statistics: Mapping[str, RunningStatistics] | None,
    ) -> int:
        """Makes the next version of snapshots of some policies; the others keep what they have."""
        latest = self._latest
        version = self._transport.first_version if latest is None else latest.version + 1
        # before anything changes: an offer that cannot be made leaves all as it was
        parts = {
            policy: self._parts.get(policy, DeltaParts()).followed_by(version, snapshot)
            for policy, snapshot in snapshots.items()
        }
        for policy, own in parts.items():
            self._offers[policy] = StoredWeights(version, own.offers, snapshots[policy].origin)
        if self._transport.delta:
            self._parts |= parts
        offer = self._offer(version, self._offers)
        with self._lock:
            self._latest = WithStatistics(offer, dict(statistics)) if statistics else offer
            self._published_bytes += sum(
                one.sizes[name] for one in snapshots.values() for name in one.names
            )
        return version

    def _offer(self, version: int, offers: Mapping[str, WeightOffer]) -> WeightOffer:
        """Makes an offer of the newest of each policy."""
        return offers[ONLY]


MAX_PARTS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaPlan:
    """What is stored of the version before, in numbers: small, and fit to travel.

    Attributes:
      homes       name -> number of the part that has its array; empty where nothing is stored.
      part_bytes  Of each part.
      base        The source's number of that version's snapshot.
    """

    homes: Mapping[str, int] = field(default_factory=dict)
    part_bytes: tuple[int, ...] = ()
    base: int = 0

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


@dataclass(frozen=True, slots=True, eq=False)
class DeltaParts:
    """What is stored of a policy's newest weights, each array in the part in which it last changed.

    A part is dropped when a later one replaced all its arrays. `source` and `number`: see
    `Snapshot`, of the newest.
    """

    homes: Mapping[str, _Part] = field(default_factory=dict)
    parts: tuple[_Part, ...] = ()
    source: object = None
    number: int = 0

    @property
    def offers(self) -> tuple[WeightOffer, ...]:
        """Of the parts, in the order of their versions."""
        return tuple(part.offer for part in self.parts)

    def plan(self) -> DeltaPlan:
        """Says what is stored."""
        return DeltaPlan(
            homes={name: self.parts.index(part) for name, part in self.homes.items()},
            part_bytes=tuple(part.num_bytes for part in self.parts),
            base=self.number,
        )

    def followed_by(self, version: int, snapshot: Snapshot) -> DeltaParts:
        """Returns what is stored when a version was added."""
        homes, parts = dict(self.homes), self.parts
        if snapshot.source != self.source or snapshot.sizes.keys() != homes.keys():
            homes, parts = {}, ()
        if snapshot.names or not parts:
            num_bytes = sum(snapshot.sizes[name] for name in snapshot.names)
            part = _Part(snapshot.make_offer(version), num_bytes)
            homes |= dict.fromkeys(snapshot.names, part)
            live = {part, *homes.values()}
            parts = tuple(sorted(live, key=lambda part: part.offer.version))
        return DeltaParts(homes, parts, snapshot.source, snapshot.number)

    def fetch_stored(self) -> dict[str, Stored]:
        """Returns the arrays of the newest version, as they are stored."""
        parts = {part: part.offer.fetch() for part in self.parts}
        return {name: cast(Stored, parts[home][name]) for name, home in self.homes.items()}


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    offer: WeightOffer
    num_bytes: int
