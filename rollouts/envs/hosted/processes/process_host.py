# SPDX-License-Identifier: Apache-2.0
"""A host whose environments are in other processes, and which replaces processes that die."""

from __future__ import annotations

import contextlib
import math
import pickle
import select
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rollouts.envs.hosted.processes import identity
from rollouts.envs.hosted.processes.failures import ProcessFailure, SpacesDifferError, env_error
from rollouts.envs.hosted.processes.host import Host
from rollouts.envs.hosted.processes.lifecycle import EnvProcess, HostOptions, start, stop
from rollouts.envs.hosted.processes.records import EnvFn, Hello, Record
from rollouts.envs.hosted.processes.wire import Kind, deadline_of, frame
from rollouts.errors import WorkerError

# how often a wait checks whether a process has died without a message
_LOOK_AROUND_MS = 1000


class ProcessHost(Host):
    """Runs environments in processes.

    A process that dies is started again at once. Those of its environments that were at work are
    reported as done, with a failure; the others are in `lost` until they are sent again.
    """

    _parts: list[EnvProcess]

    def __init__(self, env_fns: Sequence[EnvFn], options: HostOptions) -> None:
        self._by_fd: dict[int, EnvProcess] = {}
        self._hellos: dict[int, Hello] = {}
        self._answers: dict[int, Any] = {}
        self._poller = select.poll()
        self._waker, self._wakes = socket.socketpair()
        self._wakes.setblocking(False)
        self._poller.register(self._wakes, select.POLLIN)
        super().__init__(env_fns, options)

    def _start(self, env_fns: Sequence[EnvFn]) -> None:
        is_fork = self._options.context.get_start_method() == "fork"
        self.known = identity.share_with_forks() if is_fork else frozenset()
        for process in start(self._options.context, env_fns, self._options):
            self._parts.append(process)
            self._watch(process)
        self.wait(lambda: len(self._hellos) == len(self._parts))
        self.hellos = [self._hellos[index] for index in range(len(self._parts))]

    def _give_memory(self, process: EnvProcess) -> None:
        assert self._memory is not None
        # a process that has died already is found by the next wait
        with contextlib.suppress(OSError):
            process.link.send_memory(pickle.dumps(self._layout), self._memory.fd)

    def _watch(self, process: EnvProcess) -> None:
        self._by_fd[process.link.socket.fileno()] = process
        self._poller.register(process.link.socket, select.POLLIN)

    # -- messages --------------------------------------------------------------------

    def _send(self, process: EnvProcess, kind: Kind, payload: bytes = b"") -> None:
        # a process that has died is found by the next wait, which also handles its environments
        with contextlib.suppress(OSError):
            process.link.send(frame(kind, payload), self._receive_meanwhile)

    def _receive_meanwhile(self) -> None:
        for process in list(self._by_fd.values()):
            self._take(process)
        self._waker.send(b"w")

    def call(self, kind: Kind, messages: Sequence[Any], what: str) -> tuple[Any, ...]:
        """As `Host.call`, by messages."""
        payloads = [identity.dumps(message, self.known) for message in messages]
        with self.lock:
            self.check_open()
            self._answers.clear()
            for process, payload in zip(list(self._parts), payloads, strict=True):
                self._send(process, kind, payload)
        self.wait(lambda: len(self._answers) == len(self._parts))
        answers = [self._answers[index] for index in range(len(self._parts))]
        for process, answer in zip(self._parts, answers, strict=True):
            if isinstance(answer, ProcessFailure):
                raise env_error(f"{what} failed in {process}", answer)
        return tuple(one for answer in answers for one in answer)

    def wait(self, is_enough: Callable[[], bool], timeout_s: float | None = None) -> None:
        """Takes messages until `is_enough`; see `Host.wait`."""
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
            self._take_records(Record.unpickled(*pair) for pair in pickle.loads(payload))
        elif kind == Kind.ANSWER:
            try:
                self._answers[process.setup.index] = pickle.loads(payload)
            except Exception as error:
                self._answers[process.setup.index] = ProcessFailure.of(error)
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

    # -- ends ------------------------------------------------------------------------

    def _on_end(self, process: EnvProcess) -> None:
        """Replaces a process that has died, and decides what becomes of its environments."""
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
            again = process.again([one for one in self._parts if one is not process])
        except Exception as error:
            self._give_up(f"{end} and cannot be started again: {error!r}")
            return
        self._parts[index] = again
        self._watch(again)
        self._give_memory(again)
        failure = ProcessFailure(f"{end}; it was started again")
        self._answers.setdefault(index, failure)
        rows = np.arange(process.rows.start, process.rows.stop)
        self.lost.update((row, failure) for row in rows[~self.is_busy[rows]].tolist())
        self._cut_short(rows[self.is_busy[rows]], failure)

    def _give_up(self, why: str) -> None:
        self._broken = self._broken or WorkerError(why)

    def _stop(self, timeout_s: float) -> None:
        self._waker.send(b"w")
        stop(self._parts, timeout_s)
        self._wakes.close()
        self._waker.close()
