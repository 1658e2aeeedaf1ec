# SPDX-License-Identifier: Apache-2.0
"""The C++ pool's random streams (native/include/rollouts/core/rng.h) in Warp: Philox4x32-10."""

from __future__ import annotations

import warp as wp

Words = wp.types.vector(length=4, dtype=wp.uint32)

_FIRST_FACTOR = wp.constant(wp.uint64(0xD2511F53))
_SECOND_FACTOR = wp.constant(wp.uint64(0xCD9E8D57))
_FIRST_KEY_STEP = wp.constant(wp.uint32(0x9E3779B9))
_SECOND_KEY_STEP = wp.constant(wp.uint32(0xBB67AE85))
_TWO_PI = wp.constant(wp.float64(6.283185307179586))
_TWO_TO_26 = wp.constant(wp.float64(67108864.0))
_TWO_TO_MINUS_53 = wp.constant(wp.float64(1.0 / 9007199254740992.0))


@wp.func
def high_half(product: wp.uint64) -> wp.uint32:
    return wp.uint32(product >> wp.uint64(32))


@wp.func
def philox(block: wp.uint32, env_id: wp.uint32, episode: wp.uint32, seed: wp.uint64) -> Words:
    """One block of four random words."""
    c0 = wp.uint32(block)
    c1 = wp.uint32(env_id)
    c2 = wp.uint32(episode)
    c3 = wp.uint32(0)
    key0 = wp.uint32(seed)
    key1 = high_half(seed)
    for _ in range(10):
        p0 = _FIRST_FACTOR * wp.uint64(c0)
        p1 = _SECOND_FACTOR * wp.uint64(c2)
        next0 = high_half(p1) ^ c1 ^ key0
        next2 = high_half(p0) ^ c3 ^ key1
        c1 = wp.uint32(p1)
        c3 = wp.uint32(p0)
        c0 = next0
        c2 = next2
        key0 = key0 + _FIRST_KEY_STEP
        key1 = key1 + _SECOND_KEY_STEP
    return Words(c0, c1, c2, c3)


@wp.func
def uniform(seed: wp.uint64, env_id: int, episode: int, draw: int) -> wp.float64:
    """Number `draw` of a stream, uniform in [0, 1) with 53 random bits; a block has two numbers."""
    words = philox(wp.uint32(draw // 2 + 1), wp.uint32(env_id), wp.uint32(episode), seed)
    first = words[0]
    second = words[1]
    if draw % 2 == 1:
        first = words[2]
        second = words[3]
    high = wp.float64(first >> wp.uint32(5))
    low = wp.float64(second >> wp.uint32(6))
    return (high * _TWO_TO_26 + low) * _TWO_TO_MINUS_53


@wp.func
def uniform_in(
    seed: wp.uint64, env_id: int, episode: int, draw: int, low: wp.float64, high: wp.float64
) -> wp.float64:
    return low + (high - low) * uniform(seed, env_id, episode, draw)


@wp.func
def normal(seed: wp.uint64, env_id: int, episode: int, draw: int) -> wp.float64:
    """A normal number from the numbers `draw` and `draw + 1` of a stream (Box and Muller 1958)."""
    left = wp.float64(1.0) - uniform(seed, env_id, episode, draw)
    radius = wp.sqrt(wp.float64(-2.0) * wp.log(left))
    return radius * wp.cos(_TWO_PI * uniform(seed, env_id, episode, draw + 1))
