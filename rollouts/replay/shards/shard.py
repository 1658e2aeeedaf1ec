# SPDX-License-Identifier: Apache-2.0
"""One shard of a replay: a ReplayBuffer that reports its state after each call. A plain class."""

from __future__ import annotations

import math
import os
import uuid
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rollouts.batch import EndedEpisodes
from rollouts.errors import RolloutsError
from rollouts.learner.fragment import Fragment, FragmentInfo
from rollouts.replay.buffer import ReplayBuffer
from rollouts.replay.config import MinSize, TableConfig

if TYPE_CHECKING:
    import gymnasium

    from rollouts.collecting.frame_stacks import Payload
    from rollouts.replay.sampling import ReplayBatch

Array = NDArray[Any]


class ShardLostError(RolloutsError):
    """The process of a shard ended, and its unsaved data are lost."""


class FragmentLostError(RolloutsError):
    """The arrays of a fragment no longer exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardConfig:
    """All arguments of one shard; ReplayService documents each."""

    single_observation_space: gymnasium.Space[Any]
    single_action_space: gymnasium.Space[Any]
    tables: tuple[TableConfig, ...]  # sizes are those of all shards together
    num_shards: int
    shard_id: int
    stack_num: int
    policy_state: tuple[Array, ...]
    extras: Mapping[str, Array]
    seed: int
    max_batch_length: int
    num_threads: int
    max_bytes: int
    storage_dir: str

    def part(self, max_size: int) -> int:
        """Returns the number of a table's items that one shard may have."""
        return math.ceil(max_size / self.num_shards)

    def make_buffer(self) -> ReplayBuffer:
        """Makes the shard's part of the tables; the service itself applies the limiters."""
        tables = [
            replace(table, max_size=self.part(table.max_size), limiter=MinSize(1))
            for table in self.tables
        ]
        seed = np.random.SeedSequence((self.seed, self.shard_id)).generate_state(1, np.uint64)
        path = ""
        if self.storage_dir:
            name = f"shard-{self.shard_id}-{uuid.uuid4().hex}.rows"
            path = os.path.join(self.storage_dir, name)
        buffer = ReplayBuffer(
            self.single_observation_space,
            self.single_action_space,
            tables,
            stack_num=self.stack_num,
            policy_state=self.policy_state,
            extras=self.extras,
            seed=int(seed[0] >> np.uint64(1)),
            max_batch_length=self.max_batch_length,
            num_threads=self.num_threads,
            max_bytes=self.max_bytes,
            path=path,
        )
        if path:
            # the space is freed when the process ends, even by a crash
            os.unlink(path)
        return buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReport:
    """One table of a shard after a call."""

    size: int = 0
    inserts: int = 0  # since the start, including what a load brought; also `deletes`
    deletes: int = 0
    mean_mass: float = 1.0  # mean of priority^exponent at the last sample; 1 where uniform

    @property
    def mass(self) -> float:
        """Total priority; a shard gets draws in proportion to it."""
        return self.size * self.mean_mass


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardReport:
    """The state of a shard after a call."""

    number: int = 0  # counts the reports of this process; 0: made elsewhere
    tables: Mapping[str, TableReport] = field(default_factory=dict)
    env_steps: int = 0  # stored since the start, including what a load brought
    episodes_cut: int = 0
    used_bytes: int = 0
    allocated_bytes: int = 0
    pid: int = 0
    episodes: EndedEpisodes | None = None  # those that ended in an added fragment


class ShardHandle(Protocol):
    """The driver's end of a shard. No method blocks; calls run in the order in which they are made.

    `name` is unique and leads clients to the shard's process; "": the shard is in this process.
    """

    @property
    def name(self) -> str: ...

    def call(self, method: str, *args: Any) -> Future[Any]:
        """Calls a method of ReplayShard.

        The future fails with ShardLostError, FragmentLostError, or with the method's error. An
        argument that is a FragmentHandle's `fetch` arrives as the arrays.
        """
        ...

    def close(self) -> None: ...


