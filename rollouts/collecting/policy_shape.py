# SPDX-License-Identifier: Apache-2.0
"""Blocks of a policy's kernel, and where the numbers between its layers lie."""

from __future__ import annotations

from dataclasses import dataclass

from rollouts.errors import SpecError

_NUM_THREADS = 128  # a block has, as `__launch_bounds__` of policy_kernel.h says
_MAX_BLOCKS = 2048
_MAX_SCRATCH_BYTES = 2**28
# Each of a multiprocessor's four schedulers has two warps then, one while the other waits.
_ENOUGH_BLOCKS = 2
_RESERVED_BYTES = 1024  # the driver takes from each block's shared memory

# blocks whose warps compute 16 rows each, as dense_forward.h and dense_kernel.h have them
_MOST_WARPS, _FEWEST_WARPS = 12, 4
_SLOT_BYTES = 2 * 16 * 1024
_SPREAD_OVER = 128  # blocks, so that most multiprocessors have one


@dataclass(frozen=True, slots=True)
class PolicyShape:
    """Blocks of a policy's launch.

    Attributes:
      num_blocks, num_threads: Blocks, and threads of each.
      scratch_rows: Numbers that a thread keeps, where each computes one row after the other.
      shared_bytes: Bytes that the threads of a block share; 0: numbers lie in global memory.
      num_scratch: Floats of global memory for them; 0: they are shared.
    """

    num_blocks: int
    num_threads: int
    scratch_rows: int
    shared_bytes: int
    num_scratch: int


def policy_shape(scratch_rows: int, num_rows: int, most_shared_bytes: int) -> PolicyShape:
    """Chooses the blocks for a network that keeps `scratch_rows` numbers, for `num_rows` rows.

    The numbers lie in shared memory where enough blocks of a multiprocessor fit so: layer after
    layer then reads and writes no global memory but the weights.

    Args:
      scratch_rows: Numbers that a thread keeps while it computes a row.
      num_rows: Rows of all environments.
      most_shared_bytes: Bytes that a block may share, nearly all that a multiprocessor has.
    """
    # a warp has two groups of 16 threads: an odd number of rows gives each its half of the banks
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
    """Chooses the blocks for a network on tensor cores, of which a warp computes 16 rows.

    All warps of a block read weights that it loads once, so many rows want large blocks.

    Args:
      warp_bytes: Bytes of shared memory that a warp needs.
      num_rows: Rows of all environments.
      most_shared_bytes: Bytes that a block may share.

    Raises:
      SpecError: They are not enough for one warp.
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
