# SPDX-License-Identifier: Apache-2.0
"""The block of memory that a host and its processes share, and the place of each array in it."""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rollouts.envs.hosted.leaves import Leaf

Array = npt.NDArray[Any]

_ALIGNMENT_BYTES = 64  # alignment of each array: a cache line


@dataclass(frozen=True, slots=True)
class Field:
    """One shared array."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """The place of each array in the block; equal on both sides.

    Attributes:
      fields: By name. Rows (N, ...) in env order: reward float64, terminated, truncated,
        was_reset (the row began an episode instead of stepping) bool, `obs/i`, `final_obs/i` and
        `action/i` for leaf i; and what `timing` measures.
      nbytes: Bytes of the whole block.
    """

    fields: Mapping[str, Field]
    nbytes: int

    @classmethod
    def of(cls, shapes: Iterable[tuple[str, tuple[int, ...], npt.DTypeLike]]) -> BlockLayout:
        """Lays arrays out one after the other."""
        fields, offset = {}, 0
        for name, shape, dtype in shapes:
            field = Field(name, shape, np.dtype(dtype), offset)
            fields[name] = field
            lines = -(-field.nbytes // _ALIGNMENT_BYTES)
            offset += max(1, lines) * _ALIGNMENT_BYTES
        return cls(fields, offset)


def batch_shapes(
    num_envs: int, obs: tuple[Leaf, ...], action: tuple[Leaf, ...], *, keeps_final: bool
) -> list[tuple[str, tuple[int, ...], npt.DTypeLike]]:
    """Name, shape and dtype of every array that a step reads or writes."""
    shapes: list[tuple[str, tuple[int, ...], npt.DTypeLike]] = [
        ("reward", (num_envs,), np.float64),
        ("terminated", (num_envs,), np.bool_),
        ("truncated", (num_envs,), np.bool_),
        ("was_reset", (num_envs,), np.bool_),
    ]
    groups = [("obs", obs), ("action", action), *([("final_obs", obs)] if keeps_final else [])]
    for group, leaves in groups:
        for index, leaf in enumerate(leaves):
            if leaf.dtype is not None:
                shapes.append((f"{group}/{index}", (num_envs, *leaf.shape), leaf.dtype))
    return shapes


class SharedMemory:
    """A block of memory without a name: no process can leave it behind.

    The memory lives as long as a process has it open or mapped. A process that is killed frees its
    share like any other.
    """

    def __init__(self, layout: BlockLayout, fd: int | None = None) -> None:
        """Makes a block, or maps the one behind `fd`; owns the descriptor."""
        self.fd = _nameless_file(layout.nbytes) if fd is None else fd
        self._map = mmap.mmap(self.fd, layout.nbytes)
        self.arrays: dict[str, Array] = {
            field.name: np.ndarray(field.shape, field.dtype, self._map, field.offset)
            for field in layout.fields.values()
        }

    def close(self) -> None:
        """Closes the descriptor; the memory is freed with the last array in it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _nameless_file(nbytes: int) -> int:
    """Opens a file of zeros in memory that has no name in any directory."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("rollouts-env-fns", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, nbytes)
    return fd
