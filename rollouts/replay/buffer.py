# SPDX-License-Identifier: Apache-2.0
"""ReplayBuffer: rollouts and steps go in, transitions, sequences or episodes are sampled."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import ArrayLike, NDArray

from rollouts.batch import RolloutBatch, StepBatch
from rollouts.checks import to_autoreset_mode, whole_number
from rollouts.errors import DTypeError, SpecError
from rollouts.learner.fragment import Fragment
from rollouts.replay import files
from rollouts.replay.acted import Acted, GymnasiumStep, read_step
from rollouts.replay.arguments import (
    as_batch_size,
    as_beta,
    as_count,
    as_example,
    as_floats,
    as_path,
    as_priorities,
    as_timeout,
    as_whole,
    check_updates,
    file_path,
)
from rollouts.replay.columns import Columns
from rollouts.replay.config import TableConfig
from rollouts.replay.faces import SampledReplay, on_device
from rollouts.replay.reader import Reader
from rollouts.replay.sampling import ReplayBatch
from rollouts.replay.tables import by_name, history_rows, make_store
from rollouts.replay.writer import Writer

if TYPE_CHECKING:
    import torch

Array = NDArray[Any]


class ReplayBuffer(SampledReplay):
    """Steps of many environments, stored once, and tables of items made from them.

    Each observation is stored once: the next observation of a transition is the observation of the
    next row, overlapping sequences and several tables share their steps, and each frame of stacked
    frames is kept once. Row t of an environment can be part of an item only when the observation
    after it has come, so the last step of a rollout waits for the next rollout.

    No item crosses the end of an episode. Where an episode ended, an item's last observation is the
    true final one. Each environment is identified by its env_id, and its steps must come in order.
    A step whose observation is not the one that followed the previous step cuts the open episode,
    as `end_episodes` does. The previous step still counts, with the observation that followed it.
    Items of several steps that become shorter or are left out are reported once, as a
    `ReplayWarning`. If warnings are errors, the call that raises one has still done all of its
    work: its steps are in the buffer and must not be added again.

    Thread-safe: any number of threads may sample; threads that add take turns.

    Example:
      buffer = ReplayBuffer(spec.single_observation_space, spec.single_action_space,
                            TableConfig(items=NStep(3, 0.99), sampler="prioritized"))
      buffer.add_batch(collector.collect())
      batch = buffer.sample(256, device="cuda")
      buffer.update_priorities(batch.key, td_error.abs())
    """

    def __init__(
        self,
        single_observation_space: gymnasium.Space[Any],
        single_action_space: gymnasium.Space[Any],
        tables: TableConfig | Sequence[TableConfig] | None = None,
        *,
        autoreset_mode: str | AutoresetMode | None = None,
        stack_num: int = 1,
        policy_state: Sequence[Array] = (),
        extras: Mapping[str, ArrayLike] = MappingProxyType({}),
        seed: int = 0,
        max_batch_length: int = 256,
        num_threads: int = 1,
        max_bytes: int = 0,
        path: str | os.PathLike[str] = "",
    ) -> None:
        """Makes an empty buffer.

        Args:
          single_observation_space: Space of one environment's observations: arrays of one shape and
            dtype.
          single_action_space: Space of one environment's actions, likewise.
          tables: What can be sampled; each has its own size, selectors and rate limiter. None:
            one `TableConfig()`.
          autoreset_mode: Mode of the environments whose steps `add_step` gets; None: `add_step` is
            not used.
          stack_num: Frames along axis 0 of an observation, each of which is stored once; 1: no
            stack. `rollouts.replay.stack_num(env_spec)` returns it.
          policy_state: One environment's recurrent state, as examples (...) of shape and dtype.
          extras: name -> one step's value, as an example (...) of shape and dtype.
          seed: Seed of the sampling: the same seed and calls give the same samples.
          max_batch_length: Steps T of the longest rollout that `add_batch` will be given.
          num_threads: Threads that gather a sample, the caller's among them.
          max_bytes: Most memory of the rows; 0: no bound. Beyond it adding raises MemoryError.
          path: File to which rows are mapped, so that they may exceed the memory; "": memory.

        Raises:
          SpecError: A space, example or table that is not supported, or a limiter that would
            deadlock.
        """
        self.tables = by_name(tables)
        self.single_observation_space = single_observation_space
        self.single_action_space = single_action_space
        self._columns = Columns(
            single_observation_space,
            single_action_space,
            stack_num=stack_num,
            policy_state=policy_state,
            extras=extras,
        )
        history = history_rows(self.tables, max_batch_length)
        self.store = make_store(
            self._columns,
            self.tables,
            seed,
            history_rows=history,
            max_bytes=max_bytes,
            num_threads=num_threads,
            path=file_path(path),
        )
        self._writer = Writer(
            self.store,
            self._columns,
            self.tables,
            max_batch_length,
            history,
            None if autoreset_mode is None else to_autoreset_mode(autoreset_mode),
        )
        self._reader = Reader(self.store, self._columns, self.tables, self._writer)

    @classmethod
    def from_minari(
        cls,
        name: str | os.PathLike[str],
        tables: TableConfig | Sequence[TableConfig] | None = None,
        **options: Any,
    ) -> ReplayBuffer:
        """Makes a buffer from a Minari data set, of `rollouts.Recorder` or of other software.

        Args:
          name: An id, such as "D4RL/pen/human-v2", a folder with its metadata.json, or FILE.hdf5.
          tables: None: transitions, one for each step of the set.
          options: Further keywords of the buffer, such as seed or extras.

        Raises:
          SpecError: There is no such set, it is damaged, or its data are not single arrays.
        """
        from rollouts.datasets.set_reading import open_set
        from rollouts.replay.recorded import buffer_of

        is_path = isinstance(name, os.PathLike) or os.path.exists(name)
        data = open_set(name if is_path else f"minari:{str(name).removeprefix('minari:')}")
        made: ReplayBuffer = buffer_of(cls, data, tables, options)
        return made

    @classmethod
    def from_parquet(
        cls,
        path: str | os.PathLike[str],
        tables: TableConfig | Sequence[TableConfig] | None = None,
        *,
        columns: Mapping[str, str] = MappingProxyType({}),
        observation_space: gymnasium.Space[Any] | None = None,
        action_space: gymnasium.Space[Any] | None = None,
        **options: Any,
    ) -> ReplayBuffer:
        """Makes a buffer from a folder of Parquet files or from one file; as `from_minari`.

        Args:
          path: The folder or the file.
          columns, observation_space, action_space: Facts that a data set of other software lacks:
            see `rollouts.datasets.parquet_reading.open_parquet`.
        """
        from rollouts.datasets.set_reading import open_set
        from rollouts.replay.recorded import buffer_of

        data = open_set(
            path, columns=columns, observation_space=observation_space, action_space=action_space
        )
        made: ReplayBuffer = buffer_of(cls, data, tables, options)
        return made

    # -- adding ------------------------------------------------------------------------

    def add_batch(
        self,
        batch: RolloutBatch | Fragment,
        *,
        priority: ArrayLike | None = None,
        timeout_s: float | None = None,
    ) -> int:
        """Adds a rollout, which begins where the last one of the same environments ended.

        Items that a rate limiter does not admit within `timeout_s` stay pending. The next call of
        any adding method or `flush` inserts them first, and only then waits with its own rows.

        Args:
          batch: (T, B); with `final_obs` if an episode ended in it. Or a `Fragment` of a worker: a
            fragment that was added before is refused, and a gap before it cuts the open episodes.
            With several groups of agents (`Collector`), one group's batch; steps that are not
            active are left out.
          priority: One number: for all items that this call completes. (T, B): for the item that
            begins at each step, even if a later call completes it, as Ape-X's workers give them.
            None: the highest priority so far in each table.
          timeout_s: Seconds to wait for the rate limiters; None: for ever.

        Returns:
          Items inserted by this call, in all tables.

        Raises:
          TimeoutError: What was pending is still pending; nothing of this batch was taken.
          ProtocolError: Without timeout_s, where the process has no other thread that could sample.
            What was taken is pending.
          SpecError: The batch does not fit the buffer. MemoryError: It would exceed max_bytes.
          ClosedError: The buffer was closed; pending items are lost.
        """
        rollout = batch.batch if isinstance(batch, Fragment) else batch
        if not isinstance(rollout, RolloutBatch):
            raise DTypeError(
                f"batch is of type {type(batch).__name__}, expected a RolloutBatch or a Fragment"
            )
        if not isinstance(rollout.reward, np.ndarray):
            raise DTypeError(
                "batch has a device's tensors, expected arrays: rollouts.replay.DeviceReplay takes "
                "those"
            )
        priorities = as_priorities(priority, np.shape(rollout.reward))
        return self._writer.add_batch(batch, priorities, as_timeout(timeout_s))

    def add_step(
        self,
        acted: Acted,
        step: StepBatch | GymnasiumStep,
        *,
        timeout_s: float | None = None,
    ) -> int:
        """Adds one step of B environments: their actions and the results.

        In next-step mode, steps that only reset an environment are left out. An environment that
        failed (`info["_env_error"]`) has its episode cut before that step.

        Args:
          acted: `Acted(obs, action)`, and optionally more values of the policy.
          step: The result of `recv_batch`, or of Gymnasium's `step`, whose info["env_id"] then
            names the environments of the rows; without it they are 0 to B - 1. In same-step mode
            info["final_obs"] has the true final observations.
          timeout_s: As for `add_batch`, whose result and errors are the same.
        """
        if type(acted) is not Acted:
            raise DTypeError(
                f"acted is of type {type(acted).__name__}, expected Acted(obs, action)"
            )
        obs, action, version, state, extras, priority = acted
        (reward, terminated, truncated), outcome = read_step(step)
        if type(obs) is not np.ndarray:
            obs = as_example("obs", obs)
        return self._writer.add_step(
            self._columns.of_step(
                extras, state, (obs, action, reward, terminated, truncated, version)
            ),
            outcome,
            None if priority is None else as_priorities(priority, obs.shape[:1]),
            None if timeout_s is None else as_timeout(timeout_s),
        )

    def end_episodes(self, env_id: ArrayLike | None = None) -> None:
        """Cuts the open episodes of `env_id` (None: all) that were reset or died.

        Their remaining items become pending. The observation that came after the last step is the
        one from which these items bootstrap. Does not wait for a rate limiter.

        Raises:
          SpecError: env_id is not whole numbers. MemoryError: The items would exceed max_bytes.
        """
        ids = np.array([env_id]) if isinstance(env_id, int | np.integer) else env_id
        self._writer.end_episodes(None if ids is None else as_whole("env_id", ids))

    def flush(self, timeout_s: float | None = None) -> int:
        """Inserts what is pending, for at most `timeout_s`; returns the number of items inserted.

        Raises:
          ProtocolError: Without timeout_s, where the process has no other thread that could sample.
        """
        return self._writer.flush(as_timeout(timeout_s))

    # -- sampling ----------------------------------------------------------------------

    def _sample_ahead(
        self, batch_size: int, table: str, beta: float, timeout_s: float, takers: Collection[int]
    ) -> ReplayBatch:
        batch_size, beta = as_batch_size(batch_size), as_beta(beta)
        return self._reader.sample_ahead(table, batch_size, beta, timeout_s, takers)

    def sample(
        self,
        batch_size: int,
        *,
        table: str | None = None,
        beta: float = 0.4,
        timeout_s: float | None = None,
        device: str | torch.device | None = None,
    ) -> ReplayBatch:
        """Draws a batch, each item when the rate limiter admits it, and returns it.

        A batch may be larger than what the limiter admits at once. Items drawn before
        a timeout come first in the next batch, in whichever thread takes it.

        Args:
          batch_size: Items B, drawn with replacement.
          table: Name of the table; None: the first.
          beta: Exponent of the importance weights; 0: none, 1: full correction.
          timeout_s: Seconds to wait; None: for ever.
          device: None: NumPy arrays; else tensors on this device.

        Returns:
          A `TransitionBatch` or, for a table of sequences or episodes, a `SequenceBatch`. The
          arrays belong to the caller: their memory is reused only when none of them is referenced.

        Raises:
          TimeoutError: Not admitted within timeout_s.
          ProtocolError: Without timeout_s, where the process has no other thread that could add:
            this one would wait for itself.
          MemoryError: There is not enough for so large a batch.
          ClosedError: The buffer was closed.
        """
        batch = self._reader.sample(
            self._table(table), as_batch_size(batch_size), as_beta(beta), as_timeout(timeout_s)
        )
        return on_device(batch, device)

    def gather(
        self,
        keys: ArrayLike,
        *,
        table: str | None = None,
        device: str | torch.device | None = None,
    ) -> ReplayBatch:
        """Returns the items `keys` (B,), not counted as a sample; raises SpecError if one is gone.

        `probability` is 0 and `weight` 1, because nothing was drawn.
        """
        batch = self._reader.gather(self._table(table), as_whole("keys", keys))
        return on_device(batch, device)

    def update_priorities(
        self, keys: ArrayLike, priorities: ArrayLike, *, table: str | None = None
    ) -> int:
        """Sets the priorities (B,) of the items `keys` (B,), arrays or tensors.

        Returns:
          The number of items found; items that were removed since are skipped.

        Raises:
          SpecError: A priority is negative or not finite, or there are not as many as keys.
        """
        name = self._table(table)
        keys, priorities = as_whole("keys", keys), as_floats("priorities", priorities)
        check_updates(keys, priorities, self.tables[name].most_priority)
        return self.store.update_priorities(name, keys, priorities)

    def delete(self, keys: ArrayLike, *, table: str | None = None) -> int:
        """Removes the items `keys` (B,); returns how many were found."""
        return self.store.delete(self._table(table), as_whole("keys", keys))

    def size(self, table: str | None = None) -> int:
        """Items in a table."""
        return int(self.store.info(self._table(table))["size"])

    def can_insert(self, n: int = 1, *, table: str | None = None) -> bool:
        """Returns whether the rate limiter would admit n inserts now."""
        return self.store.can_insert(self._table(table), as_count(n))

    def can_sample(self, n: int = 1, *, table: str | None = None) -> bool:
        """Returns whether the rate limiter would admit n samples now."""
        return self.store.can_sample(self._table(table), as_count(n))

    # -- state -------------------------------------------------------------------------

    @property
    def policy_version(self) -> int:
        """The newest version that was added or set; `policy_lag` is counted from it."""
        return self._writer.policy_version

    @policy_version.setter
    def policy_version(self, version: int) -> None:
        self._writer.policy_version = whole_number("policy_version", version, -(2**63), 2**63 - 1)

    def stats(self) -> dict[str, Any]:
        """Returns counts since construction; those of "tables" include the counts of a loaded file.

        "tables"          by name: size, max_size, occupancy (size / max_size), inserts, samples,
                          deletes, samples_per_insert, insert_wait_s, sample_wait_s, pending (items
                          that wait to be inserted), and of the last batch age (items inserted
                          since) and policy_lag, each with min, mean, max
        "steps"           produced = stored + all discarded, by reason
        "episodes_cut"    open episodes that were cut
        "memory"          used_bytes, allocated_bytes
        "policy_version"  the newest
        """
        writer = self._writer.stats()
        pending, waits = writer.pop("pending"), writer.pop("insert_wait_s")
        tables = {}
        for name in self.tables:
            tables[name] = self._reader.stats(name)
            tables[name] |= {"pending": pending[name], "insert_wait_s": waits[name]}
        memory = self.store.memory()
        kept = {name: memory[name] for name in ("used_bytes", "allocated_bytes")}
        return {"tables": tables, **writer, "memory": kept, "policy_version": self.policy_version}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the whole state to one file, which is replaced as a whole or stays as it was.

        Threads that add or sample go on meanwhile. Rows are written from their place in the buffer,
        so this takes little memory. Rows that are removed meanwhile stay until they are written,
        beyond `max_bytes` if necessary.
        """
        files.write_atomically(as_path(path), files.parts(*self._writer.snapshot()))

    def load(self, path: str | os.PathLike[str]) -> None:
        """Takes over the state in a file of `save`, for a buffer made with the same arguments.

        Raises:
          SpecError: The file is damaged, empty or of another kind of buffer; nothing has changed.
          OSError: It cannot be read.
        """
        file = as_path(path)
        if os.path.getsize(file) == 0:
            raise SpecError(f"{os.fspath(file)!r} is empty, expected a file of ReplayBuffer.save")
        self.load_state(np.memmap(file, np.uint8, "r"))

    def state(self) -> NDArray[np.uint8]:
        """Returns the content of a file of `save`."""
        return files.pack(*self._writer.snapshot())

    def load_state(self, state: Array) -> None:
        """Takes over what `state` returned; raises the errors of `load`."""
        try:
            block = np.frombuffer(state, np.uint8)
        except (TypeError, ValueError, BufferError) as error:
            raise DTypeError(f"state is no array of bytes, as `state` returns: {error}") from None
        self._writer.restore(*files.unpack(block))

    def close(self) -> None:
        """Ends all waiting calls with ClosedError. May be called twice."""
        self.store.close()
