# SPDX-License-Identifier: Apache-2.0
"""The Ray of this process: who started it, how many sessions use it, what they asked for."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import ray as _typed_ray

from rollouts.errors import SpecError, WorkerError
from rollouts.support.ray_private import (
    is_slow_start,
    loopback_only,
    nothing_left_of_a_failed_start,
    without_monitors,
)
from rollouts.workers.on_ray.ray_address import check_address

_log = logging.getLogger(__name__)

# ray annotates only half of what it exports
ray: Any = _typed_ray

# Ray waits 30 s for its own processes; on a busy machine they may take longer, so it is started
# again
_MOST_STARTS = 3

# guards `_newest`, and the counts of each SharedRay
_lock = threading.Lock()
_newest: SharedRay | None = None


@dataclass(slots=True, eq=False)
class SharedRay:
    """A Ray that sessions started, joined or found.

    Attributes:
      identity: Name of the connection, see `_identity`.
      is_ours: Whether sessions started or joined it; the last one calls `ray.shutdown()`.
      is_local: Whether a session started it, with the CPUs that the session needs.
      num_sessions: Sessions that use it.
      asked_cpus: CPUs that all of them asked for. Ray counts the CPUs of an actor only once the
        actor is scheduled.
    """

    identity: tuple[str, str]
    is_ours: bool
    is_local: bool
    num_sessions: int = 0
    asked_cpus: float = 0.0

    def ask(self, num_cpus: float) -> None:
        """Counts what a session needs; a negative number takes it back."""
        with _lock:
            self.asked_cpus += num_cpus

    def leave(self) -> None:
        """Ends a session; the last one calls `ray.shutdown()`, if the Ray is ours."""
        with _lock:
            self.num_sessions -= 1
            # perhaps the user shut it down, and started another one
            is_there = ray.is_initialized() and self.identity == _identity()
            if self.is_ours and not self.num_sessions and is_there:
                ray.shutdown()


def enter(address: str | None, num_cpus: float, timeout_s: float) -> SharedRay:
    """Begins a session: starts or joins Ray, unless this process has one.

    Args:
      address: See `RaySession`.
      num_cpus: CPUs of a Ray that is started.
      timeout_s: Seconds that a cluster may take to answer.
    Returns:
      What to `leave`.
    Raises:
      SpecError: There is no cluster at the address.
      WorkerError: The machine is so busy that Ray does not start.
    """
    global _newest
    address = address or os.environ.get("RAY_ADDRESS", "local")
    with _lock:
        if not ray.is_initialized():
            if address == "local":
                _start_ray(math.ceil(num_cpus))
            else:
                _join_ray(address, timeout_s)
            _newest = SharedRay(_identity(), is_ours=True, is_local=address == "local")
        if _newest is None or _newest.identity != _identity():
            _log.info("using the Ray that this process is connected to")
            _newest = SharedRay(_identity(), is_ours=False, is_local=False)
        _newest.num_sessions += 1
        return _newest


def _identity() -> tuple[str, str]:
    """Names the connection of this process, which is another one after a shutdown."""
    context = ray.get_runtime_context()
    return context.gcs_address, context.get_job_id()


def _join_ray(address: str, timeout_s: float) -> None:
    check_address(address, timeout_s)
    refused = getattr(ray.exceptions, "AuthenticationError", ConnectionError)
    try:
        with _own_sigterm():
            ray.init(address, log_to_driver=False, logging_level=logging.WARNING)
    except (ConnectionError, ValueError, refused) as error:
        reason = str(error).strip().partition("\n")[0]
        raise SpecError(f"ray_address {address!r} cannot be joined: {reason}") from error


def _start_ray(num_cpus: int) -> None:
    """Starts a Ray of our own, and again where its processes were not there in time.

    Raises:
      WorkerError: Ray's processes were late each time.
    """
    for number in range(1, _MOST_STARTS + 1):
        try:
            _start_ray_once(num_cpus)
            return
        except Exception as error:
            if not is_slow_start(error):
                raise
            if number == _MOST_STARTS:
                raise WorkerError(
                    "Ray did not start: its processes took longer than its limit of 30 s, "
                    f"{number} times. Is the machine busy? Try again, or start Ray with `ray start "
                    "--head` and pass ray_address='auto'"
                ) from error
            _log.warning("Ray's processes took longer than its limit of 30 s: starting it again")


def _start_ray_once(num_cpus: int) -> None:
    """Starts a Ray without a dashboard, usage reports, or ports beyond loopback.

    Its workers have the priority of this program. By default Ray gives them niceness 15: where
    other programs keep all CPUs busy, a worker has a thirtieth of one, and may start too late.
    """
    defaults = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
    with (
        loopback_only() as loopback,
        without_monitors(),
        nothing_left_of_a_failed_start(),
        _environment(defaults | loopback),
        _own_sigterm(),
    ):
        ray.init(
            "local",
            num_cpus=num_cpus,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _node_ip_address="127.0.0.1",
        )


@contextlib.contextmanager
def _own_sigterm() -> Iterator[None]:
    """Gives a program its handler of SIGTERM back, where it had one.

    Ray's own handler ends the process by SystemExit, wherever the main thread is: the program's
    handler, which may write a checkpoint, would not run.
    """
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        is_own = before not in (signal.SIG_DFL, None)
        if is_own and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _environment(defaults: Mapping[str, str]) -> Iterator[None]:
    """Sets the variables that are not set, for the processes started inside."""
    added = {name: value for name, value in defaults.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
