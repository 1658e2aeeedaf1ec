# SPDX-License-Identifier: Apache-2.0
"""Keys that hold an item's place: shard, the shard's incarnation, and its key there."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rollouts.errors import SpecError

Array = NDArray[Any]

# a shard's own key has the slot in its low 32 bits; the 31 bits above count the slot's uses
_USES_BITS, _SLOT_BITS = 31, 32
_LEAST_LIFE_BITS = 4


class KeyParts(NamedTuple):
    """The parts of keys; arrays (B,) int64. `life` is the incarnation's low bits."""

    shard_id: Array
    life: Array
    key: Array


class KeyLayout:
    """Layout of a key's bits: life, shard, uses, slot, from the highest, in 63 bits."""

    def __init__(self, max_size: int, num_shards: int) -> None:
        """Leaves to `life` the bits that slots, uses and shards do not need.

        Args:
          max_size: Items of a shard.
          num_shards: Number of shards.

        Raises:
          SpecError: The bits are too few for so many items and shards.
        """
        self._slot_bits = max_size.bit_length()
        self._shard_bits = (num_shards - 1).bit_length()
        self._place_bits = _USES_BITS + self._slot_bits
        life_bits = 63 - self._place_bits - self._shard_bits
        if life_bits < _LEAST_LIFE_BITS:
            raise SpecError(
                f"{num_shards} shards of {max_size} items need more than the 63 bits of a key: "
                "lower max_size or num_shards"
            )
        self._num_lives = 1 << life_bits

    def life(self, incarnation: int) -> int:
        """Returns the part of an incarnation that keys hold."""
        return incarnation % self._num_lives

    def join(self, key: Array, shard_id: int, incarnation: int) -> Array:
        """Returns keys (B,) for a shard's own keys (B,)."""
        uses, slot = key >> _SLOT_BITS, key & ((1 << _SLOT_BITS) - 1)
        place = self.life(incarnation) << self._shard_bits | shard_id
        result: Array = (place << self._place_bits) | (uses << self._slot_bits) | slot
        return result

    def split(self, keys: Array) -> KeyParts:
        """Returns the parts of keys (B,)."""
        place = keys >> self._place_bits
        uses = keys >> self._slot_bits & ((1 << _USES_BITS) - 1)
        slot = keys & ((1 << self._slot_bits) - 1)
        return KeyParts(
            place & ((1 << self._shard_bits) - 1),
            place >> self._shard_bits,
            (uses << _SLOT_BITS | slot).astype(np.int64, copy=False),
        )
