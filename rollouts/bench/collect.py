# SPDX-License-Identifier: Apache-2.0
"""Measures rollouts per second: of our collectors, the Ray worker and other libraries' runners.

Behind `rollouts bench collect`. The pool stepped without a policy, and a plain loop over the same
environments, show how much of the time is stepping.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from rollouts.bench.all_peers import find
from rollouts.bench.collect_task import Stream, Task
from rollouts.bench.measurement import (
    Comparison,
    Failure,
    Measurement,
    NotMeasured,
    Settings,
)
from rollouts.bench.peer import Peer
from rollouts.bench.policy_kinds import PolicyKind, default_policy
from rollouts.envs.registry import env_spec
from rollouts.errors import EngineError, SpecError
from rollouts.machine.busy_loops import busy_loops
from rollouts.machine.torch_threads import beside_a_pool

_log = logging.getLogger(__name__)

COUNTING = (
    "One env-step is one action and its outcome, received by the calling process. us/call is the "
    "time of one step of all environments with its share of everything else. Each works only in "
    "its own turns, from its steady state, with a policy network of the same size; in this "
    "process torch has the threads that Collector gives it. How many times as fast as a row the "
    'first row is, is told by "rollouts is".'
)

# columns of the table, and the stream whose speed is 100 % in each
_SHARES = {"of env alone": "rollouts, env alone", "of plain loop": "plain C++ loop"}


def compare_collecting(
    settings: Settings,
    *,
    rollout_length: int,
    policy: PolicyKind | None = None,
    in_process: bool = False,
    peers: Sequence[str] = (),
    peer_num_envs: int | None = None,
    peer_python: Path | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> Comparison:
    """Measures our collectors, the Ray worker, stepping alone, and peers, taking turns.

    Args:
      settings: What to measure, and for how long; batch_size must be num_envs.
      rollout_length: Steps T of each environment per rollout.
      policy: See `policies.make_policy`; None for `default_policy`.
      in_process: Whether to leave the Ray worker out, and not to start Ray.
      peers: Names of `all_peers.names("collect")`. A peer whose library is missing is left out,
        with a warning and a failure in the result.
      peer_num_envs: Environments of each peer; None for num_envs.
      peer_python: The interpreter of a peer that has its own; None: the one that `make peers`
        makes.
      on_progress: Called with a short line before each turn.

    Returns:
      One measurement per stream, the fastest engine of our collector first.

    Raises:
      SpecError: Unknown id or option, or a setting that a peer does not have.
      EngineError: The environment's engine, or torch, is not installed.
    """
    options: dict[str, Any] = dict(settings.env_options)
    spec = env_spec(settings.id, **options)
    kind = policy or default_policy(spec.single_observation_space)
    _check(settings, rollout_length, peer_num_envs)
    found_peers = _find_peers(peers, kind, in_process=in_process)
    task = Task(settings, spec, rollout_length, kind)
    # errors in the policy are found before anything is started
    local = task.local_policy(settings.num_envs)
    with ExitStack() as stack:
        stack.enter_context(beside_a_pool(local, settings.num_envs))
        failures: list[Failure] = []
        streams = _open_streams(
            stack,
            task,
            failures,
            peers={
                peer.name: functools.partial(_open_peer, peer, peer_python) for peer in found_peers
            },
            peer_num_envs=peer_num_envs,
            in_process=in_process,
        )
        stack.enter_context(busy_loops(settings.busy_loops))
        found = measure_streams(
            streams,
            rollout_length=rollout_length,
            duration_s=settings.duration_s,
            repeats=settings.repeats,
            options={"rollout_length": rollout_length, "policy": kind.name},
            on_progress=on_progress and (lambda line: on_progress(f"{settings.id}, {line}")),
        )
    return Comparison(
        settings,
        spec.options,
        tuple(one for one in found if isinstance(one, Measurement)),
        shares=_SHARES,
        failures=(*failures, *(one for one in found if isinstance(one, Failure))),
    )


def measure_streams(
    streams: Sequence[Stream],
    *,
    rollout_length: int,
    duration_s: float,
    repeats: int,
    options: dict[str, Any],
    on_progress: Callable[[str], None] | None = None,
) -> list[Measurement | Failure]:
    """Measures open streams, taking turns; leaves them paused.

    Args:
      streams: Streams that are paused.
      rollout_length: Steps T of each environment per `collect`.
      duration_s: About how long one repeat of one stream takes.
      repeats: Turns of each stream.
      options: Options to record with each measurement.
      on_progress: Called with a short line before each turn.

    Returns:
      One measurement, or failure, per stream.
    """
    report = on_progress or (lambda line: None)
    rollouts = [0 for _ in streams]
    elapsed_s: list[list[float]] = [[] for _ in streams]
    failures: dict[int, Failure] = {}
    for repeat in range(repeats + 1):
        what = f"repeat {repeat} of {repeats}" if repeat else "warm-up"
        for index, stream in enumerate(streams):
            if index in failures:
                continue
            report(f"{stream.name}: {what}")
            try:
                stream.resume()
                if repeat:
                    elapsed_s[index].append(_timed(stream, rollouts[index], rollout_length))
                else:
                    rollouts[index] = _rollouts_within(stream, duration_s)
                stream.pause()
            except NotMeasured as error:
                failures[index] = Failure(stream.name, stream.version(), str(error))
    return [
        failures[index]
        if index in failures
        else Measurement(
            library=stream.name,
            version=stream.version(),
            batch_size=stream.num_envs,
            num_threads=stream.num_threads,
            api=stream.api,
            calls=rollouts[index] * rollout_length,
            elapsed_s=tuple(elapsed_s[index]),
            options=options,
            notes=stream.notes,
        )
        for index, stream in enumerate(streams)
    ]


def _rollouts_within(stream: Stream, duration_s: float) -> int:
    """Rollouts that take about `duration_s`, at least one."""
    count, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < duration_s / 2 or not count:
        stream.collect()
        count += 1
    return max(1, round(duration_s * count / elapsed))


def _timed(stream: Stream, rollouts: int, rollout_length: int) -> float:
    """Seconds for this many rollouts of `rollout_length` steps, at the measured speed."""
    started = time.perf_counter()
    num_steps = sum(stream.collect() for _ in range(rollouts))
    elapsed = time.perf_counter() - started
    # RLlib rounds the requested number up, so the steps that it delivered are counted
    return elapsed * (rollouts * rollout_length * stream.num_envs) / num_steps


def _open_streams(
    stack: ExitStack,
    task: Task,
    failures: list[Failure],
    *,
    peers: Mapping[str, Callable[[Task, int], Stream]],
    peer_num_envs: int | None,
    in_process: bool,
) -> list[Stream]:
    """Opens all that can be measured, and adds the rest to failures; the stack closes them."""
    from rollouts.bench.collect_streams import Coordinated, EnvAlone, InProcess, PlainStream

    streams: list[Stream] = []

    def add(make: Callable[[], Stream]) -> None:
        stream = make()
        stack.callback(stream.close)
        streams.append(stream)

    # first, so that an error in the policy leaves no coordinator behind
    here = InProcess(task, "torch")
    stack.callback(here.close)
    try:
        add(lambda: InProcess(task, "native"))
    except SpecError as error:
        here.notes += (f"{error}.",)
    streams.append(here)
    if not in_process:
        with _left_out_if_missing(Coordinated.name, failures):
            add(lambda: Coordinated(task))
    add(lambda: EnvAlone(task))
    # only light environments have a plain loop
    with suppress(SpecError):
        add(lambda: PlainStream(task))
    for name, make in peers.items():
        with _left_out_if_missing(name, failures):
            add(functools.partial(make, task, peer_num_envs or task.settings.num_envs))
    return streams


@contextmanager
def _left_out_if_missing(name: str, failures: list[Failure]) -> Iterator[None]:
    try:
        yield
    except EngineError as error:
        failures.append(Failure(name, "", str(error)))
        _log.warning("not measured: %s", error)


def _open_peer(peer: Peer, python: Path | None, task: Task, num_envs: int) -> Stream:
    stream: Stream = peer.open("collect", task, num_envs, python=python)
    return stream


def _check(settings: Settings, rollout_length: int, peer_num_envs: int | None) -> None:
    if settings.is_async:
        raise SpecError(
            f"batch_size is {settings.batch_size} with num_envs {settings.num_envs}, expected "
            "equal numbers: collecting is measured with synchronous pools"
        )
    for name, value in (("rollout_length", rollout_length), ("peer_num_envs", peer_num_envs)):
        if value is not None and value < 1:
            raise SpecError(f"{name} is {value}, expected at least 1")


def _find_peers(names: Sequence[str], policy: PolicyKind, *, in_process: bool) -> list[Peer]:
    """The peers of these names. Raises SpecError if one cannot be measured with these arguments."""
    kind = "layers" if policy.hidden else policy.name
    found = [find(name, "collect") for name in names]
    for peer in found:
        if in_process and peer.needs_ray:
            raise SpecError(f"peer {peer.name!r} needs Ray, which in_process does not start")
        if kind not in peer.policies:
            raise SpecError(
                f"peer {peer.name!r} is not measured with the policy {policy.name!r}: leave this "
                "peer out, or measure 64x64"
            )
    return found
