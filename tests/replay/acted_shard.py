# SPDX-License-Identifier: Apache-2.0
"""Shards and workers played by the test: it says what is carried out when, and who dies."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from acted_worker import worker_config
from counter_world import CounterPolicy
from fragments import fragment_info
from replay_world import ACTION_SPACE, OBS_SPACE, ReplayCounterCollector

from rollouts.replay import TableConfig
from rollouts.replay.shards.shard import (
    FragmentLostError,
    ReplayShard,
    ShardConfig,
    ShardLostError,
)
from rollouts.workers import FragmentInfo

NUM_SHARDS = 2
NUM_ENVS, LENGTH = worker_config().num_envs, worker_config().rollout_length


class ActedShard:
    """A shard whose calls are carried out when the test says so."""

    name = ""

    def __init__(self, shard_id: int, tables: tuple[TableConfig, ...]) -> None:
        self.shard = ReplayShard(
            ShardConfig(
                single_observation_space=OBS_SPACE,
                single_action_space=ACTION_SPACE,
                tables=tables,
                num_shards=NUM_SHARDS,
                shard_id=shard_id,
                stack_num=1,
                policy_state=(),
                extras={},
                seed=0,
                max_batch_length=LENGTH,
                num_threads=1,
                max_bytes=0,
                storage_dir="",
            )
        )
        self.calls: deque[tuple[str, tuple[Any, ...], Future[Any]]] = deque()
        self.is_alive = True

    def call(self, method: str, *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if self.is_alive:
            self.calls.append((method, args, future))
        else:
            future.set_exception(ShardLostError("dead"))
        return future

    def work(self, *, tells: bool = True) -> None:
        """Carries out the next call; without `tells` the shard dies before it answers."""
        if not self.calls:
            return
        method, args, future = self.calls.popleft()
        try:
            if method == "add" and args[1] is None:
                raise FragmentLostError("gone")
            result = getattr(self.shard, method)(*args)
        except Exception as error:
            future.set_exception(error)
            return
        if tells:
            future.set_result(result)
        else:
            self.calls.appendleft((method, args, future))
            self.close()

    def close(self) -> None:
        self.is_alive = False
        while self.calls:
            self.calls.popleft()[2].set_exception(ShardLostError("dead"))


class Worker:
    """Collects fragments of one worker, life after life."""

    def __init__(self, worker_id: int) -> None:
        self.worker_id, self.incarnation = worker_id, -1
        self.begin_life()

    def begin_life(self) -> None:
        self.incarnation += 1
        self.seq_no = 0
        config = replace(worker_config(), worker_id=self.worker_id, incarnation=self.incarnation)
        self.collector = ReplayCounterCollector(config, lambda spec: CounterPolicy())

    def collect(self) -> tuple[FragmentInfo, Any]:
        info = fragment_info(
            self.seq_no, self.worker_id, self.incarnation, num_steps=NUM_ENVS * LENGTH
        )
        self.seq_no += 1
        return info, self.collector.collect()
