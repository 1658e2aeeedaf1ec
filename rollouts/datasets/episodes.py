# SPDX-License-Identifier: Apache-2.0
"""`Episode`: one whole episode of one agent, and the random stream that it began with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Start(NamedTuple):
    """The random stream of an episode, which together with the actions determines its data.

    Attributes:
      seed: Seed of the pool.
      stream_id: The stream of that seed: the environment's env_id, unless a state was loaded.
      number: Number of the episode since the stream was seeded.
    """

    seed: int
    stream_id: int
    number: int


@dataclass(frozen=True, slots=True, eq=False)
class Episode:
    """One whole episode of T steps.

    Attributes:
      frames      (T + 1, *obs_shape) obs_dtype   observations, the final one last; of stacked
                                                  frames (T + S, *frame_shape), each frame once
      action      (T, *action_shape)   the actions that the environment took
      reward      (T,) float32
      terminated, truncated  (T,) bool
      infos       name -> (T, ...)     requested values; row t belongs to step t
      stack_num   S; 1: observations are not stacked
      env_id      The environment's number; for agents env_id * A + the agent's place in its group.
      start       The episode's random stream; None if it is not known.
      state       The environment's saved state at the start; None if it was not requested.
    """

    frames: Array
    action: Array
    reward: Array
    terminated: Array
    truncated: Array
    infos: Mapping[str, Array] = field(default_factory=lambda: MappingProxyType({}))
    stack_num: int = 1
    env_id: int = 0
    start: Start | None = None
    state: bytes | None = None

    @property
    def observation(self) -> Array:
        """(T + 1, *obs_shape): a view; for stacks a view of the frames."""
        if self.stack_num == 1:
            return self.frames
        windows = np.lib.stride_tricks.sliding_window_view(self.frames, self.stack_num, axis=0)
        return np.moveaxis(windows, -1, 1)

    @property
    def num_steps(self) -> int:
        """T."""
        return len(self.reward)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays together."""
        arrays = [self.frames, self.action, self.reward, self.terminated, self.truncated]
        return sum(array.nbytes for array in (*arrays, *self.infos.values()))
