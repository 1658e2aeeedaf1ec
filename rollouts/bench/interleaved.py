# SPDX-License-Identifier: Apache-2.0
"""Measures libraries against each other: interleaved repeats of equal loops."""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from rollouts.bench.measurement import (
    Comparison,
    Failure,
    Measurement,
    NotMeasured,
    Settings,
)
from rollouts.bench.own_pools import OpenEnv, Rollouts, Stepper
from rollouts.envs.registry import env_spec
from rollouts.machine.busy_loops import busy_loops
from rollouts.specs import EnvSpec

Array = npt.NDArray[Any]

# too many for a branch predictor to learn, few enough for the cache
_ACTION_BATCHES = 16


def compare(
    settings: Settings,
    peers: Sequence[Stepper],
    *,
    on_progress: Callable[[str], None] | None = None,
) -> Comparison:
    """Measures ours and the peers in this process, taking turns.

    Args:
      settings: What to measure, and for how long.
      peers: Libraries to measure besides ours; may be empty.
      on_progress: Called with a short line before each repeat.

    Returns:
      One measurement, or failure, per library.

    Raises:
      SpecError: Unknown id or option, or a setting that a peer does not have.
      EngineError: A library is not installed.
    """
    options: dict[str, Any] = dict(settings.env_options)
    limit = settings.max_episode_steps
    spec = env_spec(settings.id, max_episode_steps=limit, **options)
    libraries = [Rollouts(), *peers]
    with contextlib.ExitStack() as stack:
        # all are open at once, so that turns can be short
        envs: list[OpenEnv] = []
        failures: list[Failure] = []
        for library in libraries:
            try:
                env = library.make(settings, spec)
            except NotMeasured as error:
                failures.append(Failure(library.name, library.version(), str(error)))
                continue
            stack.callback(env.close)
            envs.append(env)
        stack.enter_context(busy_loops(settings.busy_loops))
        found = measure(
            envs,
            [actions_for(env, spec, settings.seed) for env in envs],
            duration_s=settings.duration_s,
            repeats=settings.repeats,
            on_progress=on_progress and (lambda line: on_progress(f"{settings.id}, {line}")),
        )
    return Comparison(
        settings,
        spec.options,
        tuple(one for one in found if isinstance(one, Measurement)),
        num_agents=sum(group.num_agents for group in spec.groups),
        failures=(*failures, *(one for one in found if isinstance(one, Failure))),
    )


def actions_for(env: OpenEnv, spec: EnvSpec, seed: int) -> list[Any]:
    """Random batches of actions in the form that a contestant takes; equal for equal seeds."""
    if env.run is not None:
        return []
    batches = _batches(spec, env.batch_size, seed)
    return batches if env.translate is None else [env.translate(batch) for batch in batches]


def _batches(spec: EnvSpec, rows: int, seed: int) -> list[Any]:
    if not spec.groups:
        return action_batches(spec.single_action_space, rows, seed=seed)
    groups = [
        action_batches(batch_space(one.single_action_space, one.num_agents), rows, seed=seed + i)
        for i, one in enumerate(spec.groups)
    ]
    names = [one.name for one in spec.groups]
    return [dict(zip(names, arrays, strict=True)) for arrays in zip(*groups, strict=True)]


def measure(
    envs: Sequence[OpenEnv],
    actions: Sequence[Sequence[Array]],
    *,
    duration_s: float,
    repeats: int,
    on_progress: Callable[[str], None] | None = None,
) -> list[Measurement | Failure]:
    """Measures open environments, taking turns; does not close them.

    Args:
      envs: Environments of the same task.
      actions: Batches of actions for each environment, which are sent repeatedly.
      duration_s: About how long one repeat of one environment takes.
      repeats: Turns of each environment.
      on_progress: Called with a short line before each turn.

    Returns:
      One measurement, or failure, per environment.
    """
    report = on_progress or (lambda line: None)
    calls = [0 for _ in envs]
    failures: dict[int, Failure] = {}

    def warm_up(index: int, env: OpenEnv) -> None:
        env.start()
        rate = calls_per_s(env, actions[index], warm_up_s=duration_s / 2)
        calls[index] = max(_rounds(env), round(duration_s * rate))

    elapsed_s: list[list[float]] = [[] for _ in envs]

    def take_turn(index: int, env: OpenEnv) -> None:
        # lets other contestants' work end, and brings our queue to its steady state again
        _timed(env, actions[index], calls[index] // 10 + _rounds(env))
        elapsed_s[index].append(_timed(env, actions[index], calls[index]))

    for repeat in range(repeats + 1):
        what = f"repeat {repeat} of {repeats}" if repeat else "warm-up"
        for index, env in enumerate(envs):
            if index in failures:
                continue
            report(f"{env.library}: {what}")
            try:
                (take_turn if repeat else warm_up)(index, env)
            except NotMeasured as error:
                failures[index] = Failure(env.library, env.version, str(error))
    return [
        failures[index]
        if index in failures
        else Measurement(
            library=env.library,
            version=env.version,
            batch_size=env.batch_size,
            num_threads=env.num_threads,
            api="recv/send" if env.is_async else "step",
            calls=calls[index],
            elapsed_s=tuple(elapsed_s[index]),
            options=env.options,
            notes=env.notes,
        )
        for index, env in enumerate(envs)
    ]


def run_calls(env: OpenEnv, schedule: Iterable[Array]) -> float:
    """Drives a started environment with one batch of actions after the other.

    Args:
      env: The environment; in asynchronous mode all its rows are in flight, before and after.
      schedule: Arrays (B, *action_shape).

    Returns:
      Seconds it took.
    """
    # bound methods, and the last batch kept during the next call, as in a user's loop
    if env.is_async:
        recv, send = env.env.recv, env.env.send
        started = time.perf_counter()
        for actions in schedule:
            batch = recv()
            send(actions, batch[4]["env_id"])
        return time.perf_counter() - started
    step = env.env.step
    started = time.perf_counter()
    for actions in schedule:
        _batch = step(actions)
    return time.perf_counter() - started


def calls_per_s(env: OpenEnv, batches: Sequence[Array], *, warm_up_s: float) -> float:
    """Warms up a started environment; returns the calls per second of the last loop."""
    calls = _rounds(env)
    # in asynchronous mode the first batches wait for the reset, which may load an engine
    _timed(env, batches, calls)
    while True:
        elapsed = _timed(env, batches, calls)
        if elapsed >= warm_up_s / 2:
            return calls / elapsed
        calls *= 2


def action_batches(space: spaces.Space[Any], batch_size: int, *, seed: int) -> list[Array]:
    """Random actions, drawn before anything is timed.

    Args:
      space: Action space of one environment.
      batch_size: Rows B.
      seed: The same seed gives the same actions.

    Returns:
      Arrays (B, *action_shape), dtype as the space's `sample` gives it.
    """
    batched = batch_space(space, batch_size)
    batched.seed(seed % 2**32)
    return [np.asarray(batched.sample()) for _ in range(_ACTION_BATCHES)]


def _timed(env: OpenEnv, batches: Sequence[Array], calls: int) -> float:
    """Seconds for `calls` calls, which take the batches of actions in turn."""
    if env.run is not None:
        return env.run(calls)
    return run_calls(env, itertools.islice(itertools.cycle(batches), calls))


def _rounds(env: OpenEnv) -> int:
    """Number of calls in which every environment is stepped about twice."""
    return 2 * math.ceil(env.num_envs / env.batch_size)
