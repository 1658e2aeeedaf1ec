# SPDX-License-Identifier: Apache-2.0
"""EnvWorker: steps Python environments on command, in its own process."""

from __future__ import annotations

import contextlib
import functools
import pickle
import signal
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np

from rollouts.envs.hosted.leaves import leaves_of, nest
from rollouts.envs.hosted.processes import identity
from rollouts.envs.hosted.processes.begin import LAST_RESORT_S, begin_process, seeded_apart
from rollouts.envs.hosted.processes.copies import copied, plain_info
from rollouts.envs.hosted.processes.episode_rules import RECOVERY_ATTEMPTS, EpisodeRules, show_cut
from rollouts.envs.hosted.processes.failures import ProcessFailure
from rollouts.envs.hosted.processes.records import EnvFn, Hello, Record, Setup
from rollouts.envs.hosted.processes.shared_memory import SharedMemory
from rollouts.envs.hosted.processes.timing import StepTimer
from rollouts.envs.hosted.processes.wire import Kind, WorkerLink, frame, make_orphan_test
from rollouts.errors import EnvAttributeError, SpecError


def run_worker(
    sock: socket.socket,
    env_fns: Sequence[EnvFn] | bytes,
    setup: Setup,
    inherited: Sequence[socket.socket],
) -> None:
    """Makes environments, steps them on command, and returns when the host is gone or closes.

    Args:
      sock: Connected to the host.
      env_fns: Functions that make the environments; bytes: pickled.
      setup: The settings with which the process starts.
      inherited: The host's ends of sockets, of which a forked process has copies.
    """
    for other in inherited:
        other.close()
    begin_process(is_fork=not isinstance(env_fns, bytes))
    is_orphan = make_orphan_test(setup.host_pid)
    link = WorkerLink(sock, is_orphan)
    envs: list[gymnasium.Env[Any, Any]] = []
    with contextlib.suppress(OSError):  # the host may be gone
        try:
            makers = pickle.loads(env_fns) if isinstance(env_fns, bytes) else list(env_fns)
            identity.keep_those_of_host()
            with seeded_apart(setup.seed, setup.env_id_offset + setup.first, setup.incarnation):
                envs += (make() for make in makers)
            hello = identity.dumps_for_host(hello_of(envs))
        except Exception as error:
            link.send(frame(Kind.CANNOT_START, pickle.dumps(ProcessFailure.of(error))))
        else:
            link.send(frame(Kind.HELLO, hello))
            given = link.receive_memory()
            if given is not None:
                memory = SharedMemory(*given)
                memory.close()
                report = functools.partial(_report, link, len(envs))
                _serve(link, EnvWorker(report, envs, makers, setup, memory))
    if is_orphan():
        # the host is gone, perhaps without a signal: this alarm ends an environment that hangs
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(LAST_RESORT_S)
    sock.close()
    for env in envs:
        with contextlib.suppress(Exception):
            env.close()  # type: ignore[no-untyped-call]


def hello_of(envs: Sequence[gymnasium.Env[Any, Any]]) -> Hello:
    """Makes the report on environments."""
    hello = Hello([], [], [], dict(envs[0].metadata), envs[0].render_mode)
    for env in envs:
        if env.observation_space not in hello.observation_spaces:
            hello.observation_spaces.append(env.observation_space)
        hello.observation_space_of.append(hello.observation_spaces.index(env.observation_space))
        if env.action_space not in hello.action_spaces:
            hello.action_spaces.append(env.action_space)
    return hello


def _serve(link: WorkerLink, worker: EnvWorker) -> None:
    """Carries out messages until the host is gone."""
    while (message := link.receive()) is not None:
        kind, payload = message
        if kind == Kind.CALL:
            link.send(_answer(worker.call, payload))
        elif kind == Kind.SET_ATTR:
            link.send(_answer(worker.set_attr, payload))
        else:
            worker.obey(kind, payload)


def _answer(function: Callable[..., Any], payload: bytes) -> bytes:
    try:
        answer = identity.dumps_for_host(function(*pickle.loads(payload)))
    except Exception as error:
        answer = pickle.dumps(ProcessFailure.of(error))
    return frame(Kind.ANSWER, answer)


def _report(link: WorkerLink, num_envs: int, rows: Sequence[int], records: list[Record]) -> None:
    if len(rows) == num_envs:
        done = frame(Kind.DONE_ALL)
    else:
        done = frame(Kind.DONE, np.asarray(rows, np.int32).tobytes())
    if records:
        done = frame(Kind.RECORDS, pickle.dumps([each.pickled() for each in records])) + done
    link.send(done)


