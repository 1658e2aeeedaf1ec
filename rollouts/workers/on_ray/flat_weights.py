# SPDX-License-Identifier: Apache-2.0
"""Packs weights into one buffer of bytes, which is sent as a single tensor, and unpacks them.

Imports torch only when a function needs it, and never Ray.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rollouts.workers.weight_transport import Array, Narrowed, Stored

if TYPE_CHECKING:
    from torch import Tensor

# alignment in bytes that fits every dtype
_ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class Place:
    """The place of an array in the buffer.

    Attributes:
      name      The array's name among the weights.
      offset    Bytes from the buffer's start.
      shape, dtype  Those of the stored array, dtype as np.dtype.str.
      original  The dtype before the array was narrowed; None if it was not.
    """

    name: str
    offset: int
    shape: tuple[int, ...]
    dtype: str
    original: str | None

    @property
    def end(self) -> int:
        """The offset of the first byte after the array."""
        return self.offset + math.prod(self.shape) * np.dtype(self.dtype).itemsize


Layout = tuple[Place, ...]


def lay_out(stored: Mapping[str, Stored], names: Iterable[str]) -> Layout:
    """Gives each of the named arrays its place."""
    places: list[Place] = []
    end = 0
    for name in names:
        value = stored[name]
        bits, original = (value.bits, value.dtype) if isinstance(value, Narrowed) else (value, None)
        offset = -(-end // _ALIGNMENT) * _ALIGNMENT
        places.append(Place(name, offset, bits.shape, bits.dtype.str, original))
        end = places[-1].end
    return tuple(places)


def pack(layout: Layout, values: Mapping[str, Array | Tensor], device: Any) -> Tensor:
    """Copies values, as `narrowed` returns them, into a new buffer.

    Returns:
      (bytes,) uint8 on `device`.
    """
    import torch

    from rollouts.policy import as_tensor

    size = layout[-1].end if layout else 0
    buffer = torch.empty(size, dtype=torch.uint8, device=device)
    for place in layout:
        value = values[place.name]
        if isinstance(value, np.ndarray):
            # bytes, because torch does not have every dtype
            flat = as_tensor(np.asarray(value, order="C").reshape(-1).view(np.uint8))
        else:
            flat = value.detach().contiguous().reshape(-1).view(torch.uint8)
        buffer[place.offset : place.end].copy_(flat)
    return buffer


def unpack(layout: Layout, buffer: Tensor) -> dict[str, Array | Tensor]:
    """Returns the weights: arrays in the memory of `buffer`, or tensors if it is on a GPU.

    Narrowed arrays are copied into their original dtype.
    """
    return {place.name: _of_bytes(place, buffer) for place in layout}


def _of_bytes(place: Place, buffer: Tensor) -> Array | Tensor:
    part = buffer[place.offset : place.end]
    if buffer.device.type == "cpu":
        bits = part.numpy().view(place.dtype).reshape(place.shape)
        return bits if place.original is None else Narrowed(bits, place.original).restore()
    return _on_device(place, part)


def _on_device(place: Place, part: Tensor) -> Tensor:
    """Returns a part of the buffer as a tensor; NumPy does the same on the host."""
    import torch

    # the layout has uint16 for the bits of a bfloat16
    is_bfloat16 = place.original is not None and np.dtype(place.dtype) == np.uint16
    bits = part.view(torch.bfloat16 if is_bfloat16 else _torch_dtype(place.dtype))
    bits = bits.reshape(place.shape)
    return bits if place.original is None else bits.to(_torch_dtype(place.original))


def _torch_dtype(dtype: str) -> Any:
    import torch

    return torch.from_numpy(np.empty(0, dtype)).dtype
