# SPDX-License-Identifier: Apache-2.0
"""Several coordinators under random events: whatever dies when, no step is lost or doubled."""

from __future__ import annotations

import inspect
import os
import random
from typing import Any

import pytest
from counter_world import assert_balanced
from fleet_world import HANG_TIMEOUT_S, START_TIMEOUT_S
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from share_world import ActedShare, ShareWorld
from test_random_lives import assert_exactly_once_with_gaps, lag_rules

from rollouts.errors import ClosedError, WorkerError
from rollouts.workers.call_size import WORTH_S
from rollouts.workers.lag import LagRule
from rollouts.workers.share import INCARNATIONS_PER_LIFE

BROKEN = {"duplicate", "out_of_order", "protocol"}


class RandomShares(RuleBasedStateMachine):
    """Every event that can happen to coordinators and their workers, in any order."""

    @initialize(
        num_coordinators=st.integers(2, 3),
        further_workers=st.integers(0, 4),
        credits_per_worker=st.integers(1, 3),
        max_restarts=st.sampled_from([0, 1, 10**6]),
        lag=lag_rules(),
        max_queued_fragments=st.sampled_from([None, 40]),
        shares_calls=st.booleans(),
    )
    def begin(
        self, num_coordinators: int, further_workers: int, shares_calls: bool, **rules: Any
    ) -> None:
        self.is_over = False
        if shares_calls:
            rules |= {"lag": LagRule(), "fragment_s": WORTH_S / 4}
            rules["credits_per_worker"] += 1
        self.world = ShareWorld(num_coordinators, num_coordinators + further_workers, **rules)
        # all are there, and have work: the way to there is long for events at random
        self.world.publish()
        for _ in range(3):
            self.all_work_and_the_driver_takes()
        assert all(share.starting.done() for share in self.world.living)

    def share(self, index: int) -> ActedShare | None:
        """Returns one of the coordinators that are there."""
        there = [share for share in self.world.living if share.starting.done()]
        return there[index % len(there)] if there else None

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
    def coordinator_appears(self, index: int) -> None:
        if starting := [share for share in self.world.living if not share.starting.done()]:
            starting[index % len(starting)].appear()

    @rule(index=st.integers(0, 9))
    def coordinator_dies(self, index: int) -> None:
        if living := self.world.living:
            living[index % len(living)].die()

    @rule(index=st.integers(0, 9), which=st.integers(0, 9))
    def call_arrives(self, index: int, which: int) -> None:
        if (share := self.share(index)) is not None and share.asked:
            share.arrive(which % len(share.asked))

    @rule(index=st.integers(0, 9), which=st.integers(0, 9))
    def coordinator_is_told(self, index: int, which: int) -> None:
        if (share := self.share(index)) is not None and share.news:
            share.turn(share.news.pop(which % len(share.news)))

    @rule(index=st.integers(0, 9))
    def coordinator_looks(self, index: int) -> None:
        if (share := self.share(index)) is not None:
            share.turn()

    @rule(index=st.integers(0, 9), which=st.integers(0, 9))
    def worker_appears(self, index: int, which: int) -> None:
        share = self.share(index)
        if share and (starting := [one for one in share.living if not one.starting.done()]):
            starting[which % len(starting)].appear()

    @rule(index=st.integers(0, 9), which=st.integers(0, 9), most=st.sampled_from([1, 3, 16]))
    def worker_completes(self, index: int, which: int, most: int) -> None:
        share = self.share(index)
        if share and (busy := [one for one in share.living if one.is_open]):
            worker = busy[which % len(busy)]
            worker.complete(num_fragments=min(most, worker.num_asked))

    @rule(index=st.integers(0, 9), which=st.integers(0, 9))
    def worker_dies(self, index: int, which: int) -> None:
        if (share := self.share(index)) is not None and share.living:
            share.living[which % len(share.living)].die()

    @rule(index=st.integers(0, 9), which=st.integers(0, 9), num_completed=st.integers(0, 3))
    def worker_raises(self, index: int, which: int, num_completed: int) -> None:
        share = self.share(index)
        if share and (busy := [one for one in share.living if one.is_open]):
            worker = busy[which % len(busy)]
            worker.raise_error(min(num_completed, worker.num_asked - 1))

    @rule()
    def all_work_and_the_driver_takes(self) -> None:
        world = self.world
        world.appear_all()
        for share in world.living:
            if share.starting.done() and share.open and any(share.living):
                self.work(share)
        world.tell_all()
        if num := min(world.queue.depth, world.queue.capacity):
            self.get(num)

    @staticmethod
    def work(share: ActedShare) -> None:
        """Makes a round of work, in which some calls may be left open."""
        while share.asked:
            share.arrive(0)
        for worker in share.living:
            if not worker.starting.done():
                worker.appear()
            while worker.is_open:
                worker.complete()
        while share.news:
            share.turn(share.news.pop(0))

    @precondition(lambda self: self.world.queue.depth)
    @rule(index=st.integers(0, 9))
    def lose_arrays_of_a_queued_fragment(self, index: int) -> None:
        items = self.world.queue._items

        def fetch(timeout_s: float) -> Any:
            raise WorkerError("its owner died")

        object.__setattr__(items[index % len(items)], "fetch", fetch)

    @rule(seconds=st.sampled_from([1.0, HANG_TIMEOUT_S + 1, START_TIMEOUT_S + 1]))
    def time_passes(self, seconds: float) -> None:
        self.world.now += seconds
        for share in self.world.living:
            if share.starting.done():
                share.turn()
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
    @rule(further=st.integers(0, 5))
    def scale(self, further: int) -> None:
        self.world.scale_to(self.world.num_coordinators + further)

    @precondition(lambda self: not self.is_over)
    @rule(dice=st.integers(0, 9))
    def drain(self, dice: int) -> None:
        if dice == 0:
            self.is_over = True
            self.world.fleet.drain()

    @precondition(lambda self: hasattr(self, "world"))
    @invariant()
    def one_account_balances_to_the_step(self) -> None:
        stats = self.world.stats()
        assert_balanced(stats)
        assert stats["env_steps"]["delivered"] == sum(f.num_steps for f in self.world.delivered)
        assert stats["env_steps"]["produced"] == 8 * stats["fragments"]["produced"]
        # fragments of each worker reach the driver in their order, and none twice
        assert not BROKEN & {*stats["fragments"]["discarded"], *stats["failures"]}
        ids = [row["worker_id"] for row in stats["workers"]]
        assert ids == sorted({*ids, *range(self.world.num_workers)})
        # those that were taken away complete what they were asked for, and end
        there = {share.config.worker_id for share in self.world.living if share.starting.done()}
        ended = {
            row["state"]
            for row in stats["workers"][self.world.num_workers :]
            if row["worker_id"] % self.world.num_coordinators in there
        }
        assert ended <= {"draining", "stopped"}

    @precondition(lambda self: hasattr(self, "world"))
    @invariant()
    def what_would_end_with_a_coordinator_is_in_flight_for_the_driver(self) -> None:
        for share in self.world.living:
            assert share.fleet.in_flight + share.queue.depth <= share.num_open

    @precondition(lambda self: hasattr(self, "world"))
    @invariant()
    def nothing_too_old_was_delivered(self) -> None:
        assert not any(map(self.world.rules.lag.discards, self.world.lags))

    @precondition(lambda self: hasattr(self, "world"))
    @invariant()
    def fragments_in_flight_and_queued_are_within_the_limit(self) -> None:
        assert self.world.fleet.in_flight == sum(
            call.num_fragments for slot in self.world.fleet._slots for call in slot.calls
        )

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        assert_exactly_once_with_gaps(world.delivered)
        if not self.is_over:
            # whatever happened: where coordinators come again, a learner that waits is served
            world.tell_all()
            object.__setattr__(world.rules.faults, "max_restarts", 10**6)
            for share in world.living:
                object.__setattr__(share.fleet._rules.faults, "max_restarts", 10**6)
            world.scale_to(world.num_workers)
            world.publish()
            num = world.queue.capacity
            assert len(world.wait_and_get(num)) == num
            world.fleet.drain()
        world.appear_all()
        world.work()
        assert world.fleet.in_flight == 0
        world.fleet.stop()
        world.queue.close()
        stats = world.stats()
        assert_balanced(stats)
        assert stats["fragments"]["queued"] == stats["fragments"]["in_flight"] == 0
        assert not world.living


