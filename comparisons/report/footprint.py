# SPDX-License-Identifier: Apache-2.0
"""Memory of a pool and the time to make it, each library in a process of its own.

`python -m comparisons.report.footprint` is that process: it reads a request, and prints its
measurement.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from comparisons import environment
from comparisons.report.report_rows import Row, row_of
from rollouts.bench import Rollouts, Settings, stepper
from rollouts.bench.interleaved import actions_for, run_calls
from rollouts.envs.registry import env_spec
from rollouts.errors import EngineError
from rollouts.machine.memory import resident_memory

_CALLS = 20  # steps after the first observations, so that memory allocated late is counted


def measure_footprint(settings: Settings, peers: Sequence[str], *, timeout_s: float) -> list[Row]:
    """Makes the environments in fresh processes, `settings.repeats` times for each library.

    Args:
      settings: The environments.
      peers: Names of `rollouts.bench.names("step")`, measured next to ours.
      timeout_s: Limit for one process.

    Returns:
      Rows of seconds until the first observations, and of MB that the process grew by.

    Raises:
      EngineError: A library cannot be measured; the message has the reason.
    """
    begin: dict[str, list[float]] = {}
    memory: dict[str, list[float]] = {}
    versions: dict[str, str] = {}
    for _ in range(settings.repeats):
        for name in (Rollouts.name, *peers):
            found = _in_a_process(settings, name, timeout_s)
            begin.setdefault(name, []).append(found["seconds"])
            memory.setdefault(name, []).append(found["bytes"] / 1e6)
            versions[name] = found["version"]
    case = f"{settings.id}, {settings.num_envs} envs"
    figures = (("time to the first observations", begin, "s"), ("memory", memory, "MB"))
    return [
        row_of(
            f"{case}, {what}", name, values, unit, version=versions[name], higher_is_better=False
        )
        for what, of, unit in figures
        for name, values in of.items()
    ]


def _in_a_process(settings: Settings, name: str, timeout_s: float) -> dict[str, Any]:
    try:
        done = subprocess.run(
            [sys.executable, "-m", "comparisons.report.footprint"],
            input=pickle.dumps((settings, name)),
            env=environment(),
            capture_output=True,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired as error:
        raise EngineError(
            f"{name}: {settings.num_envs} of {settings.id} were not made and stepped in "
            f"{timeout_s:g} s: give it more by --timeout-s, or leave this peer out"
        ) from error
    if done.returncode != 0:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise EngineError(f"{name}: {settings.id} cannot be made ({' '.join(last)})")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _make(settings: Settings, name: str) -> dict[str, Any]:
    library = Rollouts() if name == Rollouts.name else stepper(name)
    version = library.version()  # imports the library's modules
    limit, options = settings.max_episode_steps, dict(settings.env_options)
    spec = env_spec(settings.id, max_episode_steps=limit, **options)
    before, started = resident_memory(), time.perf_counter()
    env = library.make(settings, spec)
    env.check_is_called("memory")
    env.start()
    seconds = time.perf_counter() - started
    actions = actions_for(env, spec, settings.seed)
    run_calls(env, [actions[i % len(actions)] for i in range(_CALLS)])
    grown = resident_memory() - before
    env.close()
    return {"seconds": seconds, "bytes": grown, "version": version}


if __name__ == "__main__":
    print(json.dumps(_make(*pickle.load(sys.stdin.buffer))))
