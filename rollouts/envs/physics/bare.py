# SPDX-License-Identifier: Apache-2.0
"""`BarePhysics`: mujoco_warp alone, which benchmarks compare with a pool."""

from __future__ import annotations

import mujoco_warp
import torch
import warp as wp
from torch import Tensor

from rollouts.envs.physics.graphs import Sequence
from rollouts.envs.physics.library import quiet
from rollouts.envs.physics.worlds import Worlds


class BarePhysics:
    """Worlds of a pool's model without a task: no observation, reward, end or reset.

    Attributes:
      frame_skip: Substeps of a step.
      nconmax, njmax: The pool's memory for contacts of a world on average, and for rows of
        constraints of each world.
    """

    def __init__(self, worlds: Worlds, frame_skip: int, device: torch.device) -> None:
        """Makes its own data for the model of a pool's worlds, which must have stepped before."""
        self.frame_skip = frame_skip
        self.nconmax, self.njmax = worlds.data.naconmax // worlds.num_envs, worlds.data.njmax
        self._theirs = worlds.state()
        with quiet(), wp.ScopedDevice(wp.device_from_torch(device)):
            data = worlds.make_data()
            self._state = worlds.state(data)
            self._controls = wp.to_torch(data.ctrl)

            def move() -> None:
                for _ in range(frame_skip):
                    mujoco_warp.step(worlds.model, data)

            # a graph cannot be captured while kernels compile, so everything runs once before
            move()
            self._step = Sequence(move, device)
            wp.synchronize_device()

    def take_over(self) -> None:
        """Continues from the state of the pool's worlds."""
        for name, tensor in self._state.items():
            tensor.copy_(self._theirs[name])

    def step(self, controls: Tensor) -> None:
        """Moves all worlds by frame_skip substeps, on torch's current stream.

        Args:
          controls: (N, size) float32, as the pool's step takes them.
        """
        self._controls.copy_(controls)
        self._step.replay()
