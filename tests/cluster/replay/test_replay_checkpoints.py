# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of a ReplayService: made under load, read by another process, damaged on the way."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from counter_world import wait_until, weights
from processes import environ_with_path
from replay_world import (
    STEP,
    TABLE,
    assert_replay_balanced,
    assert_whole_sequences,
    assert_whole_transitions,
    make_coordinator,
    make_service,
)

from rollouts.errors import SpecError
from rollouts.replay import ReplayService, SampleToInsertRatio, Sequences, ShardOptions, TableConfig

pytestmark = pytest.mark.system

TIMEOUT_S = 300.0
# with a ratio a coordinator without workers collects nothing as long as there is enough
LIMITER = SampleToInsertRatio(1.0, min_size=10, error_buffer=1e6)
TABLES = [
    TableConfig(items=TABLE.items, sampler="prioritized", limiter=LIMITER),
    TableConfig("sequences", items=Sequences(4, period=2), limiter=LIMITER),
]


@pytest.fixture
def replay(ray_session: Any) -> Iterator[ReplayService]:
    """A service whose two workers and two shards are at work."""
    with make_coordinator() as coordinator, make_service(coordinator, tables=TABLES) as service:
        coordinator.publish_weights(weights())
        yield service


def sample_and_learn(replay: ReplayService, num_batches: int) -> list[Any]:
    """Samples, writes priorities back, and returns what was sampled as plain numbers."""
    found: list[Any] = []
    for _ in range(num_batches):
        batch = replay.sample(64, timeout_s=TIMEOUT_S)
        assert_whole_transitions(batch)
        arrays = (batch.key, batch.obs, batch.priority, batch.probability, batch.times_sampled)
        found += [np.asarray(array).tolist() for array in arrays]
        replay.update_priorities(batch.key, 1.0 + batch.obs[:, STEP] % 5)
        sequences = replay.sample(8, table="sequences", timeout_s=TIMEOUT_S)
        assert_whole_sequences(sequences)
        found += [sequences.key.tolist(), sequences.obs.tolist()]
    return found


def account(replay: ReplayService) -> list[Any]:
    """Returns what the limiters go by."""
    tables = replay.stats()["tables"]
    return [[table[name] for name in ("size", "inserts", "samples")] for table in tables.values()]


def restore(directory: Path) -> list[Any]:
    """Returns the account and the next samples of a checkpoint, in a service of its own."""
    with (
        make_coordinator(num_workers=0) as coordinator,
        make_service(coordinator, tables=TABLES) as replay,
    ):
        replay.load(directory)
        assert_replay_balanced(replay.stats())
        return [account(replay), *sample_and_learn(replay, 5)]


def restore_elsewhere(directory: Path) -> list[Any]:
    """Runs `restore` in a process of its own, with a Ray of its own."""
    command = [sys.executable, __file__, str(directory)]
    there = subprocess.run(
        command, capture_output=True, text=True, timeout=600, env=environ_with_path()
    )
    assert there.returncode == 0, there.stderr
    found: list[Any] = json.loads(there.stdout.splitlines()[-1])
    return found


def fill(replay: ReplayService, least: int) -> None:
    while replay.size() < least:
        sample_and_learn(replay, 1)


def test_checkpoint_under_load_is_the_same_in_every_process(
    replay: ReplayService, tmp_path: Path
) -> None:
    fill(replay, 300)
    replay.save(tmp_path)
    fill(replay, replay.size() + 200)
    first = account(replay)
    replay.save(tmp_path)
    second = account(replay)
    # one file per shard, and the one that names them
    assert len(list(tmp_path.iterdir())) == 3
    fill(replay, replay.size() + 200)
    here = restore(tmp_path)
    # all are from one moment of the call, with the samples that there were
    for low, taken, high in zip(first, here[0], second, strict=True):
        assert low[1] <= taken[1] <= high[1] + 4 * 24 and low[2] == taken[2] == high[2]
    assert restore_elsewhere(tmp_path) == here


def test_restored_process_goes_on_exactly_as_this_one(ray_session: Any, tmp_path: Path) -> None:
    with make_coordinator() as coordinator, make_service(coordinator, tables=TABLES) as replay:
        coordinator.publish_weights(weights())
        fill(replay, 300)
        # what comes from here on would be in one of the two only
        coordinator.drain(TIMEOUT_S)
        wait_until(lambda: coordinator.stats()["env_steps"]["queued"] == 0)
        taken = coordinator.stats()["env_steps"]["delivered"]
        wait_until(lambda: replay.stats()["steps"]["inserted"] == taken)
        replay.save(tmp_path)
        here = [account(replay), *sample_and_learn(replay, 5)]
    # the test above has the same in another process
    assert restore(tmp_path) == here


