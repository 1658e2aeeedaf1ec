# SPDX-License-Identifier: Apache-2.0
"""Loops within a graph: draws of starts until no bodies touch, and steps until they rest."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import mujoco_warp
import warp as wp
from mujoco_warp import OverflowType

from rollouts.envs.kernel.emulation import run_or_record
from rollouts.envs.physics.kernels import start_loops
from rollouts.envs.physics.kernels.world_episodes import OVERFLOW
from rollouts.envs.physics.worlds import Worlds

_FULL = int(OVERFLOW) + (int(OverflowType.NARROWPHASE) << 8)


class Scratch:
    """Memory for the arrays that a loop's body makes, the same in every pass.

    CUDA allocates no memory within a conditional node, so on a GPU Warp takes memory from this
    object.
    """

    def __init__(self) -> None:
        self._device = wp.get_device()
        self._blocks: list[Any] = []
        self._next = 0

    def allocate(self, size: int) -> int:
        """An address of `size` bytes, the same as in the pass before."""
        at = self._next
        self._next += 1
        if at < len(self._blocks):
            block = self._blocks[at]
            if block.size < size:
                raise RuntimeError(f"a pass asks for {size} bytes, the one before had {block.size}")
            return int(block.ptr)
        if self._device.is_capturing:
            raise RuntimeError("a pass in a graph makes more arrays than the one before it")
        with self._taking(None):
            block = wp.empty(size, dtype=wp.uint8, device=self._device)
        self._blocks.append(block)
        return int(block.ptr)

    def deallocate(self, address: int, size: int) -> None:
        """Does nothing: the next pass uses the memory again."""

    def run(self, body: Callable[[], None]) -> None:
        """Runs one pass."""
        self._next = 0
        with self._taking(self):
            body()

    def _taking(self, allocator: Any) -> AbstractContextManager[Any]:
        """Makes Warp take memory from `allocator`; on the host, Warp uses its own."""
        if not self._device.is_cuda:
            return nullcontext()
        taking: AbstractContextManager[Any] = wp.ScopedAllocator(self._device, allocator)
        return taking


class Loop:
    """Runs a body while a number on the device is not 0; part of a graph that is captured.

    Attributes:
      goes_on: (1,) int32, which the body sets.
    """

    def __init__(self, body: Callable[[], None]) -> None:
        """Takes the body. The first launch makes one more pass, outside of any graph."""
        self.goes_on = wp.zeros(1, dtype=int)
        self._body, self._scratch = body, Scratch()
        self._has_run = False

    def run(self) -> None:
        """Launches the loop."""
        # kernels compile and memory is allocated before a graph is captured, even if no world
        # begins
        if not self._has_run:
            self._has_run = True
            self._scratch.run(self._body)
        if self.goes_on.device.is_cuda:
            wp.capture_while(self.goes_on, self._pass)
        else:
            # Warp's graphs of the host cannot hold our own kernels, so the loop lies between them
            run_or_record(self._run_on_host)

    def _run_on_host(self) -> None:
        with wp.ScopedDevice(self.goes_on.device):
            wp.capture_while(self.goes_on, self._pass)

    def _pass(self) -> None:
        self._scratch.run(self._body)


class Tries:
    """Draws positions of worlds that begin an episode, and repeats this until no bodies touch."""

    def __init__(
        self,
        worlds: Worlds,
        clocks: Any,
        draw: Callable[[Any], None],
        place: Callable[[Any], None] | None = None,
    ) -> None:
        """Takes functions that act on the worlds that their argument (N,) bool marks.

        Args:
          draw: Draws positions.
          place: Computes the bodies' places after a draw, and may change some; None: nothing to do.
        """
        count = worlds.num_envs
        self._worlds, self._clocks, self._draw, self._place = worlds, clocks, draw, place
        self._pending = wp.zeros(count, dtype=wp.bool)
        self._touching = wp.zeros(count, dtype=wp.bool)
        self._tries = wp.zeros(count, dtype=int)
        self._loop = Loop(self._try)

    def launch(self, beginning: Any) -> None:
        """Draws positions of the marked worlds."""
        again = self._loop.goes_on
        again.zero_()
        outputs = [self._pending, self._tries, again]
        wp.launch(start_loops.begin_tries, self._worlds.num_envs, [beginning, *outputs])
        self._loop.run()

    def _try(self) -> None:
        data, again = self._worlds.data, self._loop.goes_on
        self._draw(self._pending)
        if self._place is not None:
            mujoco_warp.kinematics(self._worlds.model, data)
            self._place(self._pending)
        mujoco_warp.kinematics(self._worlds.model, data)
        mujoco_warp.collision(self._worlds.model, data)
        self._touching.zero_()
        again.zero_()
        found = [data.nacon, data.contact.worldid, self._touching]
        wp.launch(start_loops.find_touching, data.naconmax, found)
        counts = [data.nacon, data.ncollision, data.naconmax, _FULL]
        wp.launch(
            start_loops.end_try,
            self._worlds.num_envs,
            [self._clocks, *counts, self._touching, self._pending, self._tries, again],
        )


class Rest:
    """Steps worlds that begin, without controls; all worlds step, and the others are put back."""

    def __init__(self, worlds: Worlds, num_steps: int, draw: Callable[[Any], None]) -> None:
        """Takes `draw`, which draws positions of the worlds that its argument (N,) bool marks."""
        self._worlds, self._num_steps, self._draw = worlds, num_steps, draw
        self._pending = wp.zeros(worlds.num_envs, dtype=wp.bool)
        # arrays that a step changes and the next one depends on
        names = ("time", "qpos", "qvel", "act", "qacc_warmstart")
        now = [worlds.flat(name) for name in names if getattr(worlds.data, name).size]
        self._kept = [(one, wp.empty_like(one)) for one in now]
        self._overflow = wp.empty_like(worlds.data.overflow)
        self._loop = Loop(self._step)

    def launch(self, beginning: Any) -> None:
        """Draws positions of the marked worlds, which are at the model's start, and steps them."""
        data, left, count = self._worlds.data, self._loop.goes_on, self._worlds.num_envs
        for now, before in self._kept:
            wp.copy(before, now)
        wp.copy(self._overflow, data.overflow)
        left.zero_()
        wp.copy(self._pending, beginning)
        wp.launch(start_loops.begin_steps, count, [beginning, self._num_steps, left])
        self._loop.run()
        for now, before in self._kept:
            wp.launch(start_loops.put_back, now.shape, [beginning, before, now])
        wp.launch(
            start_loops.end_steps, count, [beginning, self._overflow, data.overflow, data.time]
        )

    def _step(self) -> None:
        model, data = self._worlds.model, self._worlds.data
        mujoco_warp.step1(model, data)
        # as in dm_control: positions are drawn after the kinematics of the model's start
        self._draw(self._pending)
        self._pending.zero_()
        mujoco_warp.step2(model, data)
        wp.launch(start_loops.end_one_step, 1, [self._loop.goes_on])
