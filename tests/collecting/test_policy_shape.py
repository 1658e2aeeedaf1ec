# SPDX-License-Identifier: Apache-2.0
"""Blocks of policies' kernels."""

from __future__ import annotations

import pytest

from rollouts import SpecError
from rollouts.collecting.policy_shape import dense_shape, policy_shape

MOST = 227 * 1024  # an H100's


@pytest.mark.parametrize("scratch_rows", (1, 40, 137, 138, 200, 225, 226, 300, 2000, 100_000))
@pytest.mark.parametrize("num_rows", (1, 31, 128, 129, 210_000, 10**7))
def test_what_a_network_keeps_fits_where_it_lies(scratch_rows: int, num_rows: int) -> None:
    shape = policy_shape(scratch_rows, num_rows, MOST)
    assert shape.scratch_rows >= scratch_rows and shape.num_blocks >= 1
    bytes_of_block = 4 * shape.scratch_rows * shape.num_threads
    if shape.shared_bytes:
        assert shape.shared_bytes == bytes_of_block <= MOST and shape.num_scratch == 0
        assert (MOST + 1024) // (bytes_of_block + 1024) >= 2
        # the two halves of a warp read other banks
        assert shape.scratch_rows % 2 == 1
    else:
        assert 4 * shape.num_scratch == bytes_of_block * shape.num_blocks
        assert 4 * shape.num_scratch <= max(2**28, bytes_of_block)
    # no block without rows, unless all blocks that there may be are taken
    assert (shape.num_blocks - 1) * shape.num_threads < num_rows


def test_networks_that_leave_room_for_few_threads_lie_in_global_memory() -> None:
    assert policy_shape(137, 1000, MOST).shared_bytes == 4 * 137 * 128
    assert policy_shape(220, 1000, MOST).shared_bytes == 4 * 221 * 128
    assert policy_shape(300, 1000, MOST).shared_bytes == 0
    # a card whose multiprocessors share 99 KiB
    assert policy_shape(137, 1000, 99 * 1024).shared_bytes == 0
    assert policy_shape(90, 1000, 99 * 1024).shared_bytes == 4 * 91 * 128


@pytest.mark.parametrize("most", (99 * 1024, MOST))
@pytest.mark.parametrize("warp_bytes", (1024, 8192 + 64 * 43, 64 * 900))
@pytest.mark.parametrize("num_rows", (1, 17, 2048, 100_000, 210_000, 10**7))
def test_warps_of_tensor_cores_fit_a_block(num_rows: int, warp_bytes: int, most: int) -> None:
    shape = dense_shape(warp_bytes, num_rows, most)
    warps = shape.num_threads // 32
    # the most that `__launch_bounds__` of dense_kernel.h allows
    assert shape.num_threads == 32 * warps <= 384 and shape.num_scratch == 0
    assert shape.shared_bytes == 32 * 1024 + warps * warp_bytes <= most
    assert (shape.num_blocks - 1) * warps * 16 < num_rows


def test_many_rows_share_the_weights_that_a_block_loads() -> None:
    # Tag of 5 and 100 agents with two layers of 256: one block for each multiprocessor
    shape = dense_shape(8192 + 64 * 43, 200_000, MOST)
    assert (shape.num_threads, shape.shared_bytes) == (384, 164_096)
    # few rows lie in small blocks, which more multiprocessors have
    assert dense_shape(8192, 4096, MOST).num_threads == 128
    with pytest.raises(SpecError, match=r"needs 264192 bytes .* has 232448: leave policy_dtype"):
        dense_shape(226 * 1024, 1000, MOST)
