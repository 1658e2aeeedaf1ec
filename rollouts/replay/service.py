# SPDX-License-Identifier: Apache-2.0
"""ReplayService: the fragments of a coordinator's workers as one replay in many shards."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rollouts.batch import EndedEpisodes
from rollouts.checks import whole_number
from rollouts.errors import SpecError
from rollouts.features import check
from rollouts.replay.arguments import (
    as_batch_size,
    as_beta,
    as_count,
    as_floats,
    as_path,
    as_timeout,
    as_whole,
)
from rollouts.replay.buffer import ReplayBuffer
from rollouts.replay.config import TableConfig
from rollouts.replay.faces import SampledReplay, on_device
from rollouts.replay.sampling import ReplayBatch
from rollouts.replay.shards.keys import KeyLayout
from rollouts.replay.shards.shard import LocalShard, ShardConfig, ShardHandle
from rollouts.replay.shards.shard_driver import ShardDriver
from rollouts.replay.shards.shard_options import ShardOptions
from rollouts.replay.tables import by_name
from rollouts.support.extras import needs
from rollouts.support.field_checks import check_type
from rollouts.support.keywords import explains_keywords

if TYPE_CHECKING:
    import gymnasium
    import torch

    from rollouts.replay.clients.asking import Mailbox
    from rollouts.replay.clients.client import ReplayClient
    from rollouts.replay.clients.desk import Desk
    from rollouts.workers.on_ray.coordinator import RolloutCoordinator

Array = NDArray[Any]


class ReplayService(SampledReplay):
    """A replay spread over shards, filled by the workers of a RolloutCoordinator.

    A learner uses it like a `ReplayBuffer`: it has the same tables, batches, priorities, stats and
    metrics. A thread takes the fragments from the coordinator and sends all fragments of a worker
    to the same shard (worker_id % num_shards). With Ray only references pass through this process:
    the arrays go from the worker through the object store to the shard. (Arrays that Ray keeps
    inline, below about 100 KB, travel with the reference; they are not unpacked here.) While a rate
    limiter admits no inserts, no fragment is taken, so the coordinator's queue fills and the
    workers wait.

    A fragment is inserted once. A shard that dies is started again from the last checkpoint, or
    empty. Fragments that were on their way are inserted then; its other data are lost and counted.
    Items of a worker that dies are complete: the steps of its next incarnation are never joined to
    its last ones.

    A rate limiter counts for the whole table, for any number of shards: samples are admitted
    exactly, inserts by whole fragments. A batch is drawn from all shards in proportion to their
    priorities, or to their sizes if the sampler is not "prioritized". "fifo", "lifo", the heaps,
    `age` and max_size (divided among the shards) apply to each shard by itself.

    Thread-safe. With a coordinator without workers (num_workers=0) no thread takes fragments:
    `sample` collects what it needs, at least one fragment per call where the limiter sets no ratio.

    Example:
      with ReplayService(coordinator, spec.single_observation_space, spec.single_action_space,
                         TableConfig(max_size=1_000_000), num_shards=2) as replay:
          batch = replay.sample(256, device="cuda")
          replay.update_priorities(batch.key, td_error.abs())
    """

    @explains_keywords("ReplayService")
    def __init__(
        self,
        coordinator: RolloutCoordinator,
        single_observation_space: gymnasium.Space[Any],
        single_action_space: gymnasium.Space[Any],
        tables: TableConfig | Sequence[TableConfig] | None = None,
        *,
        num_shards: int = 0,
        stack_num: int = 1,
        policy_state: Sequence[Array] = (),
        extras: Mapping[str, ArrayLike] = MappingProxyType({}),
        seed: int = 0,
        ray_address: str | None = None,
        shards: ShardOptions = ShardOptions(),
    ) -> None:
        """Starts the shards and the feeding thread.

        Args:
          coordinator: Made with CollectOptions(keep_final_obs=True). No other code may `get` from
            it, and it must be closed after the service.
          single_observation_space, single_action_space: Spaces of one environment.
          tables: As for ReplayBuffer, with sizes of all shards together; limiters are MinSize or
            SampleToInsertRatio.
          num_shards: Number of Ray actors; 0: one shard in this process, without Ray.
          stack_num, policy_state, extras, seed: As ReplayBuffer.
          ray_address: As RolloutCoordinator.
          shards: Memory, threads, place and restarts of each shard.

        Raises:
          SpecError: An argument is out of range, or the limiter would deadlock.
        """
        whole_number("num_shards", num_shards, 0, 2**15)
        _check_coordinator(coordinator)
        check_type("shards", shards, ShardOptions, "ShardOptions(num_threads=2)")
        self.tables = by_name(tables)
        config = ShardConfig(
            single_observation_space=single_observation_space,
            single_action_space=single_action_space,
            tables=tuple(self.tables.values()),
            num_shards=max(1, num_shards),
            shard_id=0,
            stack_num=stack_num,
            policy_state=tuple(policy_state),
            extras={name: np.asarray(value) for name, value in extras.items()},
            seed=seed,
            max_batch_length=shards.max_batch_length,
            num_threads=shards.num_threads,
            max_bytes=shards.max_bytes,
            storage_dir=os.fspath(shards.storage_dir),
        )
        _check(config, coordinator.num_workers)
        launch, self._leave = _launcher(config, num_shards, shards, ray_address)
        self._keys = KeyLayout(
            max(config.part(table.max_size) for table in config.tables), config.num_shards
        )
        self._desk_lock = threading.Lock()  # guards _desk and _mailbox
        self._desk: Desk | None = None
        self._mailbox: Mailbox | None = None
        self._is_remote = num_shards > 0
        try:
            self._driver = ShardDriver(
                coordinator,
                launch,
                config.num_shards,
                tables=config.tables,
                keys=self._keys,
                is_remote=self._is_remote,
                max_restarts=shards.max_restarts,
            )
        except BaseException:
            self._leave()
            raise

    def sample(
        self,
        batch_size: int,
        *,
        table: str | None = None,
        beta: float = 0.4,
        timeout_s: float | None = None,
        device: str | torch.device | None = None,
    ) -> ReplayBatch:
        """Waits until the rate limiter admits the whole batch and returns it.

        Args:
          batch_size: Items B.
          table: Name of the table; None: the first.
          beta: Exponent of the importance weights over all shards; 0: none, 1: full correction.
          timeout_s: Seconds to wait; None: for ever.
          device: None: NumPy arrays, which may be read-only; else tensors there.

        Returns:
          A `TransitionBatch` or `SequenceBatch`, in the order of the shards. `key` is unique over
          all shards; `table_size` and `probability` are those of the whole table.

        Raises:
          TimeoutError: Not admitted or not there within timeout_s.
          SpecError: A batch so large that it might never be admitted.
          WorkerError: No worker is left and there are too few items, or a shard died too often.
          ProtocolError: Without timeout_s, where no weights were published yet: workers wait for
            them, and usually this thread is the one that publishes.
          ClosedError: The service was closed, or the coordinator was and there are too few items.
        """
        batch = self._driver.sample(
            self._table(table),
            as_batch_size(batch_size),
            as_beta(beta),
            as_timeout(timeout_s),
            timeout_s is None,
        )
        return on_device(batch, device)

    def _sample_ahead(
        self, batch_size: int, table: str, beta: float, timeout_s: float, takers: Collection[int]
    ) -> ReplayBatch:
        batch_size, beta = as_batch_size(batch_size), as_beta(beta)
        return self._driver.sample(table, batch_size, beta, timeout_s, bool(takers))

    def update_priorities(
        self, keys: ArrayLike, priorities: ArrayLike, *, table: str | None = None
    ) -> int:
        """Sets the priorities (B,) of the items `keys` (B,), arrays or tensors; does not wait.

        Items that were removed are skipped; items of a shard that died are counted in
        stats()["stale_priorities"].

        Returns:
          The number of items whose shards live.

        Raises:
          SpecError: A priority is negative or not finite, or there are not as many as keys.
          ClosedError: The service was closed.
        """
        arrays = as_whole("keys", keys), as_floats("priorities", priorities)
        return self._driver.update_priorities(self._table(table), *arrays)

    def size(self, table: str | None = None) -> int:
        """Items in a table."""
        return int(self.stats()["tables"][self._table(table)]["size"])

    def can_sample(self, n: int = 1, *, table: str | None = None) -> bool:
        """Returns whether the rate limiter would admit n samples now."""
        return self._driver.can_sample(self._table(table), as_count(n))

    def client(self) -> ReplayClient:
        """Returns a client with which other processes sample, while this process may sample too.

        Pass it to Ray actors or tasks, or pickle it for another driver of the same Ray. With a
        coordinator without workers, only the service's own `sample` collects.

        Raises:
          SpecError: num_shards is 0: the items are in this process.
          ClosedError: The service was closed.
        """
        if not self._is_remote:
            raise SpecError(
                "num_shards is 0, expected at least 1 with clients: other processes cannot reach "
                "items in this one. Threads of this process may all sample from the service"
            )
        from rollouts.replay.clients.client import ReplayClient
        from rollouts.replay.clients.desk import Desk
        from rollouts.replay.on_ray.mailbox import RayMailbox

        with self._desk_lock:
            self._driver.check_open()
            if self._mailbox is None:
                self._mailbox = RayMailbox()
                self._desk = Desk(self._driver, self._mailbox)
            return ReplayClient(self._mailbox.link(), self.tables, self._keys, is_here=True)

    @property
    def policy_version(self) -> int:
        """The newest version that was inserted; `policy_lag` is counted from it."""
        return self._driver.policy_version

    def take_episodes(self) -> EndedEpisodes:
        """Returns the episodes that ended in the fragments inserted since the last call."""
        return self._driver.take_episodes()

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Writes all shards, open episodes, the limiters' counts and the state of the draws.

        The directory holds one checkpoint, the last complete one, whatever happens during the next.
        Each shard writes its own file, answers no call meanwhile, and needs memory for a copy of
        its data, even with `storage_dir`. With several nodes the directory must be on a file system
        that all nodes share. A shard that dies later starts again from this checkpoint. Batches
        that were drawn ahead (`prefetch`) count as sampled.

        Args:
          directory: Made if it does not exist.

        Raises:
          OSError: A file could not be written; the last checkpoint is as it was.
          WorkerError: A shard died while it wrote; the last checkpoint is as it was.
        """
        self._driver.save(as_path(directory).absolute())

    def load(self, directory: str | os.PathLike[str]) -> None:
        """Takes over a checkpoint of `save`, for a service with the same arguments and any workers.

        Fragments on their way into shards are inserted before. Open episodes of the checkpoint end
        there, because the workers do not continue them.

        Raises:
          FileNotFoundError: There is no checkpoint; nothing has changed.
          SpecError: A file is damaged or of another replay; nothing has changed.
          WorkerError: A shard died while it read; nothing has changed.
        """
        self._driver.load(as_path(directory).absolute())

    def stats(self) -> dict[str, Any]:
        """Returns `ReplayBuffer.stats` for all shards, and more; all counts are of one moment.

        All counts, also those of "steps", include what a load brought.

        "tables"          as in ReplayBuffer. insert_wait_s: fragments waited for the limiter.
                          pending is always 0, because what waits is still in the coordinator
        "steps"           produced = inserted + in_flight + all discarded, by reason: "lost" (the
                          node that held the arrays died), "refused" (the data do not fit, which is
                          raised), "duplicate" (never seen yet). lost_with_shards is the part of
                          inserted that died with a shard
        "items_lost"      items that died with a shard and did not come back from its checkpoint,
                          in all tables; older ones that come back in their place do not count
        "episodes_cut", "memory", "policy_version"  as ReplayBuffer
        "clients"         items by table: "admitted" for clients' batches (part of "samples"), and
                          "delivered" of them, as clients report with their next call. The rest is
                          on its way or died with a client
        "stale_priorities"  updates of items whose shard died
        "shard_restarts"  after a death
        "shards"          by shard: shard_id, incarnation, restarts, pid, size (items of all
                          tables), env_steps, used_bytes, in_flight (fragments)
        """
        return self._driver.stats()

    def close(self) -> None:
        """Ends all waiting calls, those of clients too, and the shards. May be called twice."""
        self._driver.stop()
        with self._desk_lock:
            if self._desk is not None:
                self._desk.close()
        self._driver.close()
        self._leave()


