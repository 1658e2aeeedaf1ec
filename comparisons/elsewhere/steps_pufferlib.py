# SPDX-License-Identifier: Apache-2.0
"""PufferLib's vectoriser over Gymnasium's environments; run by `serve` in its interpreter."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
import time
from typing import Any

import gymnasium
import numpy as np
import pufferlib.emulation
import pufferlib.vector


class _Steps:
    """Environments, stepped with batches of actions that were drawn before and are used in turn."""

    def __init__(self, envs: Any, actions: list[Any], *, is_async: bool, seed: int) -> None:
        self._envs, self._is_async = envs, is_async
        dtype = envs.action_space.dtype
        self._actions = [np.asarray(batch, dtype) for batch in actions]
        self.told: dict[str, Any] = {}
        if is_async:
            envs.async_reset(seed)
        else:
            envs.reset(seed)

    def run(self, calls: int) -> tuple[float, int]:
        """Steps; in asynchronous mode all environments are in flight, before and after."""
        envs, actions = self._envs, self._actions
        count = len(actions)
        started = time.perf_counter()
        if self._is_async:
            for call in range(calls):
                envs.recv()
                envs.send(actions[call % count])
        else:
            for call in range(calls):
                envs.step(actions[call % count])
        return time.perf_counter() - started, calls * len(actions[0])

    def close(self) -> None:
        """Ends the worker processes."""
        self._envs.close()


def make(
    id: str,
    num_envs: int,
    batch_size: int,
    num_workers: int,
    seed: int,
    max_episode_steps: int,
    actions: list[Any],
) -> _Steps:
    """Makes environments in `num_workers` processes, or in this one where that is 1."""
    make_one = functools.partial(
        pufferlib.emulation.GymnasiumPufferEnv,
        env_creator=gymnasium.make,
        env_args=[id],
        env_kwargs={"max_episode_steps": max_episode_steps},
    )
    arguments: dict[str, Any] = {"backend": pufferlib.vector.Serial}
    if num_workers > 1:
        arguments = {
            "backend": pufferlib.vector.Multiprocessing,
            "num_workers": num_workers,
            "batch_size": batch_size,
            "overwork": True,  # PufferLib counts cores, not those that this process may use
        }
    is_async = batch_size < num_envs
    if is_async and num_workers == 1:
        raise ValueError("PufferLib's recv of a part needs two processes: give --num-threads 2")
    envs = pufferlib.vector.make(make_one, num_envs=num_envs, seed=seed, **arguments)
    made = _Steps(envs, actions, is_async=is_async, seed=seed)
    workers = f"pufferlib.vector.{type(envs).__name__}"
    if num_workers > 1:
        workers += f" of {num_workers} processes, which spin while they wait"
    made.told = {
        "version": importlib.metadata.version("pufferlib"),
        "notes": [
            f"{workers}, in Python {platform.python_version()} with Gymnasium "
            f"{gymnasium.__version__} and NumPy {np.__version__}; stopped while others are "
            "measured.",
        ],
    }
    return made
