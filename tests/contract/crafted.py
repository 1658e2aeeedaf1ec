# SPDX-License-Identifier: Apache-2.0
"""States and replay files that somebody crafted: wrong numbers under a right checksum."""

from __future__ import annotations

import struct

import numpy as np

HEADER = struct.Struct("<8sIIQQQ")  # magic, version, type, fingerprint, state, checksum
MASK = 2**64 - 1
PRIME = 0x9E3779B185EBCA87

# what sizes, indices and counts are most often wrong by
WHOLE = [0, 1, 2, 3, 7, 255, 2**31 - 1, 2**31, 2**32 - 1, 2**32 - 1024, 2**62, 2**63 - 1, MASK]
REAL = [float("nan"), float("inf"), -1e300, 1e30, -0.0]


def rotated(value: int, by: int) -> int:
    """64 bits, to the left."""
    value &= MASK
    return (value << by | value >> 64 - by) & MASK


def checksum(checked: bytes) -> int:
    """The checksum of native/include/rollouts/support/checksum.h."""
    # blocks of 32 bytes; zeros fill the last one, which may have nothing else
    padded = checked + bytes(32 - len(checked) % 32)
    words = np.frombuffer(padded, "<u8").reshape(-1, 4)
    total = len(checked)
    for lane in range(4):
        value = lane + 1
        for word in words[:, lane].tolist():
            value = ((value ^ word) * PRIME) & MASK
            value = (value << 29 | value >> 35) & MASK
        total = rotated((total ^ value) * PRIME, 31)
    return total


def sealed(state: bytes) -> bytes:
    """An environment's state with the size and the checksum of what it holds now."""
    magic, version, name, fingerprint, _, _ = HEADER.unpack_from(state)
    size = len(state) - HEADER.size - name
    head = HEADER.pack(magic, version, name, fingerprint, size, 0)[:-8]
    body = state[HEADER.size :]
    return head + checksum(head + body).to_bytes(8, "little") + body


def sealed_replay(state: bytes) -> bytes:
    """A replay store's state with the size and the checksum of what it holds now."""
    size = (len(state) - 32).to_bytes(8, "little")
    checked = state[:16] + size + state[24:-8]
    return checked + checksum(checked).to_bytes(8, "little")


def mutated(body: bytes, generator: np.random.Generator) -> bytes:
    """One to four numbers changed; now and then a few bytes more or fewer."""
    changed = bytearray(body)
    for _ in range(int(generator.integers(1, 5))):
        # the numbers that say most come first
        near = generator.random() < 0.6
        place = int(generator.integers(min(len(changed), 600) if near else len(changed)))
        kind = generator.random()
        if kind < 0.15:
            changed[place] ^= 1 << int(generator.integers(8))
        elif kind < 0.2 and len(changed) > 20:
            del changed[place : place + int(generator.integers(1, 16))]
        elif kind < 0.25:
            changed[place:place] = generator.bytes(int(generator.integers(1, 16)))
        else:
            size = int(generator.choice([1, 4, 8]))
            # numbers lie where they are aligned, most often
            place -= place % size if generator.random() < 0.7 else 0
            word = WHOLE[int(generator.integers(len(WHOLE)))]
            if generator.random() < 0.3:
                word = int(generator.integers(2**63))
            if generator.random() < 0.1:
                real = REAL[int(generator.integers(len(REAL)))]
                word = int(np.float64(real).view(np.uint64))
            number = (word & (256**size - 1)).to_bytes(size, "little")
            changed[place : place + size] = number[: len(changed) - place]
    return bytes(changed)