def _launcher(
    config: ShardConfig, num_shards: int, options: ShardOptions, ray_address: str | None
) -> tuple[Callable[[int], ShardHandle], Callable[[], None]]:
    """Returns a function that starts a shard, and one to call when all shards have ended."""
    if num_shards == 0:
        return lambda shard_id: LocalShard(replace(config, shard_id=shard_id)), lambda: None
    # only here is Ray needed
    with needs("ray", "a ReplayService with num_shards above 0"):
        from rollouts.replay.on_ray.actor_shards import RayShards
        from rollouts.workers.on_ray.bundles import Bundles

    bundles = Bundles(
        count=num_shards,
        num_cpus=options.num_cpus,
        strategy=options.strategy,
        node_labels=dict(options.node_labels),
    )
    shards = RayShards(config, bundles, ray_address)
    return shards.launch, shards.close


def _check_coordinator(coordinator: RolloutCoordinator) -> None:
    """Raises SpecError where a coordinator's fragments are not what a shard takes."""
    collect = coordinator.collect
    # a user's own collector decides itself whether to keep final observations
    keeps = collect.keep_final_obs or collect.make_collector is not None
    asked = [] if keeps else ["keep_final_obs=False"]
    check("ReplayService", ["coordinator", *asked], coordinator.cell)


def _check(config: ShardConfig, num_workers: int) -> None:
    """Raises SpecError for what would fail in a shard, or wait for ever."""
    spaces = config.single_observation_space, config.single_action_space
    ReplayBuffer(*spaces, config.tables).close()
    # the directory is on the shards' machines, which may be others
    replace(config, storage_dir="").make_buffer().close()
    num_filled = min(config.num_shards, max(1, num_workers))
    for table in config.tables:
        most = num_filled * config.part(table.max_size)
        least = getattr(table.limiter, "min_size", getattr(table.limiter, "size", 1))
        if least > most:
            raise SpecError(
                f"table {table.name!r} waits for {least} items, but {num_workers} workers fill "
                f"{num_filled} of {config.num_shards} shards, which hold {most}: lower num_shards "
                "or the limiter's size"
            )
