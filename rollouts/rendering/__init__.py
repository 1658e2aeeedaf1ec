# SPDX-License-Identifier: Apache-2.0
"""Frames of environments, for `VectorEnv.render` and `rollouts record`."""

from __future__ import annotations

from rollouts.rendering.frames import FrameSource
from rollouts.rendering.options import RenderOptions, split_options

__all__ = ["FrameSource", "RenderOptions", "split_options"]
