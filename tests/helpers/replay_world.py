# SPDX-License-Identifier: Apache-2.0
"""Counter environments whose rollouts have final observations, for a replay of many shards."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from counter_world import FIELDS, CounterCollector, make_policy, wait_until

from rollouts import RolloutCoordinator
from rollouts.batch import RolloutBatch
from rollouts.replay import NStep, ReplayService, SequenceBatch, TableConfig, TransitionBatch
from rollouts.workers import CollectOptions

Start = Callable[..., tuple[RolloutCoordinator, ReplayService]]

TIMEOUT_S = 300.0
EPISODE, T, STEP = (FIELDS.index(name) for name in ("episode", "t", "step"))
OBS_SPACE = gymnasium.spaces.Box(0, 2**62, (len(FIELDS),), np.int64)
ACTION_SPACE = gymnasium.spaces.Discrete(64)
N, DISCOUNT = 3, 0.5
TABLE = TableConfig(items=NStep(N, DISCOUNT), max_size=100_000, sampler="prioritized")


class ReplayCounterCollector(CounterCollector):
    """Adds to a counter's rollout what the last observation of each episode would have been.

    Every second episode ends truncated. The reward of a step is its number.
    """

    def collect(self) -> RolloutBatch:
        batch = super().collect()
        ended = batch.terminated
        final = batch.obs[ended].copy()
        final[:, T] += 1
        final[:, STEP] += 1
        is_even = batch.obs[..., EPISODE] % 2 == 0
        return replace(
            batch,
            reward=batch.obs[..., STEP].astype(np.float32),
            terminated=ended & is_even,
            truncated=ended & ~is_even,
            final_obs=final,
            episode_return=batch.obs[..., STEP] + 1.0,
            episode_length=(batch.obs[..., T] + 1).astype(np.int32),
        )


def make_coordinator(**kwargs: Any) -> RolloutCoordinator:
    settings = {"num_workers": 2, "num_envs_per_worker": 3, "rollout_length": 8} | kwargs
    collect = CollectOptions(make_collector=ReplayCounterCollector)
    return RolloutCoordinator("Counter", make_policy, collect=collect, **settings)


def make_service(coordinator: RolloutCoordinator, **kwargs: Any) -> ReplayService:
    settings = {"tables": TABLE, "num_shards": 2} | kwargs
    return ReplayService(coordinator, OBS_SPACE, ACTION_SPACE, **settings)


def ref_of_a_dead_owner() -> Any:
    """Returns a reference to arrays that are lost for good, as with their node."""
    import ray

    @ray.remote(num_cpus=0)
    class Owner:
        def put(self) -> list[Any]:
            return [ray.put(np.zeros(1 << 20))]

    owner = Owner.remote()
    (ref,) = ray.get(owner.put.remote(), timeout=TIMEOUT_S)
    ray.kill(owner)

    def is_lost() -> bool:
        try:
            ray.get(ref, timeout=1.0)
        except ray.exceptions.GetTimeoutError:
            return False
        except ray.exceptions.ObjectLostError:
            return True
        return False

    wait_until(is_lost)
    return ref


def assert_whole_transitions(batch: Any) -> None:
    """Checks that n-step items have the steps that their observations say, of one episode."""
    assert isinstance(batch, TransitionBatch)
    obs, following, steps = batch.obs, batch.next_obs, batch.num_steps
    # an item is of one environment, one life and one episode
    assert (obs[:, :T] == following[:, :T]).all()
    assert (following[:, T] - obs[:, T] == steps).all()
    assert (following[:, STEP] - obs[:, STEP] == steps).all()
    length = 3 + obs[:, 0] % 4
    is_end = following[:, T] == length
    assert (following[:, T] <= length).all()
    is_even = obs[:, EPISODE] % 2 == 0
    assert (batch.terminated == (is_end & is_even)).all()
    assert (batch.truncated == (is_end & ~is_even)).all()
    discount = np.where(batch.terminated, 0.0, DISCOUNT**steps)
    assert (batch.discount == discount.astype(np.float32)).all()
    expected = sum(DISCOUNT**i * (obs[:, STEP] + i) * (i < steps) for i in range(N))
    # powers of 0.5 and whole numbers: exact
    assert (batch.reward == np.asarray(expected, np.float32)).all()


def assert_whole_sequences(batch: Any) -> None:
    """Checks that the steps of each sequence follow each other in one episode."""
    assert isinstance(batch, SequenceBatch)
    for column, steps in enumerate(batch.num_steps):
        obs = batch.obs[: steps + 1, column]
        assert (obs[:, :T] == obs[0, :T]).all()
        assert (obs[:, STEP] == obs[0, STEP] + np.arange(steps + 1)).all()
        assert (obs[:, T] == obs[0, T] + np.arange(steps + 1)).all()
        assert (batch.valid[:, column] == (np.arange(len(batch.valid)) < steps)).all()


def assert_replay_balanced(stats: dict[str, Any]) -> None:
    """Checks that every step that was taken is in a shard, on its way, discarded or lost."""
    steps = stats["steps"]
    discarded = sum(steps["discarded"].values())
    assert steps["produced"] == steps["inserted"] + steps["in_flight"] + discarded
    held = sum(shard["env_steps"] for shard in stats["shards"])
    assert steps["inserted"] == held + steps["lost_with_shards"]
    for table in stats["tables"].values():
        assert table["inserts"] >= table["size"] + table["deletes"]


def kill_shard(replay: ReplayService, shard_id: int) -> None:
    wait_until(lambda: replay.stats()["shards"][shard_id]["pid"] > 0)
    os.kill(replay.stats()["shards"][shard_id]["pid"], signal.SIGKILL)


@contextmanager
def stopped_shards(replay: ReplayService) -> Iterator[None]:
    """Keeps the processes of all shards from running in the block."""
    wait_until(lambda: all(shard["pid"] > 0 for shard in replay.stats()["shards"]))
    pids = [shard["pid"] for shard in replay.stats()["shards"]]
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def kill_worker(coordinator: RolloutCoordinator, worker_id: int) -> None:
    os.kill(coordinator.stats()["workers"][worker_id]["pid"], signal.SIGKILL)


def sample_until(replay: ReplayService, is_enough: Callable[[dict[str, Any]], bool]) -> None:
    """Samples, checks and writes priorities back until the stats are as wanted."""
    while not is_enough(replay.stats()):
        batch = replay.sample(32, timeout_s=TIMEOUT_S)
        assert_whole_transitions(batch)
        replay.update_priorities(batch.key, 1.0 + batch.obs[:, STEP] % 3)


def drain(coordinator: RolloutCoordinator, replay: ReplayService) -> dict[str, Any]:
    """Lets all that was collected be inserted; returns the replay's stats."""
    coordinator.drain(TIMEOUT_S)
    wait_until(lambda: coordinator.stats()["env_steps"]["queued"] == 0)
    taken = coordinator.stats()["env_steps"]["delivered"]
    wait_until(lambda: replay.stats()["steps"]["produced"] == taken)
    wait_until(lambda: replay.stats()["steps"]["in_flight"] == 0)
    return replay.stats()


def has_sizes(least: int) -> Callable[[dict[str, Any]], bool]:
    return lambda stats: min(shard["size"] for shard in stats["shards"]) > least
