# SPDX-License-Identifier: Apache-2.0
"""Draws classic control with Gymnasium's own renderers, which need pygame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from rollouts import _native
from rollouts.rendering.canvas import missing_pygame, quiet_pygame

# our option -> the attribute of Gymnasium's environment that its renderer reads
_DRAWN_OPTIONS = {"pole_half_length": "length"}


class ClassicRenderer:
    """One of Gymnasium's environments, which draws states that are put into it."""

    def __init__(self, id: str) -> None:
        """Makes the environment; pygame is imported with the first frame."""
        self._env: Any = gymnasium.make(id, render_mode="rgb_array").unwrapped
        # the reset sets some attributes that the renderer reads
        self._env.reset()

    @property
    def frames_per_s(self) -> int:
        """The frame rate in Gymnasium."""
        return int(self._env.metadata["render_fps"])

    def draw(self, state: bytes, options: Mapping[str, Any]) -> npt.NDArray[np.uint8]:
        """Draws a state; Pendulum without the arrow of the torque, which no state contains.

        Args:
          state: An entry of `VectorEnv.get_state`.
          options: The environment's own options.

        Returns:
          (height, width, 3) uint8.

        Raises:
          EngineError: pygame is missing.
        """
        for name, attribute in _DRAWN_OPTIONS.items():
            if name in options:
                setattr(self._env, attribute, options[name])
        self._env.state = np.frombuffer(_native.env_state(state), np.float64)
        try:
            with quiet_pygame():
                return np.asarray(self._env.render())
        except gymnasium.error.DependencyNotInstalled as error:
            raise missing_pygame("classic control", error) from error
