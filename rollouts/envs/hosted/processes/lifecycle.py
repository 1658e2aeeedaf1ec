# SPDX-License-Identifier: Apache-2.0
"""Starts processes, describes how they ended, and leaves none behind."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import itertools
import multiprocessing
import multiprocessing.util  # its exit handler must be registered before ours, to run after it
import os
import signal
import socket
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.context import BaseContext
from typing import Any, Protocol

from gymnasium.vector import AutoresetMode

from rollouts.envs.hosted.processes import identity
from rollouts.envs.hosted.processes.env_worker import run_worker
from rollouts.envs.hosted.processes.records import EnvFn, Setup
from rollouts.envs.hosted.processes.wire import HostLink
from rollouts.errors import SpecError

# how long environments may take to close before their process is killed
CLOSE_TIMEOUT_S = 10.0
_NAME = "rollouts-env-fns"  # prefix of the processes' names


class EnvProcess:
    """One process and the host's end of its socket.

    Attributes:
      link: The connection to send to it and receive from it.
      setup: The settings with which it was started.
      rows: Indices of its environments in the host.
      is_ready: Whether it has made its environments.
      has_worked: Whether any of them has stepped or begun an episode.
    """

    def __init__(
        self,
        context: BaseContext,
        env_fns: Sequence[EnvFn] | bytes,
        setup: Setup,
        rows: range,
        siblings: Iterable[EnvProcess],
    ) -> None:
        """Starts the process; does not wait for it."""
        self.link: HostLink
        self.setup, self.rows = setup, rows
        self._context, self._env_fns = context, env_fns
        self.is_ready = self.has_worked = False
        ours, theirs = socket.socketpair()
        # a fork would inherit these sockets, and their copies would hide from others that the host
        # is gone
        others = [one.link.socket for one in siblings]
        inherited = [ours, *(other for other in others if other.fileno() >= 0)]
        is_fork = context.get_start_method() == "fork"
        self.process = context.Process(  # type: ignore[attr-defined]
            target=run_worker,
            name=f"{_NAME}-{setup.index}",
            args=(theirs, env_fns, setup, inherited if is_fork else ()),
            # environments may have processes of their own, which daemons may not
            daemon=False,
        )
        try:
            self.process.start()
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self.link = HostLink(ours)

    def again(self, siblings: Iterable[EnvProcess]) -> EnvProcess:
        """Starts another process for the work of this one, which has ended."""
        self.process.close()
        setup = dataclasses.replace(self.setup, incarnation=self.setup.incarnation + 1)
        return EnvProcess(self._context, self._env_fns, setup, self.rows, siblings)

    def __str__(self) -> str:
        ids = range(*(row + self.setup.env_id_offset for row in (self.rows.start, self.rows.stop)))
        return f"process {self.setup.index} (env_id {ids[0]} to {ids[-1]})"

    def describe_end(self) -> str:
        """Describes how the process ended; ends it if it still runs."""
        self.process.join(1.0)
        if self.process.is_alive():
            self.kill()
            return f"{self} closed its connection"
        code = self.process.exitcode or 0
        if code >= 0:
            return f"{self} exited with code {code}"
        known = {int(number): number.name for number in signal.Signals}
        return f"{self} was killed by {known.get(-code, f'signal {-code}')}"

    def advice(self) -> str:
        """Returns advice for a process that ended before it had made its environments."""
        method = self._context.get_start_method()
        if method == "fork":
            return "Call its function to see why"
        return (
            f"start_method is {method!r}, with which a process imports the main script first: keep "
            'what the script does under `if __name__ == "__main__":`. If it is there, call the '
            "environment's function to see why"
        )

    def kill(self) -> None:
        """Ends the process at once."""
        self.process.kill()
        self.process.join()

    def is_alive(self) -> bool:
        """Returns whether the process runs."""
        return bool(self.process.is_alive())


@dataclass(frozen=True, slots=True)
class HostOptions:
    """The arguments with which a host is made; see `from_env_fns`."""

    num_processes: int
    context: BaseContext
    autoreset_mode: AutoresetMode
    reports_each: bool
    env_id_offset: int
    seed: int | None

    def setup(self, index: int, first: int) -> Setup:
        """Returns a part's settings at its first start: which part it is, and its first row."""
        return Setup(
            index=index,
            first=first,
            env_id_offset=self.env_id_offset,
            seed=self.seed,
            incarnation=0,
            autoreset_mode=self.autoreset_mode,
            reports_each=self.reports_each,
            host_pid=os.getpid(),
        )


def start(
    context: BaseContext, env_fns: Sequence[EnvFn], options: HostOptions
) -> Iterator[EnvProcess]:
    """Starts processes one by one, each with its share of neighbouring environments."""
    started: list[EnvProcess] = []
    count = options.num_processes
    bounds = [len(env_fns) * i // count for i in range(count + 1)]
    for index, (first, end) in enumerate(itertools.pairwise(bounds)):
        setup = options.setup(index, first)
        makers = travelling(context, env_fns[first:end])
        started.append(EnvProcess(context, makers, setup, range(first, end), started))
        yield started[-1]


def stop(processes: Sequence[EnvProcess], timeout_s: float) -> None:
    """Lets the environments close and the processes end; kills what takes longer."""
    for one in processes:
        # close alone is not enough, as a forked child of the host may hold a copy
        with contextlib.suppress(OSError):
            one.link.socket.shutdown(socket.SHUT_RDWR)
        one.link.close()
    deadline = time.monotonic() + timeout_s
    try:
        for one in processes:
            one.process.join(max(0.0, deadline - time.monotonic()))
    finally:
        # also where Ctrl-C ends the wait, because multiprocessing would wait for the processes at
        # exit
        for one in processes:
            if one.process.is_alive():
                one.kill()
            one.process.close()


def to_context(start_method: str | None) -> BaseContext:
    """Reads a start method.

    Raises:
      SpecError: This system has no such method.
    """
    known = multiprocessing.get_all_start_methods()
    if start_method is not None and start_method not in known:
        raise SpecError(f"start_method must be one of {known} or None, got {start_method!r}")
    return multiprocessing.get_context(start_method)


def travelling(context: BaseContext, env_fns: Sequence[EnvFn]) -> Sequence[EnvFn] | bytes:
    """Prepares functions for another process: pickled, unless it is forked and has them already."""
    if context.get_start_method() == "fork":
        return env_fns
    return identity.dumps(list(env_fns), frozenset())


class Closable(Protocol):
    """An object with `close`, which is called when the interpreter exits."""

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None: ...


_open: weakref.WeakSet[Any] = weakref.WeakSet()


# registered before `_close_all`, so that it is called afterwards, even where Ctrl-C ends that call
@atexit.register
def _kill_all() -> None:
    """Kills processes that are still there; multiprocessing would wait for them for ever."""
    for process in multiprocessing.active_children():
        if process.name.startswith(_NAME):
            process.kill()


def close_at_exit(host: Closable) -> None:
    """Registers the host to be closed before Python exits, unless it is freed before."""
    _open.add(host)


@atexit.register
def _close_all() -> None:
    for host in list(_open):
        host.close()