class EnvWorker:
    """Carries out messages. Indices are positions among its own environments."""

    def __init__(
        self,
        report: Callable[[Sequence[int], list[Record]], None],
        envs: list[gymnasium.Env[Any, Any]],
        makers: Sequence[EnvFn],
        setup: Setup,
        memory: SharedMemory,
    ) -> None:
        """Args: report: takes rows that are done. envs: of `makers`. memory: of the whole host."""
        self._tell, self._envs, self._setup = report, envs, setup
        self._rules = EpisodeRules(envs, makers, setup)
        mine = slice(setup.first, setup.first + len(envs))
        arrays = memory.arrays
        names = ("reward", "terminated", "truncated", "was_reset")
        self._rows = {name: arrays[name][mine] for name in names}
        self._reward, self._terminated, self._truncated, self._was_reset = self._rows.values()
        self._observation_leaves = leaves_of(envs[0].observation_space)
        self._action_space = envs[0].action_space
        self._action_leaves = leaves_of(self._action_space)
        self._actions = [
            None if leaf.dtype is None else arrays[f"action/{i}"][mine]
            for i, leaf in enumerate(self._action_leaves)
        ]
        self._obs = [
            (leaf, arrays[f"obs/{i}"][mine])
            for i, leaf in enumerate(self._observation_leaves)
            if leaf.dtype is not None
        ]
        self._final = [
            arrays[f"final_obs/{i}"][mine]
            for i, leaf in enumerate(self._observation_leaves)
            if f"final_obs/{i}" in arrays
        ]
        self._object_leaves = [leaf for leaf in self._observation_leaves if leaf.dtype is None]
        # one array and no objects, as in nearly all environments
        only = len(self._obs) == 1 and not self._object_leaves and not self._obs[0][0].path
        self._only_obs = self._obs[0][1] if only else None
        self._only_shape = self._obs[0][0].shape if only else None
        self._only_rows = [self._obs[0][1][row, ...] for row in range(len(envs))] if only else []
        self._objects: list[tuple[Any, ...]] = [()] * len(envs)
        self._records: list[Record] = []
        self._timer = StepTimer(arrays, setup.index, mine)

    def obey(self, kind: int, payload: bytes) -> None:
        """Steps or resets as a message asks, and reports."""
        if kind == Kind.STEP_ALL:
            self._step(range(len(self._envs)), {})
        elif kind == Kind.STEP:
            self._step(np.frombuffer(payload, np.int32).tolist(), {})
        elif kind == Kind.STEP_OBJECTS:
            self._step(*pickle.loads(payload))
        else:
            assert kind == Kind.RESET
            self._reset(*pickle.loads(payload))

    def cut_short(self, rows: Sequence[int], failure: ProcessFailure) -> None:
        """Reports rows that were at work as failed; their next step begins an episode."""
        self._records.clear()
        for row in rows:
            self._fail(row, failure, num_attempts=0)
        self._report(rows)

    # -- stepping --------------------------------------------------------------------

    def _step(self, rows: Sequence[int], objects: dict[int, list[bytes]]) -> None:
        actions = self._actions_of(rows, objects)
        at = slice(None) if isinstance(rows, range) else rows
        for flags in (self._terminated, self._truncated, self._was_reset):
            flags[at] = False
        times = self._timer.begin()
        # local names, as cheap environments spend most of their time in this loop
        envs, must_reset = self._envs, self._rules.must_reset
        reports_each = self._setup.reports_each
        rewards, only_rows, only_shape = self._reward, self._only_rows, self._only_shape
        for row, action in zip(rows, actions, strict=True):
            try:
                if must_reset[row]:
                    self._begin_row(row, None, None)
                else:
                    obs, reward, terminated, truncated, info = envs[row].step(action)
                    has_info = info or type(info) is not dict
                    is_only = type(obs) is np.ndarray and obs.shape == only_shape
                    if is_only and not (terminated or truncated or has_info):
                        rewards[row] = reward
                        only_rows[row][...] = obs
                    else:
                        self._show_step(row, obs, reward, terminated, truncated, info)
            except Exception as error:
                self._fail(row, ProcessFailure.of(error))
            if times is not None:
                times.append(time.perf_counter())
            if reports_each:
                self._report((row,))
        if times is not None:
            self._timer.end(rows, times)
        if not reports_each:
            self._report(rows)

    def _actions_of(self, rows: Sequence[int], objects: dict[int, list[bytes]]) -> list[Any]:
        """One action per row, in memory that is not written later."""
        in_order = isinstance(rows, range)  # all rows
        columns = [
            [pickle.loads(value) for value in objects[leaf]]
            if array is None
            else list(array.copy() if in_order else array[rows])
            for leaf, array in enumerate(self._actions)
        ]
        if len(columns) == 1 and not self._action_leaves[0].path:
            return columns[0]
        if not columns:
            return [nest(self._action_space, ()) for _ in rows]
        return [nest(self._action_space, parts) for parts in zip(*columns, strict=True)]

    def _show_step(
        self, row: int, obs: Any, reward: Any, terminated: Any, truncated: Any, info: Any
    ) -> None:
        """Writes a step, and begins the next episode where one ended and the mode is same-step."""
        info = plain_info(info)
        record = None
        if terminated or truncated:
            if self._rules.end(row):
                # copies, because the reset may use the environment's objects again
                record = Record(self._setup.first + row, final_info=copied(info))
                record.final_objects = self._write(row, obs, is_final=True)
                record.final_exact = () if self._is_plain(obs) else (copied(obs),)
                obs, info = self._rules.begin(row, None, None)
            self._terminated[row] = terminated
            self._truncated[row] = truncated
        self._reward[row] = reward
        objects = self._write(row, obs)
        if info or objects or (record is not None and (record.final_info or record.final_exact)):
            record = record or Record(self._setup.first + row)
            record.info, record.objects = info, objects
            self._keep(record)

    def _is_plain(self, obs: Any) -> bool:
        """Returns whether an observation can be read back from shared memory unchanged."""
        array = self._only_obs
        return array is not None and type(obs) is np.ndarray and obs.dtype == array.dtype

    def _write(self, row: int, obs: Any, *, is_final: bool = False) -> tuple[Any, ...]:
        """Writes the arrays of an observation; returns its other leaves."""
        for place, (leaf, array) in enumerate(self._obs):
            target = self._final[place] if is_final else array
            value = leaf.of(obs)
            if np.shape(value) != leaf.shape:
                raise SpecError(
                    f"an observation{leaf.name} has shape {np.shape(value)}, expected {leaf.shape} "
                    "as the observation space says"
                )
            target[row] = value
        objects = tuple(copied(leaf.of(obs)) for leaf in self._object_leaves)
        if not is_final:
            self._objects[row] = objects
        return objects

    # -- episodes --------------------------------------------------------------------

    def _reset(self, rows: Sequence[int], seeds: Sequence[int | None], options: bytes) -> None:
        for row, seed in zip(rows, seeds, strict=True):
            try:
                # each environment gets options of its own, which it may change
                self._begin_row(row, seed, pickle.loads(options))
            except Exception as error:
                self._fail(row, ProcessFailure.of(error))
            if self._setup.reports_each:
                self._report((row,))
        if not self._setup.reports_each:
            self._report(rows)

    def _begin_row(self, row: int, seed: int | None, options: dict[str, Any] | None) -> None:
        """Begins an episode; the row has only its first observation."""
        obs, info = self._rules.begin(row, seed, options)
        objects = self._write(row, obs)
        self._reward[row] = 0.0
        self._terminated[row] = self._truncated[row] = False
        self._was_reset[row] = True
        if info or objects:
            self._keep(Record(self._setup.first + row, info, objects=objects))

    def _fail(
        self, row: int, failure: ProcessFailure, num_attempts: int = RECOVERY_ATTEMPTS
    ) -> None:
        """Cuts the row's episode short; the next one begins as after any end."""
        record = Record(self._setup.first + row, objects=self._objects[row], failure=failure)

        def show(obs: Any, info: Any) -> None:
            record.info = info
            record.objects = self._write(row, obs)

        if self._rules.fail(row):
            for target, (_, array) in zip(self._final, self._obs, strict=True):
                target[row] = array[row]
            record.final_objects = record.objects
            self._rules.recover(row, num_attempts, show)
        show_cut(self._rows, row)
        self._keep(record)

    # -- the rest --------------------------------------------------------------------

    def _keep(self, record: Record) -> None:
        # the environments of a process may share what they report
        record.info = copied(record.info)
        self._records.append(record)

    def _report(self, rows: Sequence[int]) -> None:
        records, self._records = self._records, []
        self._tell(rows, records)

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Calls a method of every environment, or reads its attribute; returns the values."""
        if name in ("reset", "step", "close"):
            raise SpecError(f"call({name!r}) would go past the host: use its own {name}()")
        try:
            found = [env.get_wrapper_attr(name) for env in self._envs]
        except AttributeError as error:
            raise EnvAttributeError(str(error)) from error
        return [one(*args, **kwargs) if callable(one) else one for one in found]

    def set_attr(self, name: str, values: Sequence[Any]) -> list[None]:
        """Sets an attribute of every environment."""
        for env, value in zip(self._envs, values, strict=True):
            env.set_wrapper_attr(name, value)
        return [None] * len(self._envs)
