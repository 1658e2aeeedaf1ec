# SPDX-License-Identifier: Apache-2.0
"""Frames of a pool's environments with several agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rollouts import _native
from rollouts.families.table import family_of
from rollouts.rendering.agent_frames import WorldRenderer, WorldView
from rollouts.rendering.frame_options import RenderOptions
from rollouts.rendering.particles import ParticleRenderer
from rollouts.rendering.tag import TagRenderer
from rollouts.specs import EnvSpec


class WorldFrames:
    """Draws the worlds of one pool."""

    def __init__(self, pool: _native.CpuPool, options: RenderOptions) -> None:
        """Makes nothing before the first frame."""
        self._pool = pool
        self._options = options
        self._renderers: dict[str, WorldRenderer] = {}  # by id

    def draw(self, env_id: int, spec: EnvSpec, options: Mapping[str, Any]) -> npt.NDArray[np.uint8]:
        """Draws one environment, by its global id; `options` are its own.

        Raises:
          ProtocolError, ClosedError: As `VectorEnv.render`. EngineError: pygame is missing.
        """
        renderer = self._renderer(spec)
        (now,) = self._pool.read_worlds([env_id], False)
        start = None
        if renderer.asks_for_start:
            (start,) = self._pool.read_worlds([env_id], True)
        return renderer.draw(
            WorldView(
                now=now,
                start=start,
                options=options,
                agents=[agent for group in spec.groups for agent in group.agents],
                max_episode_steps=spec.max_episode_steps,
            )
        )

    def frames_per_s(self, spec: EnvSpec) -> int:
        """The frame rate of an id's episodes."""
        return self._renderer(spec).frames_per_s

    def _renderer(self, spec: EnvSpec) -> WorldRenderer:
        if spec.id not in self._renderers:
            drawer = family_of(spec.header).drawer
            self._renderers[spec.id] = (
                ParticleRenderer(spec.id)
                if drawer == "particles"
                else TagRenderer(spec.id, self._options.width, self._options.height)
            )
        return self._renderers[spec.id]
