# SPDX-License-Identifier: Apache-2.0
"""Chooses the worker that is asked next, its weights, and the fragment that is queued next."""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from rollouts.workers.slot import Slot

if TYPE_CHECKING:
    from rollouts.workers.offers import WeightOffer

MergeOrder = Literal["arrival", "ordered"]

# all keys are made anew once there are this many more than two for each worker
_SPARE_KEYS = 64


@dataclass(frozen=True, slots=True)
class Demand:
    """Limits of the calls that are made at one time.

    Attributes:
      room: Fragments that may be asked for.
      credits: Calls that a worker may have.
      offer: The newest weights.
      size: Fragments of a call, unless the slot's most_per_call is lower.
      num_lacking: Fragments that a learner lacks: for these, a call that finds too little room is
        made smaller.
    """

    room: int
    credits: int
    offer: WeightOffer
    size: int = 1
    num_lacking: int = 0


class Merge(Protocol):
    """Bookkeeping of one order; the fleet calls it, on any thread, under its owner's lock."""

    def outstanding(self, in_flight: int) -> int:
        """Returns how many fragments are not queued yet: `in_flight`, or all that are promised."""
        ...

    def may_ask(self, slot: Slot) -> None:
        """Notes that the slot is running now, and gets calls."""
        ...

    def calls_to_make(
        self, slots: Sequence[Slot], demand: Demand
    ) -> Iterator[tuple[Slot, WeightOffer, int]]:
        """Yields calls of `slots` with their numbers of fragments; each is made before the next."""
        ...

    def is_turn(self, slot: Slot) -> bool:
        """Tells whether the slot's oldest fragment may be queued now."""
        ...

    def took(self, slot: Slot) -> None:
        """Notes that the slot's oldest call is over."""
        ...

    def lost(self, slot: Slot, num_calls: int, offer: WeightOffer | None) -> None:
        """Notes that the slot's next incarnation has to repeat `num_calls` calls."""
        ...

    def forget(self, slot: Slot) -> None:
        """Notes that the slot gets no further calls."""
        ...


class ArrivalMerge:
    """Order of arrival: the least busy worker is asked first, of several the least recently asked.

    A worker gets its next call when one of its fragments was taken over and there is room. So each
    worker makes fragments in proportion to its speed, and nothing has to be measured. Where room is
    short it goes to the worker that has waited longest, so that a slow one never starves. The queue
    is first in, first out.
    """

    def __init__(self) -> None:
        self._slots: dict[int, Slot] = {}
        # a heap of keys; a key that is no longer its slot's is dropped once it comes first
        self._keys: list[tuple[int, int, int]] = []

    def outstanding(self, in_flight: int) -> int:
        return in_flight

    def may_ask(self, slot: Slot) -> None:
        self._slots[slot.config.worker_id] = slot
        heapq.heappush(self._keys, _key(slot))
        if len(self._keys) > 2 * len(self._slots) + _SPARE_KEYS:
            self._keys = [_key(each) for each in self._slots.values() if each.state == "running"]
            heapq.heapify(self._keys)

    def calls_to_make(
        self, slots: Sequence[Slot], demand: Demand
    ) -> Iterator[tuple[Slot, WeightOffer, int]]:
        room, num_lacking = demand.room, demand.num_lacking
        while room > 0 and self._keys:
            key = self._keys[0]
            slot = self._slots[key[-1]]
            if slot.state != "running" or key != _key(slot):
                heapq.heappop(self._keys)
                continue
            if len(slot.calls) >= demand.credits:
                return
            num_fragments = min(demand.size, slot.most_per_call)
            if num_fragments > room:
                # the call waits until there is room for all its fragments
                if num_lacking <= 0:
                    return
                num_fragments = room
            yield slot, demand.offer, num_fragments
            room -= num_fragments
            num_lacking -= num_fragments
            self.may_ask(slot)

    def is_turn(self, slot: Slot) -> bool:
        return True

    def took(self, slot: Slot) -> None:
        self.may_ask(slot)

    def lost(self, slot: Slot, num_calls: int, offer: WeightOffer | None) -> None:
        pass

    def forget(self, slot: Slot) -> None:
        pass


class OrderedMerge:
    """Round robin by worker_id: the same order in every run in which no worker fails.

    A fragment is promised to a worker with the newest weights, perhaps before the worker can start
    it, and is queued after all fragments that were promised earlier. The fleet promises on the
    learner's thread, so that the weights of a fragment do not depend on timing either. After a
    failure the new incarnation takes over the turns of the former one.
    """

    def __init__(self) -> None:
        self._order: deque[Slot] = deque()
        self._promised: defaultdict[int, deque[WeightOffer]] = defaultdict(deque)
        self._last_id = -1

    def outstanding(self, in_flight: int) -> int:
        return len(self._order)

    def may_ask(self, slot: Slot) -> None:
        pass

    def calls_to_make(
        self, slots: Sequence[Slot], demand: Demand
    ) -> Iterator[tuple[Slot, WeightOffer, int]]:
        wanted = [slot for slot in slots if slot.is_wanted]
        for _ in range(demand.room if wanted else 0):
            later = (slot for slot in wanted if slot.config.worker_id > self._last_id)
            slot = next(later, wanted[0])
            self._last_id = slot.config.worker_id
            self._order.append(slot)
            self._promised[self._last_id].append(demand.offer)
        for slot in wanted:
            promised = self._promised[slot.config.worker_id]
            while slot.state == "running" and promised and len(slot.calls) < demand.credits:
                yield slot, promised.popleft(), 1

    def is_turn(self, slot: Slot) -> bool:
        return self._order[0] is slot

    def took(self, slot: Slot) -> None:
        self._order.popleft()

    def lost(self, slot: Slot, num_calls: int, offer: WeightOffer | None) -> None:
        if offer is not None:
            self._promised[slot.config.worker_id].extendleft([offer] * num_calls)

    def forget(self, slot: Slot) -> None:
        self._promised[slot.config.worker_id].clear()
        kept: deque[Slot] = deque()
        num_calls = len(slot.calls)
        for each in self._order:
            if each is not slot or num_calls > 0:
                kept.append(each)
            num_calls -= each is slot
        self._order = kept


def _key(slot: Slot) -> tuple[int, int, int]:
    """Orders slots: the least busy first, of these the least recently asked."""
    return len(slot.calls), slot.last_call, slot.config.worker_id


def make_merge(order: MergeOrder) -> Merge:
    """Returns the bookkeeping for an order."""
    return OrderedMerge() if order == "ordered" else ArrivalMerge()
