# SPDX-License-Identifier: Apache-2.0
"""Saved states of environments with bytes that no environment wrote, and the right checksum."""

from __future__ import annotations

import struct

HEADER = struct.Struct("<8sIIQQQ")  # magic, version, type, fingerprint, state, checksum


def rotated(value: int, by: int) -> int:
    """64 bits, to the left."""
    value %= 2**64
    return (value << by | value >> 64 - by) % 2**64


def sealed(state: bytes) -> bytes:
    """The state with the checksum of what it holds now: native/.../support/checksum.h."""
    checked = state[: HEADER.size - 8] + state[HEADER.size :]
    prime, lanes = 0x9E3779B185EBCA87, [1, 2, 3, 4]
    # blocks of 32 bytes; zeros fill the last one, which may have nothing else
    padded = checked + bytes(32 - len(checked) % 32)
    for at, (word,) in enumerate(struct.iter_unpack("<Q", padded)):
        lanes[at % 4] = rotated((lanes[at % 4] ^ word) * prime, 29)
    value = len(checked)
    for lane in lanes:
        value = rotated((value ^ lane) * prime, 31)
    return state[: HEADER.size - 8] + value.to_bytes(8, "little") + state[HEADER.size :]