class ReplayShard:
    """Adds fragments exactly once, samples, saves and loads. Not thread-safe."""

    def __init__(self, config: ShardConfig) -> None:
        """Makes an empty shard."""
        self._config = config
        self._buffer = config.make_buffer()
        self._loaded: tuple[ReplayBuffer, dict[str, float]] | None = None
        self._mean_mass: dict[str, float] = {}
        self._incarnation = 0
        self._num_reports = 0

    def report(self) -> ShardReport:
        """Returns a report on the shard's state."""
        store, stats = self._buffer.store, self._buffer.stats()
        tables = {}
        for table in self._config.tables:
            info = store.info(table.name)
            mass = 1.0
            if table.sampler == "prioritized":
                # before the first sample, every item has the priority of new items
                first = float(info["max_priority"]) ** table.exponent
                mass = self._mean_mass.get(table.name, first)
            tables[table.name] = TableReport(
                size=int(info["size"]),
                inserts=int(info["num_inserts"]),
                deletes=int(info["num_deletes"]),
                mean_mass=mass,
            )
        steps = stats["steps"]
        self._num_reports += 1
        return ShardReport(
            number=self._num_reports,
            tables=tables,
            env_steps=steps["produced"] - sum(steps["discarded"].values()),
            episodes_cut=stats["episodes_cut"],
            **stats["memory"],
            pid=os.getpid(),
        )

    def add(self, info: FragmentInfo, payload: Payload) -> ShardReport:
        """Inserts the items of a fragment, unless it was inserted before.

        A fragment that does not follow the worker's last one here cuts the open episodes, so that
        no item crosses the gap.
        """
        fragment = Fragment(info, payload)
        self._buffer.add_batch(fragment)
        # final observations are left out, because the buffer has them
        episodes = fragment.batch.episodes()._replace(final_obs=None)
        return replace(self.report(), episodes=episodes)

    def sample(
        self, table: str, batch_size: int, policy_version: int
    ) -> tuple[ReplayBatch | None, ShardReport]:
        """Returns as much of a sample as there is; None: the shard has nothing.

        Args:
          table: Name of the table.
          batch_size: Most items.
          policy_version: The newest version in all shards.
        """
        config = next(each for each in self._config.tables if each.name == table)
        size = self._buffer.size(table)
        count = min(batch_size, size) if config.max_times_sampled else batch_size
        if not size:
            return None, self.report()
        self._buffer.policy_version = max(self._buffer.policy_version, policy_version)
        batch = self._buffer.sample(count, table=table, beta=0.0, timeout_s=0.0)
        if config.sampler == "prioritized":
            # probability = priority^exponent / total holds for each item; the largest is the most
            # exact
            best = int(np.argmax(batch.probability))
            if batch.probability[best] > 0 and batch.priority[best] > 0:
                power = float(batch.priority[best]) ** config.exponent
                self._mean_mass[table] = power / float(batch.probability[best]) / size
        return batch, self.report()

    def begin_incarnation(self, incarnation: int) -> None:
        """Sets the incarnation of the shard's items, or of those that the next finished load
        brings."""
        self._incarnation = incarnation

    def update_priorities(
        self, table: str, keys: Array, priorities: Array, incarnation: int
    ) -> bool:
        """Sets priorities of items that still exist; False: the keys are of another incarnation."""
        if incarnation != self._incarnation:
            return False
        self._buffer.update_priorities(keys, priorities, table=table)
        return True

    def save(self, path: str) -> ShardReport:
        """Writes everything to a file, atomically."""
        self._buffer.save(path)
        return self.report()

    def load(self, path: str, mean_mass: dict[str, float]) -> None:
        """Reads a file of `save` into memory; `finish_load` decides whether it replaces the buffer.

        Raises:
          SpecError, OSError: There is no such file, or it is damaged or of another replay.
        """
        buffer = self._config.make_buffer()
        try:
            buffer.load(path)
        except BaseException:
            buffer.close()
            raise
        self._loaded = buffer, mean_mass

    def finish_load(self, take_over: bool) -> ShardReport:
        """Goes on with what `load` read, if anything, or forgets it."""
        loaded, self._loaded = self._loaded, None
        if loaded is not None and take_over:
            self._buffer.close()
            self._buffer, self._mean_mass = loaded
        elif loaded is not None:
            loaded[0].close()
        return self.report()

    def close(self) -> None:
        """Frees the memory."""
        self._buffer.close()


class LocalShard:
    """A shard in this process: every call is over when it returns. See ShardHandle."""

    name = ""

    def __init__(self, config: ShardConfig) -> None:
        """Makes the shard."""
        self._shard = ReplayShard(config)

    def call(self, method: str, *args: Any) -> Future[Any]:
        """Calls a method of the shard, now."""
        future: Future[Any] = Future()
        try:
            future.set_result(getattr(self._shard, method)(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def close(self) -> None:
        """Frees the memory."""
        self._shard.close()