def test_other_workers_go_on_without_a_seam(replay: ReplayService, tmp_path: Path) -> None:
    fill(replay, 300)
    replay.save(tmp_path)
    saved = replay.stats()
    with make_coordinator() as coordinator, make_service(coordinator, tables=TABLES) as other:
        other.load(tmp_path)
        loaded = other.stats()
        assert loaded["steps"]["inserted"] <= saved["steps"]["inserted"]
        # these fragments have the names of the first run's, and are not refused for that
        coordinator.publish_weights(weights())
        fill(other, 3 * other.size())
        stats = other.stats()
        assert_replay_balanced(stats)
        assert stats["steps"]["discarded"] == {}
        # the episodes that were open in the checkpoint, whose lengths are those of the counter;
        # a shard tells of them with its first fragment after it
        num_open = 0
        for shard, now in zip(loaded["shards"], stats["shards"], strict=True):
            if now["env_steps"] > shard["env_steps"]:
                env_ids = 3 * shard["shard_id"] + np.arange(3)
                num_open += np.count_nonzero(shard["env_steps"] // 3 % (3 + env_ids % 4))
        assert stats["episodes_cut"] - loaded["episodes_cut"] == num_open


def test_load_replaces_what_a_running_service_has(ray_session: Any, tmp_path: Path) -> None:
    # the workers are slow, so that little comes between a load and a look at the size
    slow = {"env_options": {"sleep_s": 0.005}}
    with (
        make_coordinator(**slow) as coordinator,
        make_service(coordinator, tables=TABLES) as replay,
    ):
        coordinator.publish_weights(weights())
        fill(replay, 300)
        replay.save(tmp_path)
        fill(replay, 3 * replay.size())
        old, before = replay.sample(64, timeout_s=TIMEOUT_S), replay.size()
        replay.load(tmp_path)
        assert replay.size() < before
        assert replay.update_priorities(old.key, np.ones(64)) == 0
        fill(replay, before)
        assert_replay_balanced(replay.stats())
        assert replay.stats()["steps"]["discarded"] == {}


@contextmanager
def files_of_at_most(num_bytes: int) -> Iterator[None]:
    """Makes this process's writes fail beyond a size, as those to a full disk do."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def damage(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    if how == "gone":
        path.unlink()
    elif how == "cut off":
        path.write_bytes(content[:-100])
    else:
        content[{"magic": 3, "header": 60, "arrays": -200}[how]] ^= 1
        path.write_bytes(content)


def test_damaged_checkpoint_is_refused_and_changes_nothing(
    ray_session: Any, tmp_path: Path
) -> None:
    saved = tmp_path / "saved"
    with (
        make_coordinator(num_workers=0) as coordinator,
        make_service(coordinator, tables=TABLES) as replay,
    ):
        coordinator.publish_weights(weights())
        sample_and_learn(replay, 2)
        replay.save(saved)
        sample_and_learn(replay, 2)
        before = replay.stats()
        for file in ("service.replay", "shard-0-1.replay", "shard-1-1.replay"):
            for how in ("gone", "cut off", "magic", "header", "arrays"):
                if (file, how) == ("service.replay", "arrays"):
                    continue  # it has none
                copy = shutil.copytree(saved, tmp_path / f"{file} {how}")
                damage(copy / file, how)
                with pytest.raises(FileNotFoundError if how == "gone" else SpecError):
                    replay.load(copy)
                assert replay.stats() == before
        sample_and_learn(replay, 2)
        replay.load(saved)
        sample_and_learn(replay, 2)


def test_checkpoint_of_another_replay_is_refused(tmp_path: Path) -> None:
    with make_coordinator(num_workers=0) as coordinator:
        coordinator.publish_weights(weights())
        with make_service(coordinator, num_shards=0) as replay:
            replay.sample(16)
            with pytest.raises(FileNotFoundError):
                replay.load(tmp_path)
            replay.save(tmp_path)
        with (
            make_service(coordinator, num_shards=0, tables=TABLES) as replay,
            pytest.raises(SpecError, match="same tables"),
        ):
            replay.load(tmp_path)
        other = TableConfig(items=Sequences(4))
        with make_service(coordinator, num_shards=0, tables=other) as replay:
            with pytest.raises(SpecError, match="same arguments"):
                replay.load(tmp_path)
            assert replay.size() == 0


def test_failed_save_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    with (
        make_coordinator(num_workers=0) as coordinator,
        make_service(coordinator, num_shards=0, tables=TABLES) as replay,
    ):
        coordinator.publish_weights(weights())
        sample_and_learn(replay, 2)
        replay.save(tmp_path)
        saved = account(replay)
        sample_and_learn(replay, 2)
        with files_of_at_most(1000), pytest.raises(OSError):
            replay.save(tmp_path)
        sample_and_learn(replay, 2)
        replay.load(tmp_path)
        assert account(replay) == saved


def test_mapped_shards_hold_the_same_and_leave_no_file(tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    storage.mkdir()
    with (
        make_coordinator(num_workers=0) as coordinator,
        make_service(
            coordinator, num_shards=0, tables=TABLES, shards=ShardOptions(storage_dir=storage)
        ) as replay,
    ):
        coordinator.publish_weights(weights())
        sample_and_learn(replay, 2)
        # the space is freed with the process, whatever ends it
        assert list(storage.iterdir()) == []
        maps = Path("/proc/self/maps").read_text()
        assert f"{storage}/shard-0-" in maps
        replay.save(tmp_path)
        replay.load(tmp_path)
        here = [account(replay), *sample_and_learn(replay, 3)]
    with (
        make_coordinator(num_workers=0) as coordinator,
        make_service(coordinator, num_shards=0, tables=TABLES) as replay,
    ):
        replay.load(tmp_path)
        in_memory = [account(replay), *sample_and_learn(replay, 3)]
    # but for the life that keys name: the first service was in use before it loaded
    same = [i for i in range(len(here)) if i == 0 or (i - 1) % 7 not in (0, 5)]
    assert [here[i] for i in same] == [in_memory[i] for i in same]


if __name__ == "__main__":
    print(json.dumps(restore(Path(sys.argv[1]))))
