# SPDX-License-Identifier: Apache-2.0
"""ReplayClient: learners in several processes, one limiter, and deaths on every side."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from counter_world import wait_until
from learner_world import TIMEOUT_S, start_learners
from processes import environ_with_path
from replay_world import (
    TABLE,
    Start,
    assert_replay_balanced,
    assert_whole_transitions,
    drain,
    has_sizes,
    kill_shard,
    make_coordinator,
    make_service,
    sample_until,
)

from rollouts.errors import ClosedError, SpecError
from rollouts.replay import ReplayService, SampleToInsertRatio, TableConfig
from rollouts.workers import QueueLimits

pytestmark = pytest.mark.system

# fewer processes, where more would show nothing
ONE_WORKER: dict[str, Any] = {"num_workers": 1}
LIMITER = SampleToInsertRatio(2.0, min_size=50, error_buffer=400.0)


def get(refs: Any) -> Any:
    import ray

    return ray.get(refs, timeout=TIMEOUT_S)


def ray_exceptions() -> Any:
    import ray

    return ray.exceptions


def num_waiting(replay: ReplayService) -> int:
    """The number of batches that clients wait for."""
    assert replay._desk is not None
    return len(replay._desk._waiting)


def clients_account(replay: ReplayService) -> tuple[int, int]:
    clients = replay.stats()["clients"]
    return clients["admitted"]["replay"], clients["delivered"]["replay"]


def test_two_learners_sample_while_workers_insert(start: Start) -> None:
    table = TableConfig(items=TABLE.items, sampler="prioritized", limiter=LIMITER)
    _, replay = start(tables=table)
    learners = start_learners(replay.client(), replay.client())
    found = get([learner.learn.remote(30, 32) for learner in learners])
    here = sum(len(replay.sample(16, timeout_s=TIMEOUT_S).key) for _ in range(5))
    assert [each["items"] for each in found] == [30 * 32] * 2
    # nothing died: each key is of a living shard
    assert [each["updated"] for each in found] == [30 * 32] * 2
    get([learner.close.remote() for learner in learners])
    wait_until(lambda: clients_account(replay) == (60 * 32, 60 * 32))
    stats = replay.stats()
    assert_replay_balanced(stats)
    table_stats = stats["tables"]["replay"]
    # one account for all: exact, for any sampling process
    assert table_stats["samples"] == 60 * 32 + here
    assert table_stats["inserts"] * 2 - table_stats["samples"] >= 50 * 2 - 400
    assert table_stats["sample_wait_s"] > 0 and table_stats["age"]["max"] >= 0
    assert stats["stale_priorities"] == 0


def test_learner_that_dies_with_an_admission_leaves_the_rest_at_work(start: Start) -> None:
    table = TableConfig(items=TABLE.items, limiter=LIMITER)
    _, replay = start(tables=table)
    victim, other = start_learners(replay.client(), replay.client())
    get([victim.learn.remote(1, 48), other.learn.remote(1, 32)])
    with pytest.raises(ray_exceptions().RayActorError):
        get(victim.die_with_an_admission.remote(48))
    assert get(other.learn.remote(20, 32))["items"] == 20 * 32
    get(other.close.remote())
    # its first batch was told of with the second ask; the second one stays counted as sampled
    wait_until(lambda: clients_account(replay) == (2 * 48 + 21 * 32, 48 + 21 * 32))
    assert replay.stats()["tables"]["replay"]["samples"] == 2 * 48 + 21 * 32
    assert_replay_balanced(replay.stats())


def test_learner_that_dies_while_it_waits_keeps_nobody_waiting(
    start: Start, tmp_path: Path
) -> None:
    # The only worker hangs from its 13th fragment on: no more than 288 items are ever inserted. One
    # fragment a call, because those of a call come together, and not before the one that hangs.
    hang = (0, 0, 12, str(tmp_path / "hangs"))
    one_each = QueueLimits(max_fragments_per_call=1)
    limiter = SampleToInsertRatio(1.0, min_size=10, error_buffer=1000.0)
    _, replay = start(
        {"num_workers": 1, "env_options": {"hang": hang}, "queue": one_each},
        tables=TableConfig(items=TABLE.items, limiter=limiter),
        num_shards=1,
    )
    wait_until(lambda: replay.stats()["steps"]["inserted"] == 12 * 24)
    waiting, behind = start_learners(replay.client(), replay.client())
    pid = get(waiting.pid.remote())
    # within the limiter's window, but never admitted: inserts have ended
    never = waiting.sample.remote(1900, None)
    wait_until(lambda: num_waiting(replay) == 1)
    later = behind.sample.remote(16, TIMEOUT_S)
    wait_until(lambda: num_waiting(replay) == 2)
    os.kill(pid, signal.SIGKILL)
    assert get(later) == 16
    with pytest.raises(ray_exceptions().RayActorError):
        get(never)
    assert replay.stats()["tables"]["replay"]["samples"] == 16


def test_dead_shard_is_drawn_again_and_its_keys_are_refused(start: Start) -> None:
    _, replay = start()
    learner, other = start_learners(replay.client(), replay.client())
    sample_until(replay, has_sizes(100))
    keys = get(learner.keep_keys.remote(256))
    kill_shard(replay, 0)
    found = get([each.learn.remote(20, 64) for each in (learner, other)])
    assert [each["items"] for each in found] == [20 * 64] * 2
    sample_until(replay, lambda stats: stats["shards"][0]["incarnation"] == 1)
    sample_until(replay, has_sizes(50))
    # the learner has seen the new one
    get(learner.learn.remote(5, 64))
    before = get(learner.stats.remote())["stale_priorities"]
    sent = get(learner.update_kept.remote())
    assert 0 < sent < len(keys)
    assert get(learner.stats.remote())["stale_priorities"] == before + len(keys) - sent
    assert_replay_balanced(replay.stats())


def test_keys_of_before_a_load_are_refused_by_the_shard(start: Start, tmp_path: Path) -> None:
    coordinator, replay = start()
    (learner,) = start_learners(replay.client())
    sample_until(replay, has_sizes(100))
    drain(coordinator, replay)
    replay.save(tmp_path)
    keys = get(learner.keep_keys.remote(64))
    replay.load(tmp_path)
    # the client knows of no load: it is the shards that refuse
    assert get(learner.update_kept.remote()) == len(keys)
    wait_until(lambda: get(learner.stats.remote())["stale_priorities"] == len(keys))
    assert get(learner.learn.remote(3, 32))["updated"] == 3 * 32


def test_priorities_of_clients_reach_their_items(start: Start) -> None:
    table = TableConfig(items=TABLE.items, sampler="prioritized", exponent=1.0)
    coordinator, replay = start(tables=table)
    sample_until(replay, has_sizes(100))
    drain(coordinator, replay)
    with replay.client() as client:
        chosen = client.sample(64, timeout_s=TIMEOUT_S)
        assert_whole_transitions(chosen)
        rows = [int(np.argmax(chosen.env_id // 3 == worker)) for worker in (0, 1)]
        # so much more than all others together that a batch has nothing else
        assert client.update_priorities(chosen.key[rows], [1e12, 1e12]) == 2
        # what the shards are worth is known after a batch that was told of with the next ask
        client.sample(64, timeout_s=TIMEOUT_S)
        client.stats(timeout_s=TIMEOUT_S)
        batch = client.sample(64, timeout_s=TIMEOUT_S)
        assert set(batch.key) == set(chosen.key[rows])
        assert np.allclose(batch.probability, 0.5, rtol=1e-6)  # the others' part is below 1e-7
        assert client.size(timeout_s=TIMEOUT_S) == replay.size()
        assert client.can_sample(64, timeout_s=TIMEOUT_S)


def test_tensors_come_ahead_and_as_a_dataset(start: Start) -> None:
    _, replay = start(ONE_WORKER, num_shards=1)
    (learner,) = start_learners(replay.client())
    assert get(learner.learn_tensors.remote(5)) == 5 * 16 + 3 * 8


def test_mailbox_that_dies_is_started_again(start: Start) -> None:
    import ray

    _, replay = start(ONE_WORKER, num_shards=1)
    (learner,) = start_learners(replay.client())
    assert get(learner.learn.remote(2, 32))["items"] == 64
    for _ in range(2):
        ray.kill(replay._mailbox._actor, no_restart=False)  # type: ignore[union-attr]
        assert get(learner.learn.remote(3, 32))["items"] == 96
    admitted, delivered = clients_account(replay)
    assert delivered <= 8 * 32 <= admitted


def test_ends_and_wrong_arguments_are_told(start: Start) -> None:
    table = TableConfig(items=TABLE.items, limiter=LIMITER)
    _, replay = start(ONE_WORKER, tables=table, num_shards=1)
    client = replay.client()
    assert len(client.sample(16, timeout_s=TIMEOUT_S).key) == 16
    with pytest.raises(SpecError, match="enlarge its error_buffer"):
        client.sample(801, timeout_s=TIMEOUT_S)
    with pytest.raises(SpecError, match="no table 'other'"):
        client.sample(16, table="other")
    with pytest.raises(SpecError, match="batch_size is 0"):
        client.sample(0)
    with pytest.raises(SpecError, match="finite"):
        client.update_priorities(np.zeros(1, np.int64), [-1.0])
    with pytest.raises(TimeoutError, match="within 0"):
        client.sample(24, timeout_s=0.0)
    # samples asked for then come first
    before = client._numbers.__reduce__()
    assert len(client.sample(24, timeout_s=TIMEOUT_S).key) == 24
    assert client._numbers.__reduce__() == before
    other = replay.client()
    other.close()
    with pytest.raises(ClosedError, match="client is closed"):
        other.sample(16)
    replay.close()
    with pytest.raises(ClosedError, match="service is closed"):
        client.sample(16, timeout_s=TIMEOUT_S)
    with pytest.raises(ClosedError, match="service is closed"):
        replay.client()


def test_after_the_workers_clients_get_the_rest(start: Start) -> None:
    # so far that inserts never wait for it
    limiter = SampleToInsertRatio(1.0, min_size=10, error_buffer=200_000.0)
    coordinator, replay = start(tables=TableConfig(items=TABLE.items, limiter=limiter))
    client = replay.client()
    client.sample(32, timeout_s=TIMEOUT_S)
    drain(coordinator, replay)
    with pytest.raises(ClosedError, match="drained"):
        while True:
            assert_whole_transitions(client.sample(8192, timeout_s=TIMEOUT_S))
    stats = replay.stats()["tables"]["replay"]
    assert stats["inserts"] - stats["samples"] < 10 - 200_000 + 8192


def test_learner_that_waits_is_told_of_the_end(start: Start) -> None:
    table = TableConfig(items=TABLE.items, limiter=SampleToInsertRatio(1.0, 90_000, 1e6))
    # the worker makes 60 steps/s: too few, even if the learner takes minutes to start
    slow = ONE_WORKER | {"env_options": {"sleep_s": 0.05}}
    _, replay = start(slow, tables=table, num_shards=1)
    (learner,) = start_learners(replay.client())
    waiting = learner.sample.remote(16, None)
    wait_until(lambda: num_waiting(replay) == 1)
    replay.close()
    with pytest.raises(ray_exceptions().RayTaskError, match="ClosedError"):
        get(waiting)


def test_items_in_this_process_have_no_clients() -> None:
    with (
        make_coordinator(num_workers=0) as coordinator,
        make_service(coordinator, num_shards=0) as replay,
        pytest.raises(SpecError, match="num_shards is 0"),
    ):
        replay.client()


def test_another_driver_of_the_same_ray_samples_too(start: Start, tmp_path: Path) -> None:
    import ray

    _, replay = start(ONE_WORKER, num_shards=1)
    path = tmp_path / "client"
    path.write_bytes(pickle.dumps(replay.client()))
    address = ray.get_runtime_context().gcs_address
    command = [sys.executable, __file__, str(path), address]
    # as the first one, which listens on loopback only
    env = {**environ_with_path(), "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    there = subprocess.run(command, capture_output=True, text=True, timeout=600, env=env)
    assert there.returncode == 0, there.stderr[-3000:]
    wait_until(lambda: clients_account(replay) == (10 * 32, 10 * 32))


def learn_elsewhere(path: Path, address: str) -> None:
    """The other driver's program."""
    import logging

    import ray

    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    ray.init(address, _node_ip_address="127.0.0.1", **quiet)
    client = pickle.loads(path.read_bytes())
    for _ in range(10):
        batch = client.sample(32, timeout_s=TIMEOUT_S)
        assert_whole_transitions(batch)
        assert client.update_priorities(batch.key, np.ones(32)) == 32
    # the last batch is told of
    client.stats(timeout_s=TIMEOUT_S)


if __name__ == "__main__":
    learn_elsewhere(Path(sys.argv[1]), sys.argv[2])