TestRandomShares = RandomShares.TestCase
TestRandomShares.settings = settings(
    max_examples=600 if os.environ.get("ROLLOUTS_RANDOM_TESTS") else 50,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


# event -> how often, of a hundred or so
EVENTS = {
    "publish": 3, "look": 2, "coordinator_appears": 8, "coordinator_dies": 1, "call_arrives": 20,
    "coordinator_is_told": 20, "coordinator_looks": 3, "worker_appears": 8, "worker_completes": 20,
    "worker_dies": 1, "worker_raises": 1, "lose_arrays_of_a_queued_fragment": 1, "get": 12,
    "scale": 1,
}  # fmt: skip


def live_through(seed: int, num_events: int) -> RandomShares:
    """Makes events at random, more likely those that bring fragments; checks after each."""
    dice, machine = random.Random(seed), RandomShares()
    machine.begin(
        num_coordinators=dice.randint(2, 3),
        further_workers=dice.randint(0, 4),
        credits_per_worker=dice.randint(1, 3),
        max_restarts=10**6,
        lag=dice.choice([LagRule(), LagRule(2, "drop"), LagRule(2, "block")]),
        max_queued_fragments=dice.choice([None, 40]),
        shares_calls=dice.random() < 0.5,
    )
    for _ in range(num_events):
        while machine.world.news:
            # the driver hears of calls' ends in any order
            machine.world.tell(dice.randrange(len(machine.world.news)))
        (name,) = dice.choices([*EVENTS], [*EVENTS.values()])
        event = getattr(machine, name)
        takes = inspect.signature(event).parameters
        if name != "lose_arrays_of_a_queued_fragment" or machine.world.queue.depth:
            event(**{each: dice.choice(AT_RANDOM[each]) for each in takes})
        machine.one_account_balances_to_the_step()
        machine.what_would_end_with_a_coordinator_is_in_flight_for_the_driver()
        machine.fragments_in_flight_and_queued_are_within_the_limit()
    machine.teardown()
    return machine


AT_RANDOM = {
    "index": range(10),
    "which": range(10),
    "most": [1, 3, 16],
    "num": [1, 2, 3],
    "num_completed": range(4),
    "further": range(6),
}


# the others are among those of the million events
@pytest.mark.parametrize("seed", range(2))
def test_coordinators_that_die_again_and_again_lose_nothing_uncounted(seed: int) -> None:
    machine = live_through(seed, 800)
    world = machine.world
    assert len(world.delivered) > 20
    lives = {fragment.incarnation // INCARNATIONS_PER_LIFE for fragment in world.delivered}
    assert len(lives) > 1
    interrupted = world.stats()["fragments"]["interrupted"]
    assert interrupted["coordinator_died"] > 0


@pytest.mark.slow
def test_coordinators_lose_nothing_in_a_million_events() -> None:
    for seed in range(1000):
        live_through(seed, 1000)
