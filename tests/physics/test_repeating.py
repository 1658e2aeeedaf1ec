# SPDX-License-Identifier: Apache-2.0
"""Loops within a graph, and the memory of their bodies."""

from __future__ import annotations

import pytest
import torch

wp = pytest.importorskip("warp")
pytest.importorskip("mujoco_warp")

from rollouts.envs.physics.graphs import Sequence  # noqa: E402
from rollouts.envs.physics.kernels.start_loops import end_one_step  # noqa: E402
from rollouts.envs.physics.repeating import Loop, Scratch  # noqa: E402


def test_a_pass_finds_the_memory_of_the_one_before() -> None:
    with wp.ScopedDevice("cpu"):
        scratch = Scratch()
        found = []
        for sizes in ((64, 16, 64), (64, 8, 64)):
            scratch.run(lambda sizes=sizes: found.append([scratch.allocate(one) for one in sizes]))
        first, second = found
        assert first == second and len({*first}) == 3
        with pytest.raises(RuntimeError, match="asks for 65 bytes, the one before had 64"):
            scratch.run(lambda: scratch.allocate(65))


def test_a_loop_goes_on_until_its_number_is_0() -> None:
    with wp.ScopedDevice("cpu"):
        passes = wp.zeros(1, dtype=int)

        def body() -> None:
            wp.launch(end_one_step, 1, [loop.goes_on])
            wp.launch(count, 1, [passes])

        loop = Loop(body)
        loop.run()
        graph = Sequence(loop.run, torch.device("cpu"))
        for asked in (0, 3, 1):
            passes.zero_()
            loop.goes_on.fill_(asked)
            graph.replay()
            assert (int(passes.numpy()[0]), int(loop.goes_on.numpy()[0])) == (asked, 0)


@wp.kernel
def count(passes: wp.array[int]):
    passes[0] = passes[0] + 1
