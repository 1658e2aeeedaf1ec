# SPDX-License-Identifier: Apache-2.0
"""ReplayService over Ray: what is sampled, who waits, and what deaths leave behind."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from counter_world import assert_balanced, wait_until, weights
from replay_world import (
    TABLE,
    TIMEOUT_S,
    Start,
    assert_replay_balanced,
    assert_whole_sequences,
    assert_whole_transitions,
    drain,
    has_sizes,
    kill_shard,
    kill_worker,
    make_coordinator,
    make_service,
    ref_of_a_dead_owner,
    sample_until,
    stopped_shards,
)

from rollouts import RolloutCoordinator
from rollouts.errors import ClosedError, DTypeError, SpecError, WorkerError
from rollouts.replay import (
    MinSize,
    Queue,
    SampleToInsertRatio,
    Sequences,
    ShardOptions,
    TableConfig,
)
from rollouts.replay.items import most_items
from rollouts.workers import QueueLimits

pytestmark = pytest.mark.system

SEQUENCES = TableConfig("sequences", items=Sequences(4, period=2, burn_in=1))


def test_transitions_of_two_workers_come_from_two_shards(start: Start) -> None:
    coordinator, replay = start()
    sample_until(replay, has_sizes(200))
    batch = replay.sample(64, timeout_s=TIMEOUT_S)
    assert_whole_transitions(batch)
    assert set(batch.env_id // 3) == {0, 1}
    assert (batch.table_size == batch.table_size[0]).all()
    assert 0 < batch.weight.min() <= batch.weight.max() == 1
    # nothing comes between two looks at the size
    stats = drain(coordinator, replay)
    assert_replay_balanced(stats)
    assert_balanced(coordinator.stats())
    assert stats["tables"]["replay"]["samples"] % 32 == 0
    assert stats["tables"]["replay"]["size"] == replay.size() > 400
    episodes = replay.take_episodes()
    assert (episodes.lengths == 3 + episodes.env_id % 4).all()
    assert len(episodes.env_id) > 0


def test_priorities_reach_the_shard_that_has_the_item(start: Start) -> None:
    coordinator, replay = start(
        tables=TableConfig(items=TABLE.items, sampler="prioritized", exponent=1.0)
    )
    sample_until(replay, has_sizes(100))
    drain(coordinator, replay)
    chosen = replay.sample(64, timeout_s=TIMEOUT_S)
    rows = [int(np.argmax(chosen.env_id // 3 == worker)) for worker in (0, 1)]
    # so much more than all others together that a batch has nothing else
    assert replay.update_priorities(chosen.key[rows], [1e12, 1e12]) == 2
    # after one batch the driver knows what the shards are worth
    replay.sample(64, timeout_s=TIMEOUT_S)
    batch = replay.sample(64, timeout_s=TIMEOUT_S)
    assert set(batch.key) == set(chosen.key[rows])
    assert np.allclose(batch.probability, 0.5, rtol=1e-6)  # the others' part is below 1e-7


def test_batches_are_drawn_from_all_shards_in_proportion(start: Start) -> None:
    # shard 0 has workers 0 and 2, shard 1 has worker 1
    coordinator, replay = start({"num_workers": 3}, tables=TableConfig(items=TABLE.items))
    sample_until(replay, has_sizes(100))
    stats = drain(coordinator, replay)
    sizes = np.array([shard["size"] for shard in stats["shards"]])
    env_ids = [replay.sample(10, timeout_s=TIMEOUT_S).env_id for _ in range(50)]
    count = np.sum(np.concatenate(env_ids) // 3 == 1)
    # what one batch cannot divide the next ones make good: never more than one item off
    assert abs(count - 500 * sizes[1] / sizes.sum()) <= 1


def test_the_limiter_makes_the_workers_wait_and_memory_stays_bounded(start: Start) -> None:
    limiter = SampleToInsertRatio(2.0, min_size=50, error_buffer=400.0)
    table = TableConfig(items=TABLE.items, sampler="uniform", limiter=limiter)
    coordinator, replay = start({"queue": QueueLimits(max_queued_fragments=4)}, tables=table)
    # nothing is sampled: inserts stop at the bound, and the coordinator's queue is full
    wait_until(lambda: (replay.size() + 1) * 2 > 50 * 2 + 400)
    wait_until(lambda: coordinator.stats()["queue_depth"] == 4)
    wait_until(lambda: coordinator.stats()["fragments"]["in_flight"] == 0)
    wait_until(lambda: replay.stats()["steps"]["in_flight"] == 0)
    # 3 environments, 8 steps: with what was open before it, what one fragment brings at most
    fragment = most_items(TABLE.items, 8, 3)
    # whole fragments are admitted, and no more than one goes past the bound
    assert (replay.size() - fragment) * 2 < 50 * 2 + 400
    produced = coordinator.stats()["fragments"]["produced"]
    assert coordinator.stats()["fragments"]["in_flight"] == 0
    for turn in range(40):
        assert_whole_transitions(replay.sample(64, timeout_s=TIMEOUT_S))
        stats = replay.stats()["tables"]["replay"]
        # exact on the samples' side: never more than the items that were there allow
        assert stats["inserts"] * 2 - stats["samples"] >= 50 * 2 - 400
        # and by less than a fragment on the other side
        assert (stats["inserts"] - fragment) * 2 - stats["samples"] < 50 * 2 + 400
        fragments = coordinator.stats()["fragments"]
        assert fragments["in_flight"] + fragments["queued"] <= 4
        assert fragments["produced"] <= produced + 4 + (turn + 1) * 64 // 2 // (3 * 8 - 6)
    wait_until(lambda: replay.stats()["tables"]["replay"]["insert_wait_s"] > 0)
    with pytest.raises(SpecError, match="enlarge its error_buffer"):
        replay.sample(800)


def wait_for_open_episodes(coordinator: RolloutCoordinator) -> tuple[int, int]:
    """Waits until the worker 0 that died is started again; least and most episodes left open."""
    found: list[Any] = []

    def is_starting() -> bool:
        found[:] = [coordinator.stats()["workers"][0]]
        return bool(found[0]["incarnation"] == 1)

    wait_until(is_starting)
    if found[0]["state"] != "starting":
        return 0, 3  # seen too late: fragments may be of both lives
    steps = 8 * found[0]["fragments"]
    num_open = sum(steps % (3 + env_id % 4) != 0 for env_id in range(3))
    return num_open, num_open


def test_death_of_worker_and_shard_loses_only_what_is_counted(start: Start, tmp_path: Path) -> None:
    # slow enough that what comes while files are written is little beside what is held
    coordinator, replay = start({"env_options": {"sleep_s": 0.005}})
    sample_until(replay, has_sizes(100))
    kill_worker(coordinator, 0)
    least, most = wait_for_open_episodes(coordinator)
    replay.save(tmp_path)
    saved = replay.stats()["shards"][1]["env_steps"]
    kill_shard(replay, 1)
    before = coordinator.stats()["workers"][0]["fragments"]
    sample_until(
        replay,
        lambda stats: (
            stats["shard_restarts"] == 1
            and coordinator.stats()["workers"][0]["fragments"] > before + 20
        ),
    )
    stats = drain(coordinator, replay)
    assert_replay_balanced(stats)
    assert_balanced(coordinator.stats())
    # it went on from the checkpoint, and what it lost is less than all it had
    assert stats["shards"][1]["env_steps"] >= 100 and saved >= 100
    assert 0 <= stats["steps"]["lost_with_shards"] < stats["steps"]["inserted"] // 2
    assert stats["steps"]["discarded"] == {}
    # those of the dead worker, and of the shard's others where it had lost a fragment
    assert least <= stats["episodes_cut"] <= most + 3
    for _ in range(10):
        assert_whole_transitions(replay.sample(256, timeout_s=TIMEOUT_S))


def test_every_step_is_in_the_replay_exactly_once(start: Start) -> None:
    # slow enough that no shard is full before a killed worker is back
    coordinator, replay = start({"env_options": {"sleep_s": 0.005}})
    sample_until(replay, has_sizes(100))
    kill_worker(coordinator, 1)
    sample_until(replay, lambda stats: coordinator.stats()["workers"][1]["fragments"] > 20)
    stats = drain(coordinator, replay)
    assert stats["steps"]["inserted"] == coordinator.stats()["env_steps"]["delivered"]
    # all of it is sampled, one item after the other
    seen: dict[int, tuple[int, ...]] = {}
    while len(seen) < stats["tables"]["replay"]["size"]:
        batch = replay.sample(4096, timeout_s=TIMEOUT_S)
        assert_whole_transitions(batch)
        seen |= {int(key): tuple(obs) for key, obs in zip(batch.key, batch.obs, strict=True)}
        replay.update_priorities(batch.key, np.full(4096, 1e-3))
    assert len(set(seen.values())) == len(seen)
    # but for the n - 1 last steps of episodes that are still open, each began an item
    assert 0 <= stats["steps"]["inserted"] - len(seen) <= 6 * 2


def test_shard_without_checkpoint_starts_again_empty(start: Start) -> None:
    _, replay = start()
    sample_until(replay, has_sizes(100))
    old = replay.sample(64, timeout_s=TIMEOUT_S)
    kill_shard(replay, 0)
    sample_until(replay, lambda stats: stats["shards"][0]["incarnation"] == 1)
    sample_until(replay, has_sizes(50))
    before = replay.stats()
    assert before["items_lost"] > 100
    # keys of the dead are nobody's, and those who have them are told
    num_dead = int(np.sum(old.env_id // 3 == 0))
    assert 0 < num_dead < 64
    assert replay.update_priorities(old.key, np.full(64, 1e-3)) == 64 - num_dead
    after = replay.stats()
    assert after["stale_priorities"] - before["stale_priorities"] == num_dead
    assert_replay_balanced(after)


def test_shard_whose_checkpoint_is_gone_starts_again_empty(start: Start, tmp_path: Path) -> None:
    _, replay = start()
    sample_until(replay, has_sizes(100))
    replay.save(tmp_path)
    for path in tmp_path.iterdir():
        path.unlink()
    kill_shard(replay, 0)
    sample_until(replay, lambda stats: stats["shards"][0]["incarnation"] == 1)
    # until it has answered, the shard counts as what its checkpoint had
    sample_until(replay, lambda stats: stats["items_lost"] > 100)
    sample_until(replay, has_sizes(50))
    assert_replay_balanced(replay.stats())


def test_shard_that_keeps_dying_ends_the_replay(start: Start) -> None:
    _, replay = start(shards=ShardOptions(max_restarts=0))
    sample_until(replay, has_sizes(10))
    kill_shard(replay, 0)
    with pytest.raises(WorkerError, match=r"shards\.max_restarts"):
        sample_until(replay, lambda stats: False)


def test_sequences_and_transitions_share_steps_and_are_never_torn(start: Start) -> None:
    coordinator, replay = start(tables=[TABLE, SEQUENCES])
    sample_until(replay, has_sizes(100))
    kill_worker(coordinator, 1)
    while coordinator.stats()["workers"][1]["incarnation"] == 0:
        assert_whole_sequences(replay.sample(16, table="sequences", timeout_s=TIMEOUT_S))
    kill_shard(replay, 0)
    while replay.stats()["shard_restarts"] == 0 or not has_sizes(100)(replay.stats()):
        batch = replay.sample(64, table="sequences", timeout_s=TIMEOUT_S)
        assert_whole_sequences(batch)
        assert_whole_transitions(replay.sample(64, timeout_s=TIMEOUT_S))
    assert batch.obs.shape == (5, 64, 5) and batch.key.shape == (64,)
    assert batch.burn_in == 1
    stats = replay.stats()
    assert_replay_balanced(stats)
    assert stats["tables"]["sequences"]["size"] < stats["tables"]["replay"]["size"]


def test_fragment_whose_arrays_are_lost_is_counted_and_leaves_no_seam(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rollouts.workers.on_ray.ray_session import RemotePayload

    coordinator, replay = start()
    sample_until(replay, has_sizes(100))
    lost = RemotePayload(ref_of_a_dead_owner())
    taken = []
    get_pending = coordinator.get_pending

    def lose_every_third(*args: Any) -> Any:
        (fragment,) = get_pending(*args)
        taken.append(fragment)
        if len(taken) % 3 == 0:
            fragment = replace(fragment, fetch=lost)
        return [fragment]

    monkeypatch.setattr(coordinator, "get_pending", lose_every_third)
    sample_until(replay, lambda stats: stats["steps"]["discarded"].get("lost", 0) >= 10 * 24)
    stats = drain(coordinator, replay)
    assert stats["steps"]["discarded"] == {"lost": len(taken) // 3 * 24}
    assert stats["episodes_cut"] > 0
    assert_replay_balanced(stats)
    assert_whole_transitions(replay.sample(1024, timeout_s=TIMEOUT_S))


def test_shards_are_placed(start: Start) -> None:
    _, replay = start(shards=ShardOptions(strategy="PACK", num_cpus=0.25))
    sample_until(replay, has_sizes(10))


def test_batches_come_ahead_as_tensors(start: Start) -> None:
    import torch

    _, replay = start()
    with replay.prefetch(32, beta=1.0) as batches:
        for _ in range(5):
            batch = batches.get(TIMEOUT_S)
            assert isinstance(batch.obs, torch.Tensor) and batch.obs.shape == (32, 5)
            replay.update_priorities(batch.key, batch.reward.abs())


def test_what_timed_out_on_its_way_is_delivered_next(start: Start) -> None:
    coordinator, replay = start()
    sample_until(replay, has_sizes(10))
    before = drain(coordinator, replay)["tables"]["replay"]["samples"]
    # on a busy machine a shard may answer before this process has looked at the time
    with stopped_shards(replay), pytest.raises(TimeoutError, match="not sampled in time"):
        replay.sample(32, timeout_s=0.0)
    assert_whole_transitions(replay.sample(32, timeout_s=TIMEOUT_S))
    assert replay.stats()["tables"]["replay"]["samples"] == before + 32


# slow: test_replay_clients.py has the same of clients, who ask this service
@pytest.mark.slow
def test_after_the_workers_the_rest_is_sampled(start: Start) -> None:
    # so far that inserts never wait for it
    limiter = SampleToInsertRatio(1.0, min_size=10, error_buffer=200_000.0)
    coordinator, replay = start(tables=TableConfig(items=TABLE.items, limiter=limiter))
    replay.sample(32, timeout_s=TIMEOUT_S)
    drain(coordinator, replay)
    with pytest.raises(ClosedError, match="drained"):
        while True:
            assert_whole_transitions(replay.sample(8192, timeout_s=TIMEOUT_S))
    stats = replay.stats()["tables"]["replay"]
    assert stats["inserts"] - stats["samples"] < 10 - 200_000 + 8192
    replay.close()
    with pytest.raises(ClosedError, match="replay service is closed"):
        replay.sample(32)


def test_without_shards_and_workers_everything_is_in_this_process() -> None:
    limiter = SampleToInsertRatio(4.0, min_size=40, error_buffer=200.0)
    table = TableConfig(items=TABLE.items, sampler="prioritized", limiter=limiter)
    with (
        make_coordinator(num_workers=0) as coordinator,
        make_service(coordinator, num_shards=0, tables=table) as replay,
    ):
        coordinator.publish_weights(weights())
        for _ in range(50):
            batch = replay.sample(32, timeout_s=TIMEOUT_S)
            assert_whole_transitions(batch)
            assert replay.update_priorities(batch.key, np.ones(32)) == 32
        stats = replay.stats()
        assert_replay_balanced(stats)
        assert 2 < stats["tables"]["replay"]["samples_per_insert"] < 6
        with pytest.raises(SpecError, match="no table 'other'"):
            replay.sample(32, table="other")
    with pytest.raises(ClosedError):
        replay.sample(32)


def test_wrong_arguments_are_refused() -> None:
    with make_coordinator(num_workers=0) as coordinator:
        with pytest.raises(SpecError, match="or use a ReplayBuffer"):
            make_service(coordinator, num_shards=0, tables=TableConfig(limiter=Queue(10)))
        with pytest.raises(SpecError, match="num_shards is -1"):
            make_service(coordinator, num_shards=-1)
        with pytest.raises(DTypeError, match=r"ReplayService has no 'placement', expected some of"):
            make_service(coordinator, placement="SPREAD")
        with pytest.raises(SpecError, match="shards is 2, expected a ShardOptions such as"):
            make_service(coordinator, shards=2)
        with pytest.raises(SpecError, match="which hold 50"):
            small = TableConfig(max_size=100, limiter=MinSize(51))
            make_service(coordinator, num_shards=2, tables=small)
        with make_service(coordinator, num_shards=0) as replay:
            with pytest.raises(SpecError, match="finite"):
                replay.update_priorities(np.zeros(1, np.int64), [-1.0])
            with pytest.raises(SpecError, match="batch_size is 0"):
                replay.sample(0)


def test_items_stay_whole_while_workers_and_shards_are_killed() -> None:
    script = Path(__file__).parents[2] / "helpers" / "replay_chaos.py"
    command = [sys.executable, str(script), "--seconds", "12", "--seed", "3"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr[-3000:]
    # Ray may write after it
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("{")]
    found = json.loads(line)
    assert found["batches"] > 0 and found["worker"] > 0 and found["shard"] > 0, found
