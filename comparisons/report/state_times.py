# SPDX-License-Identifier: Apache-2.0
"""Time to save and to restore the state of one environment."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from comparisons.report.report_rows import Row, row_of
from rollouts.envs.make import make_vec
from rollouts.envs.registry import env_spec
from rollouts.families.atari import PREFIX, rom_path

_STEPS_BEFORE = 50
_CALLS = 200  # calls of one turn


def measure_states(id: str, *, repeats: int, seed: int) -> list[Row]:
    """Saves and restores one environment of a pool, and also by ale-py's or MuJoCo's own calls.

    Args:
      id: Id of an environment that can be saved.
      repeats: Turns of `_CALLS` calls.
      seed: Seed of the environment and its actions.

    Returns:
      Rows "save" and "restore", in us.
    """
    with make_vec(id, 1, seed=seed) as env:
        env.reset()
        env.action_space.seed(seed)
        for _ in range(_STEPS_BEFORE):
            env.step(env.action_space.sample())
        ids = [0]
        saved: Any = env.get_state(ids)
        contestants: list[tuple[str, str, Callable[[], object]]] = [
            ("rollouts", "save", lambda: env.get_state(ids)),
            ("rollouts", "restore", lambda: env.set_state(ids, saved)),
        ]
        if id.startswith(PREFIX):
            contestants += _of_ale(id)
        elif env_spec(id).header.startswith("envs/mujoco/"):
            contestants += _of_mujoco(id)
        turns: list[list[float]] = [[] for _ in contestants]
        for _ in range(repeats):
            for found, (_, _, call) in zip(turns, contestants, strict=True):
                found.append(_us(call))
    rows = [
        row_of(f"{id}, {what}", library, found, "us", higher_is_better=False, **_version(library))
        for found, (library, what, _) in zip(turns, contestants, strict=True)
    ]
    return sorted(rows, key=lambda row: row.case, reverse=True)  # "save" first


def _us(call: Callable[[], object]) -> float:
    """Median microseconds of a call."""
    times = []
    for _ in range(_CALLS):
        begin = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - begin)
    return statistics.median(times) / 1e3


def _of_ale(id: str) -> list[tuple[str, str, Callable[[], object]]]:
    import ale_py

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.loadROM(rom_path(id))
    ale.reset_game()
    for _ in range(4 * _STEPS_BEFORE):
        ale.act(0)
    state = ale.cloneState()
    return [
        ("ale-py", "save", ale.cloneState),
        ("ale-py", "restore", lambda: ale.restoreState(state)),
    ]


def _of_mujoco(id: str) -> list[tuple[str, str, Callable[[], object]]]:
    import gymnasium
    import mujoco
    import numpy as np

    env: Any = gymnasium.make(id).unwrapped
    env.reset(seed=0)
    model, data, kind = env.model, env.data, mujoco.mjtState.mjSTATE_INTEGRATION
    state = np.empty(mujoco.mj_stateSize(model, kind))
    mujoco.mj_getState(model, data, state, kind)
    return [
        ("mujoco", "save", lambda: mujoco.mj_getState(model, data, state, kind)),
        ("mujoco", "restore", lambda: mujoco.mj_setState(model, data, state, kind)),
    ]


def _version(library: str) -> dict[str, str]:
    import importlib.metadata

    return {} if library == "rollouts" else {"version": importlib.metadata.version(library)}
