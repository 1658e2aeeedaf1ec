# SPDX-License-Identifier: Apache-2.0
"""Frames of environments with several agents, drawn from the arrays of their worlds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class WorldView:
    """A world at one moment, ready to be drawn.

    Attributes:
      now: The world's arrays by name, as its header names them, and those of its agents: "active"
        and "terminated" (A,) uint8, "elapsed_steps" () int32.
      start: The same at the start of the episode; None if the renderer does not need it.
      options: The environment's own options.
      agents: Names of all agents, in the order of the arrays.
      max_episode_steps: None: there is no limit.
    """

    now: Mapping[str, Array]
    start: Mapping[str, Array] | None
    options: Mapping[str, Any]
    agents: Sequence[str]
    max_episode_steps: int | None


class WorldRenderer(Protocol):
    """Draws worlds of one id."""

    frames_per_s: int
    asks_for_start: bool

    def draw(self, view: WorldView) -> npt.NDArray[np.uint8]:
        """Draws a world: (height, width, 3) uint8.

        Raises:
          EngineError: pygame is missing.
        """
        ...
