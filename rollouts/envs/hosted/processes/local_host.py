# SPDX-License-Identifier: Apache-2.0
"""A host whose environments are in this process."""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from rollouts.envs.hosted.processes.env_worker import EnvWorker, hello_of
from rollouts.envs.hosted.processes.failures import ProcessFailure, env_error
from rollouts.envs.hosted.processes.host import Host
from rollouts.envs.hosted.processes.lifecycle import HostOptions
from rollouts.envs.hosted.processes.records import EnvFn, Record, Setup
from rollouts.envs.hosted.processes.wire import Kind


@dataclass(slots=True)
class _Part:
    """All environments; see `Host`."""

    setup: Setup
    rows: range


class LocalHost(Host):
    """Runs environments in this process: a call that sends returns when they have stepped."""

    _parts: list[_Part]

    def __init__(self, env_fns: Sequence[EnvFn], options: HostOptions) -> None:
        self._envs: list[gymnasium.Env[Any, Any]] = []
        self._makers = list(env_fns)
        self._worker: EnvWorker | None = None
        super().__init__(env_fns, options)

    def _start(self, env_fns: Sequence[EnvFn]) -> None:
        self._has_more = threading.Condition(self.lock)
        try:
            self._envs += (make() for make in env_fns)
            # copies, because a sample of an environment's own space would change what it draws next
            self.hellos = [copy.deepcopy(hello_of(self._envs))]
        except Exception as error:
            raise env_error("an environment cannot be made", ProcessFailure.of(error)) from error
        self._parts.append(_Part(self._options.setup(0, 0), range(self.num_envs)))

    def _give_memory(self, part: _Part) -> None:
        assert self._memory is not None
        self._worker = EnvWorker(self._report, self._envs, self._makers, part.setup, self._memory)

    def _send(self, part: _Part, kind: Kind, payload: bytes = b"") -> None:
        assert self._worker is not None
        try:
            self._worker.obey(kind, payload)
        except BaseException as error:
            # for Ctrl-C: no environment may stay at work, or the next reset would wait for it
            self._worker.cut_short(np.flatnonzero(self.is_busy).tolist(), ProcessFailure.of(error))
            raise
        finally:
            self._has_more.notify_all()

    def _report(self, rows: Sequence[int], records: list[Record]) -> None:
        self._take_records(records)
        self._finish(slice(None) if len(rows) == self.num_envs else list(rows))

    def call(self, kind: Kind, messages: Sequence[Any], what: str) -> tuple[Any, ...]:
        """As `Host.call`, but with the objects themselves instead of copies."""
        assert self._worker is not None
        with self.lock:
            self.check_open()
            function: Callable[..., list[Any]] = (
                self._worker.call if kind == Kind.CALL else self._worker.set_attr
            )
            try:
                return tuple(function(*messages[0]))
            except Exception as error:
                raise env_error(f"{what} failed", ProcessFailure.of(error)) from error

    def wait(self, is_enough: Callable[[], bool], timeout_s: float | None = None) -> None:
        """Waits while another thread steps; see `Host.wait`."""
        with self._has_more:
            is_done = self._has_more.wait_for(lambda: self.is_closed or is_enough(), timeout_s)
            self.check_open()
            if not is_done:
                raise TimeoutError(f"environments took longer than {timeout_s} s")

    def _stop(self, timeout_s: float) -> None:
        self._has_more.notify_all()
        for env in self._envs:
            with contextlib.suppress(Exception):
                env.close()  # type: ignore[no-untyped-call]
