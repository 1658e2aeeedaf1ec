# SPDX-License-Identifier: Apache-2.0
"""Versioned policy weights: stored once per version, pulled by a worker when newer than its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from rollouts.errors import SpecError
from rollouts.workers.offers import (
    StoredWeights,
    WeightOffer,
    WeightPart,
    Weights,
    local_part,
)
from rollouts.workers.weight_transport import (
    ONLY,
    Shapes,
    Stored,
    WeightTransport,
    by_policy,
    bytes_of,
    check_shapes,
    is_same,
    said_of,
    to_stored,
)

if TYPE_CHECKING:
    from rollouts.envs.statistics import RunningStatistics

MakePart = Callable[[int, Weights], WeightPart]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Snapshot:
    """Weights of one policy; the process that has them also stores them.

    Attributes:
      sizes      name -> bytes, of all arrays.
      names      The arrays to store, as `DeltaPlan.names_to_store` returns them.
      make_part  Makes the part of a version from these.
      source     Origin of the weights, compared by `==`: versions share parts within one source.
                   None for this process.
      number     The number that the source gave to this snapshot.
      origin     See `StoredWeights`.
    """

    sizes: Mapping[str, int]
    names: frozenset[str]
    make_part: Callable[[int], WeightPart]
    source: object = None
    number: int = 0
    origin: str | None = None


# source -> the plan of each policy whose newest weights came from it
PlansOf = Callable[[object], Mapping[str, "DeltaPlan"]]
# a function that takes snapshots of some policies, by their names
TakeSnapshots = Callable[[PlansOf], Mapping[str, Snapshot]]


class WeightStore:
    """Numbers the published weights, 1, 2, ... by default, and keeps the newest. Thread-safe.

    Weights are kept by policy, and a version is that of all policies together. The policy of a
    single agent is `ONLY`, a name that callers need not give. Older versions are freed as soon as
    no call in flight offers them any more.

    `_publishing` is held while weights are stored, so that versions become visible in their order;
    `_lock` guards the rest, and is never held for long. Lock order: `_publishing`, then `_lock`.

    Attributes:
      policies  Their names; None until they are known here.
      shapes    policy -> name -> shape, where known: weights of other shapes are refused.
    """

    def __init__(
        self,
        make_part: MakePart = local_part,
        transport: WeightTransport = WeightTransport(),
        policies: Iterable[str] | None = (ONLY,),
    ) -> None:
        """Makes an empty store.

        Args:
          make_part: Stores arrays and returns a reference to them: `local_part` or `ray_part`.
          transport: The form in which weights are stored, and the number of the first version.
          policies: Their names; None where they are not known yet, see `learn_policies`.
        """
        self.policies = None if policies is None else tuple(policies)
        self.shapes: Mapping[str, Shapes] = {}
        self._transport = transport
        self._make_part = make_part
        self._publishing = threading.Lock()
        self._lock = threading.Lock()
        self._latest: WeightOffer | None = None
        # the parts of each policy that was published
        self._parts: dict[str, DeltaParts] = {}
        self._stored: dict[str, StoredWeights] = {}
        self._published_bytes = 0

    def learn_policies(self, policies: Iterable[str]) -> None:
        """Notes the policies that a worker has, unless they are known. Never waits."""
        if self.policies is None:
            self.policies = tuple(policies)

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
        """Bytes that all `publish` calls stored: narrowed arrays in 16 bits, unchanged ones not."""
        with self._lock:
            return self._published_bytes

    def publish(
        self, weights: Mapping[str, Any], statistics: Mapping[str, RunningStatistics] | None = None
    ) -> int:
        """Stores a copy of the weights as the next version and returns its number.

        Args:
          weights: name -> numpy array or torch tensor, such as `module.state_dict()`; any shapes,
            any numeric dtypes. The memory of contiguous CPU tensors is copied once, into the store;
            tensors of a GPU are copied to pinned memory first. bfloat16 tensors come back as
            float32 arrays of the same values. With several agents: policy -> such weights; policies
            that are left out keep theirs.
          statistics: The statistics with which workers that normalise go on.
        Raises:
          SpecError: there is no such policy, a value is not numeric, a finite number does not fit
            the store's dtype, or names or shapes are not those of the policy.
        """
        stored = {}
        for policy, own in by_policy(weights, self.policies, "weights").items():
            with said_of(policy):
                check_shapes(own, self.shapes.get(policy))
                stored[policy] = to_stored(own, self._transport.dtype)
        with self._publishing:
            snapshots = {policy: self._take(policy, own) for policy, own in stored.items()}
            return self._keep(snapshots, statistics)

    def publish_from(
        self, take: TakeSnapshots, statistics: Mapping[str, RunningStatistics] | None = None
    ) -> int:
        """Publishes weights that `take` stores; returns the version.

        Args:
          take: Stores weights of other processes. If it raises, the newest version stays as it was.
          statistics: See `publish`.
        """
        with self._publishing:
            return self._keep(take(self._plans_of), statistics)

    def _take(self, policy: str, stored: Mapping[str, Stored]) -> Snapshot:
        """Makes a snapshot of weights of this process, which `_keep` copies."""
        plan = self._plans_of(None).get(policy)
        names = frozenset(stored)
        if plan is not None:
            names = plan.names_to_store(stored, self._parts[policy].fetch_stored())
        return Snapshot(
            sizes={name: bytes_of(value) for name, value in stored.items()},
            names=names,
            make_part=lambda version: self._make_part(
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
        """Makes the next version from snapshots of some policies; the others keep their weights.

        Raises:
          SpecError: There is no such policy.
        """
        others = self._others(snapshots)
        latest = self._latest
        version = self._transport.first_version if latest is None else latest.version + 1
        # before anything changes: a part that cannot be stored leaves all as it was
        parts = {
            policy: self._parts.get(policy, DeltaParts()).followed_by(version, snapshot)
            for policy, snapshot in snapshots.items()
        }
        self._stored = {policy: self._stored[policy] for policy in others} | {
            policy: StoredWeights(version, own.stored, snapshots[policy].origin)
            for policy, own in parts.items()
        }
        if self._transport.delta:
            self._parts = {policy: self._parts[policy] for policy in others} | parts
        offer = WeightOffer(version, dict(self._stored), dict(statistics or {}))
        with self._lock:
            self._latest = offer
            self._published_bytes += sum(
                one.sizes[name] for one in snapshots.values() for name in one.names
            )
        return version

    def _others(self, published: Collection[str]) -> list[str]:
        """Returns the policies that keep their weights in a version that publishes others.

        Weights that were published by mistake are left out: those under a name that no worker has
        and, before the names are known, those of a single agent if several agents' are published
        now, or the reverse.
        """
        known, is_one = self.policies, ONLY in published
        for policy in published:
            if known is not None and policy not in known:
                raise SpecError(
                    f"weights have the unknown policy {policy!r}, expected some of {list(known)}"
                )
        return [
            policy
            for policy in self._stored
            if policy not in published
            and (policy in known if known is not None else (policy == ONLY) == is_one)
        ]


MAX_PARTS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaPlan:
    """The stored parts of the version before; they are numbered, so that a plan is small to send.

    Attributes:
      homes       name -> number of the part that has its array; empty where nothing is stored.
      part_bytes  Bytes of each part.
      base        The source's number of that version's snapshot.
    """

    homes: Mapping[str, int] = field(default_factory=dict)
    part_bytes: tuple[int, ...] = ()
    base: int = 0

    def names_to_store(
        self, stored: Mapping[str, Stored], before: Mapping[str, Stored]
    ) -> frozenset[str]:
        """Returns which arrays of the next version must be stored: those that are not as before.

        All are returned where the parts would otherwise have more than twice the bytes of the
        weights, or be more than MAX_PARTS.
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
    """The stored arrays of a policy's newest weights, each in the part in which it last changed.

    A part is dropped when later ones have replaced all its arrays. `source` and `number` are those
    of the newest `Snapshot`.
    """

    homes: Mapping[str, _Part] = field(default_factory=dict)
    parts: tuple[_Part, ...] = ()
    source: object = None
    number: int = 0

    @property
    def stored(self) -> tuple[WeightPart, ...]:
        """The parts, in the order of their versions."""
        return tuple(part.stored for part in self.parts)

    def plan(self) -> DeltaPlan:
        """Returns the plan by which the next snapshot stores only what has changed."""
        return DeltaPlan(
            homes={name: self.parts.index(part) for name, part in self.homes.items()},
            part_bytes=tuple(part.num_bytes for part in self.parts),
            base=self.number,
        )

    def followed_by(self, version: int, snapshot: Snapshot) -> DeltaParts:
        """Returns the parts that are stored after one more version."""
        homes, parts = dict(self.homes), self.parts
        if snapshot.source != self.source or snapshot.sizes.keys() != homes.keys():
            homes, parts = {}, ()
        if snapshot.names or not parts:
            num_bytes = sum(snapshot.sizes[name] for name in snapshot.names)
            part = _Part(snapshot.make_part(version), num_bytes)
            homes |= dict.fromkeys(snapshot.names, part)
            live = {part, *homes.values()}
            parts = tuple(sorted(live, key=lambda part: part.stored.version))
        return DeltaParts(homes, parts, snapshot.source, snapshot.number)

    def fetch_stored(self) -> dict[str, Stored]:
        """Returns the arrays of the newest version, as they are stored."""
        parts = {part: part.stored.fetch() for part in self.parts}
        return {name: cast(Stored, parts[home][name]) for name, home in self.homes.items()}


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    stored: WeightPart
    num_bytes: int
