# SPDX-License-Identifier: Apache-2.0
"""The host of environments: which are at work, done or lost, and the content of their rows."""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from rollouts.envs.hosted.leaves import Leaf, leaves_of
from rollouts.envs.hosted.processes import identity
from rollouts.envs.hosted.processes.episode_rules import show_cut
from rollouts.envs.hosted.processes.failures import ProcessFailure
from rollouts.envs.hosted.processes.lifecycle import CLOSE_TIMEOUT_S, HostOptions, close_at_exit
from rollouts.envs.hosted.processes.records import EnvFn, Hello, Record
from rollouts.envs.hosted.processes.shared_memory import BlockLayout, SharedMemory, batch_shapes
from rollouts.envs.hosted.processes.timing import timing_shapes
from rollouts.envs.hosted.processes.wire import Kind
from rollouts.errors import ClosedError

Array = npt.NDArray[Any]


class Host:
    """Runs environments, in processes or in this one. Rows are their indices, 0 to N - 1.

    A part is a group of neighbouring environments that are stepped one after the other, such as
    those of a process. Its `setup` has the settings with which it starts, its `rows` the indices of
    its environments.

    The content of a row lies in `arrays` and in `records` from the moment when the row is done
    until it is sent again. `lost` has rows whose episode was lost while they were not at work,
    until they are sent again.

    One thread may send while another waits. `lock` guards everything below. No process is replaced
    while a thread holds it.

    Attributes:
      hellos: Each part's report on its environments.
      known: Keys of this process's classes and functions that the parts have too; see `identity`.
    """

    hellos: list[Hello]
    known: Set[str] | None = None

    def __init__(self, env_fns: Sequence[EnvFn], options: HostOptions) -> None:
        """Waits until every environment is made.

        Raises:
          EnvError: An environment cannot be made. WorkerError: a process died.
        """
        self.num_envs = len(env_fns)
        self._options = options
        self._mode = options.autoreset_mode
        self._owner = os.getpid()
        self.lock = threading.RLock()
        self._parts: list[Any] = []
        self._broken: Exception | None = None
        self.is_closed = False
        close_at_exit(self)

        self.is_busy = np.zeros(self.num_envs, np.bool_)
        self.num_busy = 0
        self.finished: deque[int] = deque()  # oldest first, if each is reported
        self.records: dict[int, Record] = {}
        self.objects: list[tuple[Any, ...]] = [()] * self.num_envs
        self.lost: dict[int, ProcessFailure] = {}
        self._fails_when_done: dict[int, tuple[ProcessFailure, tuple[Any, ...]]] = {}
        self._memory: SharedMemory | None = None
        try:
            self._start(env_fns)
        except BaseException:
            self.close()
            raise

    def _start(self, env_fns: Sequence[EnvFn]) -> None:
        """Makes the environments; sets `_parts` and `hellos`."""
        raise NotImplementedError

    def share(self, observation: gymnasium.Space[Any], action: gymnasium.Space[Any]) -> None:
        """Makes the shared memory for these spaces, after which the environments can work."""
        self.observation_leaves: tuple[Leaf, ...] = leaves_of(observation)
        self.action_leaves: tuple[Leaf, ...] = leaves_of(action)
        shapes = batch_shapes(
            self.num_envs,
            self.observation_leaves,
            self.action_leaves,
            keeps_final=self._mode is AutoresetMode.SAME_STEP,
        )
        self._layout = BlockLayout.of([*shapes, *timing_shapes(self.num_envs, len(self._parts))])
        self._memory = SharedMemory(self._layout)
        self.arrays = self._memory.arrays
        for part in self._parts:
            self._give_memory(part)

    def _give_memory(self, part: Any) -> None:
        raise NotImplementedError

    # -- sending ---------------------------------------------------------------------

    def step(self, rows: Array | None, objects: dict[int, list[Any]]) -> None:
        """Steps environments with the actions in shared memory.

        Args:
          rows: (n,) int, none of them busy; None: all environments.
          objects: Leaf of the action space -> n pickled values, for leaves that are no arrays.
        """
        with self.lock:
            self.check_open()
            self._mark_busy(slice(None) if rows is None else rows)
            self.arrays["sent_at"][:] = time.perf_counter()
            if rows is None and not objects:
                for part in list(self._parts):
                    self._send(part, Kind.STEP_ALL)
                return
            for part, positions, indices in self._shares(rows):
                if objects:
                    theirs = {
                        leaf: [values[i] for i in positions] for leaf, values in objects.items()
                    }
                    self._send(part, Kind.STEP_OBJECTS, pickle.dumps((indices.tolist(), theirs)))
                else:
                    self._send(part, Kind.STEP, indices.astype(np.int32).tobytes())

    def reset(
        self, rows: Array, seeds: Sequence[int | None], options: dict[str, Any] | None
    ) -> None:
        """Resets environments; `seeds` has one entry per row."""
        # pickling may fail, so it comes before anything is sent
        pickled = identity.dumps(options, self.known)
        with self.lock:
            self.check_open()
            self._mark_busy(rows)
            for row in rows.tolist():
                self.lost.pop(row, None)
            for part, positions, indices in self._shares(rows):
                message = (indices.tolist(), [seeds[i] for i in positions], pickled)
                self._send(part, Kind.RESET, pickle.dumps(message))

    def fail(self, row: int, failure: ProcessFailure) -> None:
        """Cuts short the episode of a row that is not at work, and reports the row as done.

        In same-step mode the row is done when its next episode has begun.
        """
        with self.lock:
            rows = np.array([row])
            self._mark_busy(rows)
            self._cut_short(rows, failure)

    def _cut_short(self, rows: Array, failure: ProcessFailure) -> None:
        """Cuts short episodes of rows that are marked busy, but that no process works on."""
        for row in rows.tolist():
            self.lost.pop(row, None)
        if self._mode is AutoresetMode.SAME_STEP:
            for name, array in self.arrays.items():
                if name.startswith("final_obs/"):
                    array[rows] = self.arrays[name.removeprefix("final_")][rows]
            self._fails_when_done.update(
                (row, (failure, self.objects[row])) for row in rows.tolist()
            )
            for part, _, indices in self._shares(rows):
                message = (indices.tolist(), [None] * len(indices), pickle.dumps(None))
                self._send(part, Kind.RESET, pickle.dumps(message))
            return
        show_cut(self.arrays, rows)
        for row in rows.tolist():
            self.records[row] = Record(row, objects=self.objects[row], failure=failure)
        self._finish(rows)

    def call(self, kind: Kind, messages: Sequence[Any], what: str) -> tuple[Any, ...]:
        """Sends a CALL or SET_ATTR to each part and returns N answers. Nothing may be in flight.

        Raises:
          EnvError: An environment raised something, or its process died.
        """
        raise NotImplementedError

    def split(self, values: Sequence[Any]) -> list[Sequence[Any]]:
        """Cuts N values into one sequence per part."""
        return [values[one.rows.start : one.rows.stop] for one in self._parts]

    def _shares(self, rows: Array | None) -> Iterable[tuple[Any, Any, Array]]:
        """Yields each part with its share of `rows`: positions in `rows`, indices in the part."""
        # a copy of the list: a part that is started again meanwhile is not sent anything
        for part in list(self._parts):
            if rows is None:
                yield part, part.rows, np.arange(len(part.rows))
                continue
            positions = np.flatnonzero((rows >= part.rows.start) & (rows < part.rows.stop))
            if positions.size:
                yield part, positions.tolist(), rows[positions] - part.rows.start

    def _mark_busy(self, rows: Any) -> None:
        self.is_busy[rows] = True
        self.num_busy = int(np.count_nonzero(self.is_busy))

    def _send(self, part: Any, kind: Kind, payload: bytes = b"") -> None:
        raise NotImplementedError

    # -- receiving -------------------------------------------------------------------

    def wait(self, is_enough: Callable[[], bool], timeout_s: float | None = None) -> None:
        """Waits until `is_enough`.

        Raises:
          TimeoutError: Not within timeout_s. ClosedError: the host was closed, maybe meanwhile.
          WorkerError, EnvError: Processes cannot be started.
        """
        raise NotImplementedError

    @property
    def num_bytes(self) -> int:
        """Bytes of the shared memory."""
        return self._layout.nbytes

    def check_open(self) -> None:
        """Raises the error that makes further work impossible, if there is one."""
        if self.is_closed:
            raise ClosedError("the environment was closed")
        if self._broken is not None:
            raise self._broken

    def _take_records(self, records: Iterable[Record]) -> None:
        for record in records:
            self.records[record.index] = record
            if record.objects:
                self.objects[record.index] = record.objects

    def _finish(self, rows: Any) -> None:
        """Marks rows as done: indices, or a slice of them."""
        if self._fails_when_done or self._options.reports_each:
            each = np.arange(self.num_envs)[rows].tolist()
            for row in each if self._fails_when_done else ():
                if row in self._fails_when_done:
                    show_cut(self.arrays, row)
                    record = self.records.setdefault(row, Record(row, objects=self.objects[row]))
                    record.failure, record.final_objects = self._fails_when_done.pop(row)
            if self._options.reports_each:
                self.finished.extend(each)
        self.is_busy[rows] = False
        self.num_busy = int(np.count_nonzero(self.is_busy))

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Lets environments close and processes end, and kills those that take longer.

        Wakes threads that wait. May be called twice, and does nothing in a fork of this process.
        """
        if self.is_closed or os.getpid() != self._owner:
            return
        with self.lock:
            self.is_closed = True
            self._stop(timeout_s)
        if self._memory is not None:
            self._memory.close()

    def _stop(self, timeout_s: float) -> None:
        """Ends the environments; the host is closed already."""
        raise NotImplementedError
