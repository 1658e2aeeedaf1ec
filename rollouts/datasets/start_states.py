# SPDX-License-Identifier: Apache-2.0
"""`StartStates`: saved states of environments at the start of episodes, made by a second pool."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from rollouts.collecting.batched_env import cell_of
from rollouts.datasets.episodes import Start
from rollouts.envs.face import PoolFace
from rollouts.errors import SpecError
from rollouts.features import Cell, check


class StartStates:
    """Begins episodes again, in a pool like the recorded one.

    States of running environments can only be saved while their threads rest. But the start of an
    episode depends only on its random stream, so another pool can reach it.
    """

    def __init__(self, env: Any, *, is_on_device: bool = False) -> None:
        """Makes the pool.

        Args:
          env: Environments like those that are recorded.
          is_on_device: Whether a device steps the recorded ones.

        Raises:
          SpecError: They do not belong to a pool of threads.
        """
        engine: Any = getattr(env, "engine", None)
        check("Recorder", ["states"], Cell("kernel") if is_on_device else cell_of(env))
        if getattr(engine, "kind", "") != "native" or not hasattr(engine.pool, "seek"):
            raise SpecError(
                "states=True needs the environments of a pool of threads, whose random streams are "
                "known: leave states out"
            )
        reduced: tuple[Any, ...] = engine.__reduce__()
        make, arguments = reduced
        make = functools.partial(
            make, num_threads=1, batch_size=None, autoreset_mode="disabled", pin_threads=False
        )
        self._env: Any = type(env)(make(*arguments))
        self._begun = False

    def of(self, start: Start | None, env_id: int) -> bytes | None:
        """Returns the state of an environment at the start of an episode."""
        if start is None:
            return None
        index = (env_id - self._env.env_id_offset) % self._env.num_envs
        return begin_again(self._env, index, start)

    def close(self) -> None:
        """Frees the pool."""
        self._env.close()


def begin_again(env: PoolFace[Any], index: int, start: Start) -> bytes:
    """Begins an episode again in one environment of a pool, and returns its saved state."""
    seek(env, index, start)
    return env.get_state([env.env_id_offset + index])[0]


def seek(env: Any, index: int, start: Start) -> Any:
    """Begins an episode again in one environment; returns the result of `reset` for all."""
    if env.num_calls == 0:
        env.reset()  # a mask needs environments that have begun
    env.engine.pool.seek(index, *start)
    mask = np.zeros(env.num_envs, np.bool_)
    mask[index] = True
    return env.reset(options={"reset_mask": mask})
