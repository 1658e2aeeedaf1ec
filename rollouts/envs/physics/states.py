# SPDX-License-Identifier: Apache-2.0
"""`States`: saves environments of mujoco_warp as bytes, and loads them."""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rollouts.errors import SpecError

_MAGIC = b"rollouts physics 1\0\0"
_KEY_BYTES = 16
_CHECK_BYTES = 4


class States:
    """The tensors that, with actions, determine all that environments do next.

    A saved state has a header, the kind of the environments, a row of each tensor, and a checksum.
    """

    def __init__(self, columns: Mapping[str, Tensor], kind: str) -> None:
        """Takes tensors (N, ...), which it uses in place; `kind` names the environments."""
        self._columns = {name: one for name, one in columns.items() if one.numel()}
        shapes = [(name, str(one.dtype), *one.shape[1:]) for name, one in self._columns.items()]
        key = hashlib.sha256(repr((kind, shapes)).encode()).digest()[:_KEY_BYTES]
        self._head = _MAGIC + key
        self._sizes = [one[0].numel() * one.itemsize for one in self._columns.values()]

    def save(self, rows: Sequence[int]) -> list[bytes]:
        """Returns one state for each row. Waits for the device."""
        if not rows:
            return []
        found = [
            np.ascontiguousarray(one[self._index(rows, one)].cpu().numpy())
            for one in self._columns.values()
        ]
        flat = np.concatenate([one.reshape(len(rows), -1).view(np.uint8) for one in found], axis=1)
        bodies = [self._head + row.tobytes() for row in flat]
        return [body + _checksum(body) for body in bodies]

    def load(self, rows: Sequence[int], states: Sequence[bytes]) -> None:
        """Puts states into rows.

        Raises:
          SpecError: A state belongs to other environments, or is damaged. Nothing has changed then.
        """
        if not rows:
            return
        for state in states:
            self._check(state)
        flat = np.stack(
            [np.frombuffer(state, np.uint8, sum(self._sizes), len(self._head)) for state in states]
        )
        first = 0
        for column, size in zip(self._columns.values(), self._sizes, strict=True):
            part = np.ascontiguousarray(flat[:, first : first + size])
            first += size
            column[self._index(rows, column)] = _as_tensor(part, column).to(column.device)

    @staticmethod
    def _index(rows: Sequence[int], column: Tensor) -> Tensor:
        return torch.tensor(rows, dtype=torch.int64, device=column.device)

    def _check(self, state: bytes) -> None:
        if not state.startswith(_MAGIC):
            raise SpecError(
                "a state is none of physics on a device: a pool of threads has others, of 64 bits"
            )
        if not state.startswith(self._head):
            raise SpecError(
                "a state is of another environment, model or options than these environments"
            )
        expected = len(self._head) + sum(self._sizes) + _CHECK_BYTES
        if len(state) != expected:
            raise SpecError(f"a state has {len(state)} bytes, expected {expected}: it is damaged")
        if _checksum(state[:-_CHECK_BYTES]) != state[-_CHECK_BYTES:]:
            raise SpecError("a state is damaged: its checksum is another")


def _checksum(body: bytes) -> bytes:
    return zlib.crc32(body).to_bytes(_CHECK_BYTES, "little")


def _as_tensor(part: npt.NDArray[np.uint8], column: Tensor) -> Tensor:
    dtype = torch.empty(0, dtype=column.dtype).numpy().dtype
    shape = (len(part), *column.shape[1:])
    assert part.shape[1] == math.prod(shape[1:]) * dtype.itemsize
    return torch.from_numpy(part.view(dtype).reshape(shape).copy())
