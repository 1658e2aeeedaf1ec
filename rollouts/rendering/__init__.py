# SPDX-License-Identifier: Apache-2.0
"""Frames of environments, for `VectorEnv.render` and `rollouts record`."""

from __future__ import annotations

from rollouts.rendering.frame_options import RenderOptions, split_options
from rollouts.rendering.frames import FrameSource

__all__ = ["FrameSource", "RenderOptions", "split_options"]
