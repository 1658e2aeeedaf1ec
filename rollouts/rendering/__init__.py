# SPDX-License-Identifier: Apache-2.0
"""Frames of environments: what `VectorEnv.render` and `rollouts record` are made of."""

from __future__ import annotations

from rollouts.rendering.frames import FrameSource
from rollouts.rendering.options import RenderOptions, split_options

__all__ = ["FrameSource", "RenderOptions", "split_options"]
