# SPDX-License-Identifier: Apache-2.0
"""Contestants of `rollouts bench adapter env_fns`: ways to host Python environments.

All of them step the same `gymnasium.make(id)` with the same random actions. `--env-id waiting`
sleeps 5 ms in a step, `--env-id heavy-observation` returns 768 KiB; see `host_envs`.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import Any, Protocol

import gymnasium
import numpy as np

import rollouts
from comparisons.adapters.host_envs import make_env
from comparisons.adapters.measuring import Case, Contestant

# batches of random actions, which are used in turn
_NUM_ACTIONS = 64


class _Steps(Protocol):
    """The methods that all vector environments have, even PufferLib's."""

    def reset(self, *, seed: int) -> Any: ...

    def step(self, actions: Any) -> Any: ...

    def close(self) -> Any: ...


class _Stepper:
    """Steps all environments of a vector environment, T times per collect."""

    def __init__(self, envs: _Steps, case: Case, note: str = "") -> None:
        self.note = note
        self._envs, self._case = envs, case
        single = make_env(case.id)
        space = gymnasium.vector.utils.batch_space(single.action_space, case.num_envs)
        single.close()  # type: ignore[no-untyped-call]
        space.seed(case.seed)
        self._actions = [space.sample() for _ in range(_NUM_ACTIONS)]
        envs.reset(seed=case.seed)

    def collect(self) -> int:
        for step in range(self._case.rollout_length):
            self._envs.step(self._actions[step % _NUM_ACTIONS])
        return self._case.rollout_length * self._case.num_envs

    def close(self) -> None:
        self._envs.close()


def _env_fns(case: Case) -> list[Callable[[], gymnasium.Env[Any, Any]]]:
    return [functools.partial(make_env, case.id)] * case.num_envs


def _ours(case: Case) -> Contestant:
    envs = rollouts.from_env_fns(_env_fns(case))
    return _Stepper(envs, case, note=f"{envs.num_processes} processes, by default")


def _ours_in_processes(case: Case) -> Contestant:
    envs = rollouts.from_env_fns(_env_fns(case), num_processes=case.num_threads)
    return _Stepper(envs, case, note=f"{case.num_threads} processes, as --num-threads says")


def _gymnasium_async(case: Case) -> Contestant:
    envs = gymnasium.vector.AsyncVectorEnv(_env_fns(case))
    return _Stepper(envs, case, note=f"{case.num_envs} processes")


def _gymnasium_sync(case: Case) -> Contestant:
    return _Stepper(gymnasium.vector.SyncVectorEnv(_env_fns(case)), case, note="no process")


class _Puffer:
    """PufferLib's multiprocessing backend, with the same number of environments per process."""

    def __init__(self, case: Case) -> None:
        import pufferlib.emulation
        import pufferlib.vector

        make = functools.partial(
            pufferlib.emulation.GymnasiumPufferEnv,
            env_creator=functools.partial(make_env, case.id),
        )
        self.num_workers = max(
            workers for workers in range(1, case.num_threads + 1) if case.num_envs % workers == 0
        )
        self._envs = pufferlib.vector.make(
            make,
            backend=pufferlib.vector.Multiprocessing,
            num_envs=case.num_envs,
            num_workers=self.num_workers,
        )

    def reset(self, *, seed: int) -> Any:
        return self._envs.reset(seed)

    def step(self, actions: Any) -> Any:
        return self._envs.step(np.asarray(actions))

    def close(self) -> Any:
        self._envs.close()


def _pufferlib(case: Case) -> Contestant:
    envs = _Puffer(case)
    return _Stepper(envs, case, note=f"{envs.num_workers} processes, which spin while they wait")


CONTESTANTS: dict[str, Callable[[Case], Contestant]] = {
    "rollouts": _ours,
    "rollouts-processes": _ours_in_processes,
    "gymnasium-async": _gymnasium_async,
    "gymnasium-sync": _gymnasium_sync,
}
if importlib.util.find_spec("pufferlib") is not None:
    CONTESTANTS["pufferlib"] = _pufferlib
