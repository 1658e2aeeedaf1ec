# SPDX-License-Identifier: Apache-2.0
"""Percentiles of the time that one `step` takes, ours and other libraries'."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from comparisons.report.report_rows import Row, row_of
from rollouts.bench import OpenEnv, Rollouts, Settings, Stepper
from rollouts.bench.interleaved import actions_for
from rollouts.envs.registry import env_spec
from rollouts.machine.busy_loops import busy_loops

PERCENTILES = (50.0, 90.0, 99.0, 99.9)


def measure_latency(settings: Settings, peers: Sequence[Stepper], *, calls: int) -> list[Row]:
    """Times every call of `step` separately, while the libraries take turns.

    Args:
      settings: The environments; `repeats` turns of each library.
      peers: Libraries measured next to ours.
      calls: Calls of one turn.

    Returns:
      A row for each percentile and library: median, lowest and highest of the turns, in us.

    Raises:
      SpecError, EngineError: As `rollouts.bench.compare`.
    """
    spec = env_spec(
        settings.id,
        max_episode_steps=settings.max_episode_steps,
        **dict(settings.env_options),
    )
    with contextlib.ExitStack() as stack:
        envs = []
        for library in (Rollouts(), *peers):
            env = library.make(settings, spec)
            stack.callback(env.close)
            env.check_is_called("latency")
            env.start()
            envs.append((env, actions_for(env, spec, settings.seed)))
        stack.enter_context(busy_loops(settings.busy_loops))
        turns: list[list[npt.NDArray[np.float64]]] = [[] for _ in envs]
        for env, actions in envs:
            _times(env, actions, calls // 4 + 1)  # warms up
        for _ in range(settings.repeats):
            for found, (env, actions) in zip(turns, envs, strict=True):
                found.append(np.percentile(_times(env, actions, calls), PERCENTILES))
        return [
            row_of(
                f"{settings.id}, {settings.num_envs} envs, {percentile:g} % of calls",
                env.library,
                [float(turn[i]) for turn in found],
                "us/call",
                version=env.version,
                higher_is_better=False,
                note=" ".join(env.notes),
            )
            for i, percentile in enumerate(PERCENTILES)
            for found, (env, _) in zip(turns, envs, strict=True)
        ]


def _times(env: OpenEnv, actions: Sequence[Any], calls: int) -> npt.NDArray[np.float64]:
    """Microseconds of each call."""
    ends = np.empty(calls + 1, np.int64)
    step, clock = env.env.step, time.perf_counter_ns
    schedule = itertools.islice(itertools.cycle(actions), calls)
    ends[0] = clock()
    for i, batch in enumerate(schedule, start=1):
        # the result is kept during the next call, as in a user's loop
        _result = step(batch)
        ends[i] = clock()
    return np.diff(ends) / 1e3
