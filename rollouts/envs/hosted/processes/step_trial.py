# SPDX-License-Identifier: Apache-2.0
"""Finds the default number of processes by stepping one environment for a moment.

Environments of one process step one after the other. Where a step computes, as many processes as
there are CPUs are fastest, and a message to each is cheap. Where it waits (for a simulator, the
network, a clock), the others of its process wait too, so that there must be more processes.
"""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import resource
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any

import gymnasium

from rollouts.envs.hosted.processes.begin import LAST_RESORT_S, begin_process
from rollouts.envs.hosted.processes.lifecycle import CLOSE_TIMEOUT_S, travelling
from rollouts.envs.hosted.processes.records import EnvFn
from rollouts.envs.hosted.processes.timing import StepClock
from rollouts.envs.hosted.processes.wire import deadline_of

# how long steps are tried; at least one step is
_TRIAL_S = 0.02
_NUM_ACTIONS = 100
# a trial that lasts longer than this is ended; if it mostly waits, each environment gets a process
_PATIENCE_S = 5.0
_LATE_WAITING_SHARE = 0.5  # share of that time; a longer computation may be loading and compiling
# steps count as waiting if they wait for at least this share of their time, and if they give their
# CPU away so many times each
_WAITING_SHARE = 0.2
_SWITCHES_PER_STEP = 0.5


@dataclass(frozen=True, slots=True)
class StepTrial:
    """Measurements of the steps that were tried.

    Attributes:
      stepped_s, waited_s: How long they took, and how much of that time the process waited for
        anything but a CPU; neither includes waits for a CPU.
      num_steps, num_switches: Steps, and how often the process gave its CPU away in them.
    """

    stepped_s: float
    waited_s: float
    num_steps: int
    num_switches: int

    def num_processes(self, num_envs: int, num_cpus: int) -> int:
        """Number of processes that keep the CPUs busy with such steps.

        Where steps wait for anything but a CPU, the number is doubled to be sure.
        """
        waits = self.num_switches >= _SWITCHES_PER_STEP * self.num_steps
        share = self.waited_s / self.stepped_s if self.stepped_s > 0 else 0.0
        if not waits or share < _WAITING_SHARE:
            return min(num_cpus, num_envs)
        busy_s = self.stepped_s - self.waited_s
        if busy_s * num_envs <= 2 * num_cpus * self.stepped_s:
            return num_envs
        return min(num_envs, math.ceil(2 * num_cpus * self.stepped_s / busy_s))


def default_processes(env_fn: EnvFn, context: BaseContext, num_envs: int, num_cpus: int) -> int:
    """Number of processes for N environments like the one that `env_fn` makes.

    With more environments than CPUs one is made in a process of its own, reset and stepped with
    random actions for 20 ms, at least one step, and closed. Where that fails, there are as
    many processes as CPUs, and they report the reason to the caller. A reset and steps that take
    longer than 5 s are not waited for: each environment gets a process if they have mostly waited
    so far, else there are as many processes as CPUs.
    """
    if num_envs <= num_cpus:
        return num_envs
    ours, theirs = context.Pipe()
    process = context.Process(  # type: ignore[attr-defined]
        target=_run,
        name="rollouts-env-fns-trial",
        args=(theirs, travelling(context, [env_fn])),
        daemon=False,  # environments may have processes of their own
    )
    process.start()
    theirs.close()
    patience_s, has_waited = 0.0, False
    try:
        is_made, _ = _receive(ours, process, None)
        clocks = _clocks(process.pid)
        found, is_late = _receive(ours, process, _PATIENCE_S) if is_made else (None, False)
        has_waited = is_late and _has_waited(clocks, _clocks(process.pid))
        patience_s = CLOSE_TIMEOUT_S
    finally:
        ours.close()
        process.join(patience_s)
        if process.is_alive():
            process.kill()
            process.join()
        process.close()
    if has_waited:
        return num_envs
    return min(num_cpus, num_envs) if found is None else found.num_processes(num_envs, num_cpus)


def _receive(pipe: Connection, process: Any, timeout_s: float | None) -> tuple[Any, bool]:
    """Waits for a message; returns it, or None if none will come, and whether it is late."""
    deadline = deadline_of(timeout_s)
    while True:
        left_s = deadline - time.monotonic()
        ready = wait([pipe, process.sentinel], None if left_s == math.inf else max(0.0, left_s))
        if not ready:
            return None, True
        try:
            # a message sent before the end still counts
            return (pipe.recv(), False) if pipe.poll() else (None, False)
        except (EOFError, OSError):
            return None, False


def _clocks(pid: int) -> tuple[float, float] | None:
    """Reads the clocks of `StepClock.read` for another process; None on systems without them."""
    files = Path(f"/proc/{pid}")
    now = time.perf_counter()
    try:
        # the name may hold anything; utime and stime are fields 14 and 15 of the line
        fields = (files / "stat").read_text().rpartition(")")[2].split()
        queued_s = int((files / "schedstat").read_text().split()[1]) * 1e-9
    except OSError:
        return None
    return now - queued_s, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _has_waited(before: tuple[float, float] | None, after: tuple[float, float] | None) -> bool:
    """Returns whether a process has mostly waited, for anything but a CPU, between two readings."""
    if before is None or after is None:
        return False
    passed_s, computed_s = after[0] - before[0], after[1] - before[1]
    return passed_s - computed_s > _LATE_WAITING_SHARE * passed_s


def _run(pipe: Connection, env_fns: Any) -> None:
    """Runs in the process: makes an environment and sends a report, then the cost of its steps."""
    begin_process(is_fork=not isinstance(env_fns, bytes))
    # the later processes report why an environment cannot be made or stepped
    with contextlib.suppress(Exception):
        make = (pickle.loads(env_fns) if isinstance(env_fns, bytes) else env_fns)[0]
        env = make()
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(LAST_RESORT_S)
            pipe.send(True)
            pipe.send(_try(env))
        finally:
            env.close()


def _try(env: gymnasium.Env[Any, Any]) -> StepTrial:
    env.reset()
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(_NUM_ACTIONS)]
    clock = StepClock()
    # a first step loads and compiles: it counts only if it is as long as a whole trial
    first = _measure(env, actions[:1], clock)
    return first if first.stepped_s >= _TRIAL_S else _measure(env, actions, clock)


def _measure(env: gymnasium.Env[Any, Any], actions: Sequence[Any], clock: StepClock) -> StepTrial:
    begin, switches, num_steps = time.perf_counter(), _num_switches(), 0
    first, first_computed = clock.read()
    for action in actions:
        num_steps += 1
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()
        if time.perf_counter() - begin >= _TRIAL_S:
            break
    last, last_computed = clock.read()
    waited_s = max(0.0, last - first - (last_computed - first_computed))
    return StepTrial(last - first, waited_s, num_steps, _num_switches() - switches)


def _num_switches() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
