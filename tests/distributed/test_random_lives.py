# SPDX-License-Identifier: Apache-2.0
"""The fleet under random events: whatever happens when, no step is lost, doubled or miscounted."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from typing import Any

import pytest
from counter_world import assert_balanced
from fleet_world import HANG_TIMEOUT_S, START_TIMEOUT_S, World
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rollouts.errors import ClosedError, WorkerError
from rollouts.learner.fragment import Fragment
from rollouts.workers.call_size import WORTH_S
from rollouts.workers.lag import LagRule
from rollouts.workers.slot import Call

pytestmark = pytest.mark.system


def lag_rules() -> st.SearchStrategy[LagRule]:
    limited = st.builds(LagRule, st.integers(0, 3), st.sampled_from(["drop", "block", "pass"]))
    return st.just(LagRule()) | limited


class RandomLives(RuleBasedStateMachine):
    """Every event that can happen to a fleet, in any order."""

    @initialize(
        num_workers=st.integers(1, 3),
        credits_per_worker=st.integers(1, 3),
        max_restarts=st.sampled_from([0, 1, 10**6]),
        merge=st.sampled_from(["arrival", "ordered"]),
        lag=lag_rules(),
        max_queued_fragments=st.sampled_from([None, 40]),
        shares_calls=st.booleans(),
    )
    def begin(self, num_workers: int, shares_calls: bool, **rules: Any) -> None:
        self.is_over = False
        if shares_calls:
            rules |= {"merge": "arrival", "lag": LagRule(), "fragment_s": WORTH_S / 4}
            rules["credits_per_worker"] += 1
        self.world = World(num_workers, **rules)
        if shares_calls:
            # as few events in a row let calls grow
            self.world.appear_all()
            self.world.publish()
            for _ in range(30):
                self.work_and_get()
            assert max(call.num_fragments for call in self.calls) > 1

    @property
    def calls(self) -> list[Call]:
        """The open calls of all workers."""
        return [call for slot in self.world.fleet._slots for call in slot.calls]

    @rule()
    def publish(self) -> None:
        self.world.publish()

    @precondition(lambda self: self.world.news)
    @rule(data=st.data())
    def tell(self, data: st.DataObject) -> None:
        self.world.tell(data.draw(st.integers(0, len(self.world.news) - 1)))

    @rule()
    def look(self) -> None:
        self.world.fleet.look()

    @rule(index=st.integers(0, 9))
    def appear(self, index: int) -> None:
        if starting := [w for w in self.world.living if not w.starting.done()]:
            starting[index % len(starting)].appear()

    @rule(index=st.integers(0, 9), most=st.sampled_from([1, 3, 16]))
    def complete(self, index: int, most: int) -> None:
        if busy := [w for w in self.world.living if w.is_open]:
            worker = busy[index % len(busy)]
            worker.complete(num_fragments=min(most, worker.num_asked))

    @rule()
    def work_and_get(self) -> None:
        """Makes calls grow, which one event after the other seldom does."""
        world = self.world
        world.work()
        if num := min(world.queue.depth, world.queue.capacity):
            with contextlib.suppress(TimeoutError, WorkerError, ClosedError):
                world.get(num)

    @rule(index=st.integers(0, 9))
    def die(self, index: int) -> None:
        if living := self.world.living:
            living[index % len(living)].die()

    @rule(index=st.integers(0, 9), num_completed=st.integers(0, 3))
    def raise_error(self, index: int, num_completed: int) -> None:
        if busy := [w for w in self.world.living if w.is_open]:
            worker = busy[index % len(busy)]
            worker.raise_error(min(num_completed, worker.num_asked - 1))

    @rule(index=st.integers(0, 9))
    def lose_fragment_before_it_is_told(self, index: int) -> None:
        if busy := [w for w in self.world.living if w.is_open]:
            busy[index % len(busy)].lose()

    @precondition(lambda self: self.world.queue.depth)
    @rule(index=st.integers(0, 9))
    def lose_arrays_of_a_queued_fragment(self, index: int) -> None:
        items = self.world.queue._items

        def fetch(timeout_s: float) -> Any:
            raise WorkerError("node lost")

        handle = items[index % len(items)]
        object.__setattr__(handle, "fetch", fetch)

    @rule(seconds=st.sampled_from([1.0, HANG_TIMEOUT_S + 1, START_TIMEOUT_S + 1]))
    def time_passes(self, seconds: float) -> None:
        self.world.now += seconds
        self.world.fleet.look()

    @rule(num=st.integers(1, 3))
    def get(self, num: int) -> None:
        if num > self.world.queue.capacity:
            return
        try:
            self.world.get(num)
        except (TimeoutError, WorkerError):
            pass
        except ClosedError:
            assert self.is_over

    @precondition(lambda self: not self.is_over)
    @rule(num_workers=st.integers(1, 4))
    def scale(self, num_workers: int) -> None:
        self.world.fleet.scale_to(num_workers)

    @precondition(lambda self: not self.is_over)
    @rule(dice=st.integers(0, 9))
    def drain(self, dice: int) -> None:
        if dice == 0:
            self.is_over = True
            self.world.fleet.drain()

    @precondition(lambda self: hasattr(self, "world"))
    @invariant()
    def account_balances_to_the_step(self) -> None:
        stats = self.world.fleet.stats()
        assert_balanced(stats)
        assert stats["env_steps"]["delivered"] == sum(f.num_steps for f in self.world.delivered)
        assert stats["env_steps"]["produced"] == 8 * stats["fragments"]["produced"]

    @precondition(lambda self: hasattr(self, "world"))
    @invariant()
    def nothing_too_old_was_delivered(self) -> None:
        assert not any(map(self.world.rules.lag.discards, self.world.lags))

    @precondition(lambda self: hasattr(self, "world"))
    @invariant()
    def only_wanted_workers_live(self) -> None:
        slots = {slot.config.worker_id: slot for slot in self.world.fleet._slots}
        for worker in self.world.living:
            config = worker.config
            assert slots[config.worker_id].config.incarnation == config.incarnation

    @precondition(lambda self: hasattr(self, "world"))
    @invariant()
    def what_is_counted_over_all_slots_is_so(self) -> None:
        fleet = self.world.fleet
        assert fleet.in_flight == sum(call.num_fragments for call in self.calls)
        if fleet._rules.most_per_call == 1:
            assert all(call.num_fragments == 1 for call in self.calls)
        assert fleet._idle_slots == {slot for slot in fleet._slots if slot.is_idle}
        assert set(fleet._draining.values()) == {
            slot for slot in fleet._slots if slot.state == "draining"
        }
        assert all(
            slot.deadline(HANG_TIMEOUT_S) >= fleet._quiet_until for slot in fleet._slots
        ) or (self.world.now > fleet._quiet_until)

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        assert_exactly_once_with_gaps(world.delivered)
        if not self.is_over:
            # whatever happened: when workers recover, a learner that waits is served
            world.tell_all()
            object.__setattr__(world.rules.faults, "max_restarts", 10**6)
            world.fleet.scale_to(2)
            world.publish()
            num = world.queue.capacity
            assert len(world.wait_and_get(num)) == num
            world.fleet.drain()
        world.appear_all()
        world.work()
        assert world.fleet.in_flight == 0
        world.fleet.stop()
        world.queue.close()
        stats = world.fleet.stats()
        assert_balanced(stats)
        assert stats["fragments"]["queued"] == stats["fragments"]["in_flight"] == 0
        assert not world.living


def assert_exactly_once_with_gaps(fragments: list[Fragment]) -> None:
    """Checks that what came came once and in order; discarded fragments leave gaps."""
    seen: defaultdict[tuple[int, int], list[Fragment]] = defaultdict(list)
    for fragment in fragments:
        seen[fragment.worker_id, fragment.incarnation].append(fragment)
    for life in seen.values():
        numbers = [fragment.seq_no for fragment in life]
        assert numbers == sorted(set(numbers))
        for fragment in life:
            first = fragment.batch.obs[0, :, 4]
            assert (first == fragment.seq_no * fragment.batch.obs.shape[0]).all()


TestRandomLives = RandomLives.TestCase
TestRandomLives.settings = settings(
    max_examples=600 if os.environ.get("ROLLOUTS_RANDOM_TESTS") else 50,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
