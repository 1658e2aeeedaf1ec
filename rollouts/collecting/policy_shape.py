# SPDX-License-Identifier: Apache-2.0
"""The blocks of a policy's kernel, and the memory for the numbers that its layers pass on."""

from __future__ import annotations

from dataclasses import dataclass

from rollouts.errors import SpecError

_NUM_THREADS = 128  # threads of a block, as in `__launch_bounds__` of policy_kernel.h
_MAX_BLOCKS = 2048
_MAX_SCRATCH_BYTES = 2**28
# blocks of a multiprocessor: each of its four schedulers then has two warps, and runs one while the
# other waits
_ENOUGH_BLOCKS = 2
_RESERVED_BYTES = 1024  # shared memory that the driver takes for each block

# blocks of dense_kernel.h: numbers of warps, which compute 16 rows each, and a slot for weights
_MOST_WARPS, _FEWEST_WARPS = 12, 4
_SLOT_BYTES = 2 * 16 * 1024
_SPREAD_OVER = 128  # blocks to have before a block gets more warps: one for most multiprocessors


@dataclass(frozen=True, slots=True)
class PolicyShape:
    """Blocks of a policy's launch.

    Attributes:
      num_blocks, num_threads: Blocks, and threads of each.
      scratch_rows: Numbers that a thread keeps while it computes a row; 0 on tensor cores.
      shared_bytes: Bytes of a block's shared memory; 0: the numbers lie in global memory.
      num_scratch: Floats of global memory for the numbers; 0: they lie in shared memory.
    """

    num_blocks: int
    num_threads: int
    scratch_rows: int
    shared_bytes: int
    num_scratch: int


def policy_shape(scratch_rows: int, num_rows: int, most_shared_bytes: int) -> PolicyShape:
    """Chooses the blocks for a network of which each thread computes one row after the other.

    The numbers lie in shared memory if a multiprocessor then has room for enough blocks: the only
    global memory that layers read is then that of the weights.

    Args:
      scratch_rows: Numbers that a thread keeps while it computes a row.
      num_rows: Rows of all environments.
      most_shared_bytes: Most shared memory of a block, which is nearly all of a multiprocessor.
    """
    # with an odd number of rows the two groups of 16 threads of a warp use different halves of the
    # memory's banks
    odd_rows = scratch_rows | 1
    shared_bytes = 4 * odd_rows * _NUM_THREADS
    at_once = (most_shared_bytes + _RESERVED_BYTES) // (shared_bytes + _RESERVED_BYTES)
    wanted = -(-num_rows // _NUM_THREADS)
    if at_once >= _ENOUGH_BLOCKS:
        return PolicyShape(min(_MAX_BLOCKS, wanted), _NUM_THREADS, odd_rows, shared_bytes, 0)
    of_block = 4 * scratch_rows * _NUM_THREADS
    blocks = min(_MAX_BLOCKS, wanted, max(1, _MAX_SCRATCH_BYTES // of_block))
    return PolicyShape(blocks, _NUM_THREADS, scratch_rows, 0, blocks * of_block // 4)


def dense_shape(warp_bytes: int, num_rows: int, most_shared_bytes: int) -> PolicyShape:
    """Chooses the blocks for a network on tensor cores, where a warp computes 16 rows.

    A block loads weights once for all its warps, so large blocks are better for many rows.

    Args:
      warp_bytes: Bytes of shared memory that a warp needs.
      num_rows: Rows of all environments.
      most_shared_bytes: Most shared memory of a block.

    Raises:
      SpecError: The shared memory is not enough for one warp.
    """
    fitting = (most_shared_bytes - _SLOT_BYTES) // warp_bytes
    if fitting < 1:
        raise SpecError(
            f"policy_dtype='bfloat16' needs {warp_bytes + _SLOT_BYTES} bytes of shared memory for "
            f"this module, and a block has {most_shared_bytes}: leave policy_dtype out"
        )
    wanted = -(-num_rows // 16)
    warps = min(_MOST_WARPS, fitting, max(_FEWEST_WARPS, -(-wanted // _SPREAD_OVER)))
    shared_bytes = _SLOT_BYTES + warps * warp_bytes
    return PolicyShape(min(_MAX_BLOCKS, -(-wanted // warps)), 32 * warps, 0, shared_bytes, 0)
