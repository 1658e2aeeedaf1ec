# SPDX-License-Identifier: Apache-2.0
"""Blocks of policies' kernels."""

from __future__ import annotations

import pytest

from rollouts.collecting.policy_shape import policy_shape

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
