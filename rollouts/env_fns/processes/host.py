# SPDX-License-Identifier: Apache-2.0
"""The host's side of its processes: who works on what, who is done, who has died."""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from rollouts.env_fns.leaves import Leaf, leaves_of
from rollouts.env_fns.processes.failures import Failure, SpacesDifferError, env_error
from rollouts.env_fns.processes.lifecycle import (
    CLOSE_TIMEOUT_S,
    EnvProcess,
    HostOptions,
    close_at_exit,
    start,
    stop,
)
from rollouts.env_fns.processes.records import EnvFn, Hello, Record
from rollouts.env_fns.processes.shared_memory import Layout, SharedMemory, batch_shapes
from rollouts.env_fns.processes.timing import timing_shapes
from rollouts.env_fns.processes.wire import Kind, deadline_of, frame
from rollouts.errors import ClosedError, WorkerError

Array = npt.NDArray[Any]

# how often a wait looks whether a process has died without a word
_LOOK_AROUND_MS = 1000


class Host:
    """Runs environments in processes. Rows are indices of environments, 0 to N - 1.

    What a row shows lies in `arrays`, beside that in `records`, from the moment in which it is
    done until it is sent again. A process that dies is started again at once; its environments
    that were at work are done with a failure, the others are in `lost` until their next turn.

    One thread may send while another waits. `lock` guards everything below; who holds it sees
    no process die.
    """

    def __init__(self, env_fns: Sequence[EnvFn], options: HostOptions) -> None:
        """Starts the processes and waits until every environment is made.

        Raises:
          EnvError: An environment cannot be made. WorkerError: a process died.
        """
        self.num_envs = len(env_fns)
        self._options = options
        self._mode = options.autoreset_mode
        self._owner = os.getpid()
        self.lock = threading.RLock()
        self._processes: list[EnvProcess] = []
        self._by_fd: dict[int, EnvProcess] = {}
        self._poller = select.poll()
        self._waker, self._wakes = socket.socketpair()
        self._wakes.setblocking(False)
        self._poller.register(self._wakes, select.POLLIN)
        self._broken: Exception | None = None
        self.is_closed = False
        close_at_exit(self)

        self.is_busy = np.zeros(self.num_envs, np.bool_)
        self.num_busy = 0
        self.finished: deque[int] = deque()  # in that order, if every environment is reported
        self.records: dict[int, Record] = {}
        self.objects: list[tuple[Any, ...]] = [()] * self.num_envs
        self.lost: dict[int, Failure] = {}
        self._fails_when_done: dict[int, tuple[Failure, tuple[Any, ...]]] = {}
        self._answers: dict[int, Any] = {}
        self._hellos: dict[int, Hello] = {}
        self._memory: SharedMemory | None = None
        try:
            self._start(env_fns)
        except BaseException:
            self.close()
            raise

    # -- starting --------------------------------------------------------------------

    def _start(self, env_fns: Sequence[EnvFn]) -> None:
        for process in start(self._options.context, env_fns, self._options):
            self._processes.append(process)
            self._watch(process)
        self.wait(lambda: len(self._hellos) == len(self._processes))
        self.hellos = [self._hellos[index] for index in range(len(self._processes))]

    def share(self, observation: gymnasium.Space[Any], action: gymnasium.Space[Any]) -> None:
        """Makes the shared memory for these spaces; the processes are at work from then on."""
        self.observation_leaves: tuple[Leaf, ...] = leaves_of(observation)
        self.action_leaves: tuple[Leaf, ...] = leaves_of(action)
        shapes = batch_shapes(
            self.num_envs,
            self.observation_leaves,
            self.action_leaves,
            keeps_final=self._mode is AutoresetMode.SAME_STEP,
        )
        self._layout = Layout.of([*shapes, *timing_shapes(self.num_envs, len(self._processes))])
        self._memory = SharedMemory(self._layout)
        self.arrays = self._memory.arrays
        for process in self._processes:
            self._give_memory(process)

    def _give_memory(self, process: EnvProcess) -> None:
        assert self._memory is not None
        # one that has died already is found when somebody waits
        with contextlib.suppress(OSError):
            process.link.send_memory(pickle.dumps(self._layout), self._memory.fd)

    def _watch(self, process: EnvProcess) -> None:
        self._by_fd[process.link.socket.fileno()] = process
        self._poller.register(process.link.socket, select.POLLIN)

    # -- sending ---------------------------------------------------------------------

    def step(self, rows: Array | None, objects: dict[int, list[Any]]) -> None:
        """Has environments stepped with the actions in shared memory; None: all of them.

        Args:
          rows: (n,) int, none of them busy.
          objects: Leaf of the action space -> n pickled values, where leaves are no arrays.
        """
        with self.lock:
            self.check_open()
            self._mark_busy(slice(None) if rows is None else rows)
            self.arrays["sent_at"][:] = time.perf_counter()
            if rows is None and not objects:
                for process in list(self._processes):
                    self._send(process, Kind.STEP_ALL)
                return
            for process, positions, indices in self._shares(rows):
                if objects:
                    part = {
                        leaf: [values[i] for i in positions] for leaf, values in objects.items()
                    }
                    self._send(process, Kind.STEP_OBJECTS, pickle.dumps((indices.tolist(), part)))
                else:
                    self._send(process, Kind.STEP, indices.astype(np.int32).tobytes())

    def reset(
        self, rows: Array, seeds: Sequence[int | None], options: dict[str, Any] | None
    ) -> None:
        """Has environments reset; `seeds` has one entry per row."""
        import cloudpickle  # type: ignore[import-untyped]  # options may hold anything

        pickled = cloudpickle.dumps(options)  # which may fail, and then nothing has happened
        with self.lock:
            self.check_open()
            self._mark_busy(rows)
            for row in rows.tolist():
                self.lost.pop(row, None)
            for process, positions, indices in self._shares(rows):
                message = (indices.tolist(), [seeds[i] for i in positions], pickled)
                self._send(process, Kind.RESET, pickle.dumps(message))

    def fail(self, row: int, failure: Failure) -> None:
        """Cuts the episode of a row short that is not at work, and reports it as done.

        In same-step mode it is done when its next episode has begun.
        """
        with self.lock:
            rows = np.array([row])
            self._mark_busy(rows)
            self._cut_short(rows, failure)

    def _cut_short(self, rows: Array, failure: Failure) -> None:
        """For rows marked busy, whose process does not know that they are."""
        for row in rows.tolist():
            self.lost.pop(row, None)
        if self._mode is AutoresetMode.SAME_STEP:
            for name, array in self.arrays.items():
                if name.startswith("final_obs/"):
                    array[rows] = self.arrays[name.removeprefix("final_")][rows]
            self._fails_when_done.update(
                (row, (failure, self.objects[row])) for row in rows.tolist()
            )
            for process, _, indices in self._shares(rows):
                message = (indices.tolist(), [None] * len(indices), pickle.dumps(None))
                self._send(process, Kind.RESET, pickle.dumps(message))
            return
        self._mark_cut(rows)
        for row in rows.tolist():
            self.records[row] = Record(row, objects=self.objects[row], failure=failure)
        self._finish(rows)

    def _mark_cut(self, rows: Array | int) -> None:
        self.arrays["reward"][rows] = 0.0
        self.arrays["terminated"][rows] = False
        self.arrays["was_reset"][rows] = False
        self.arrays["truncated"][rows] = True

    def call(self, kind: Kind, messages: Sequence[Any], what: str) -> tuple[Any, ...]:
        """Sends one message to each process and returns N answers. Nothing may be in flight.

        Raises:
          EnvError: An environment raised something, or its process died.
        """
        import cloudpickle  # arguments may hold anything

        payloads = [cloudpickle.dumps(message) for message in messages]
        with self.lock:
            self.check_open()
            self._answers.clear()
            for process, payload in zip(list(self._processes), payloads, strict=True):
                self._send(process, kind, payload)
        self.wait(lambda: len(self._answers) == len(self._processes))
        answers = [self._answers[index] for index in range(len(self._processes))]
        for process, answer in zip(self._processes, answers, strict=True):
            if isinstance(answer, Failure):
                raise env_error(f"{what} failed in {process}", answer)
        return tuple(one for answer in answers for one in answer)

    def split(self, values: Sequence[Any]) -> list[Sequence[Any]]:
        """Cuts N values into those of each process."""
        return [values[one.rows.start : one.rows.stop] for one in self._processes]

    def _shares(self, rows: Array | None) -> Iterable[tuple[EnvProcess, Any, Array]]:
        """Each process' part: positions in `rows`, and indices as the process counts them."""
        # as they are now: one that is started again meanwhile has been told all it needs
        for process in list(self._processes):
            if rows is None:
                yield process, process.rows, np.arange(len(process.rows))
                continue
            positions = np.flatnonzero((rows >= process.rows.start) & (rows < process.rows.stop))
            if positions.size:
                yield process, positions.tolist(), rows[positions] - process.rows.start

    def _mark_busy(self, rows: Any) -> None:
        self.is_busy[rows] = True
        self.num_busy = int(np.count_nonzero(self.is_busy))

    def _send(self, process: EnvProcess, kind: Kind, payload: bytes = b"") -> None:
        # a process that has died is found, and what it had to do settled, when somebody waits
        with contextlib.suppress(OSError):
            process.link.send(frame(kind, payload), self._receive_meanwhile)

    def _receive_meanwhile(self) -> None:
        for process in list(self._by_fd.values()):
            self._take(process)
        self._waker.send(b"w")

    # -- receiving -------------------------------------------------------------------

    def wait(self, is_enough: Callable[[], bool], timeout_s: float | None = None) -> None:
        """Takes messages until `is_enough`.

        Raises:
          TimeoutError: Not within timeout_s. ClosedError: the host was closed, maybe meanwhile.
          WorkerError, EnvError: Processes cannot be started.
        """
        deadline = deadline_of(timeout_s)
        while not is_enough():
            self.check_open()
            left_ms = (deadline - time.monotonic()) * 1000
            tick_ms = math.ceil(max(0.0, min(left_ms, _LOOK_AROUND_MS)))
            events = self._poller.poll(tick_ms)
            with self.lock:
                self.check_open()
                for fd, _ in events:
                    if fd in self._by_fd:
                        self._take(self._by_fd[fd])
                    else:
                        with contextlib.suppress(BlockingIOError):
                            self._wakes.recv(4096)
                if not events:
                    for process in list(self._by_fd.values()):
                        if not process.is_alive():
                            self._take(process)
            if not events and left_ms <= 0 and not is_enough():
                self.check_open()
                raise TimeoutError(f"environments took longer than {timeout_s} s")

    @property
    def num_bytes(self) -> int:
        """Bytes of the shared memory."""
        return self._layout.nbytes

    def check_open(self) -> None:
        """Raises what makes further work impossible."""
        if self.is_closed:
            raise ClosedError("the environment was closed")
        if self._broken is not None:
            raise self._broken

    def _take(self, process: EnvProcess) -> None:
        messages = process.link.receive()
        if messages is None:
            self._on_end(process)
            return
        for kind, payload in messages:
            self._obey(process, kind, payload)

    def _obey(self, process: EnvProcess, kind: int, payload: bytes) -> None:
        process.has_worked |= kind in (Kind.DONE, Kind.DONE_ALL)
        if kind == Kind.DONE_ALL:
            self._finish(slice(process.rows.start, process.rows.stop))
        elif kind == Kind.DONE:
            self._finish(np.frombuffer(payload, np.int32).astype(np.intp) + process.rows.start)
        elif kind == Kind.RECORDS:
            for index, data in pickle.loads(payload):
                record = self.records[index] = Record.unpickled(index, data)
                if record.objects:
                    self.objects[index] = record.objects
        elif kind == Kind.ANSWER:
            try:
                self._answers[process.setup.index] = pickle.loads(payload)
            except Exception as error:
                self._answers[process.setup.index] = Failure.of(error)
        elif kind == Kind.HELLO:
            self._on_hello(process, pickle.loads(payload))
        else:
            self._broken = env_error(
                f"an environment of {process} cannot be made", pickle.loads(payload)
            )

    def _on_hello(self, process: EnvProcess, hello: Hello) -> None:
        process.is_ready = True
        old = self._hellos.setdefault(process.setup.index, hello)
        spaces = (old.observation_spaces, old.action_spaces)
        if (hello.observation_spaces, hello.action_spaces) != spaces:
            self._broken = SpacesDifferError(
                f"{process} was started again and its environments' spaces have "
                f"changed from {spaces} to {(hello.observation_spaces, hello.action_spaces)}"
            )

    def _finish(self, rows: Any) -> None:
        """Settles rows that are done: indices, or a slice of them."""
        if self._fails_when_done or self._options.reports_each:
            each = np.arange(self.num_envs)[rows].tolist()
            for row in each if self._fails_when_done else ():
                if row in self._fails_when_done:
                    self._mark_cut(row)
                    record = self.records.setdefault(row, Record(row, objects=self.objects[row]))
                    record.failure, record.final_objects = self._fails_when_done.pop(row)
            if self._options.reports_each:
                self.finished.extend(each)
        self.is_busy[rows] = False
        self.num_busy = int(np.count_nonzero(self.is_busy))

    # -- ends ------------------------------------------------------------------------

    def _on_end(self, process: EnvProcess) -> None:
        """Starts a process again that has died, and settles what becomes of its environments."""
        self._poller.unregister(process.link.socket)
        del self._by_fd[process.link.socket.fileno()]
        end = process.describe_end()
        process.link.close()
        if not process.is_ready or self._memory is None:
            self._give_up(f"{end} before its environments were made. {process.advice()}")
            return
        if process.setup.incarnation and not process.has_worked:
            self._give_up(f"{end} once more, before any of its environments did anything")
            return
        index = process.setup.index
        try:
            again = process.again([one for one in self._processes if one is not process])
        except Exception as error:
            self._give_up(f"{end} and cannot be started again: {error!r}")
            return
        self._processes[index] = again
        self._watch(again)
        self._give_memory(again)
        failure = Failure(f"{end}; it was started again")
        self._answers.setdefault(index, failure)
        rows = np.arange(process.rows.start, process.rows.stop)
        self.lost.update((row, failure) for row in rows[~self.is_busy[rows]].tolist())
        self._cut_short(rows[self.is_busy[rows]], failure)

    def _give_up(self, why: str) -> None:
        self._broken = self._broken or WorkerError(why)

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Lets environments close and processes end, and kills those that take longer.

        Wakes who waits. May be called twice, and does nothing in a fork of this process.
        """
        if self.is_closed or os.getpid() != self._owner:
            return
        with self.lock:
            self.is_closed = True
            self._waker.send(b"w")
            stop(self._processes, timeout_s)
        for owned in (self._memory, self._wakes, self._waker):
            if owned is not None:
                owned.close()
