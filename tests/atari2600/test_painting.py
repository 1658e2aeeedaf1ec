# SPDX-License-Identifier: Apache-2.0
"""Lines of the TIA: all kinds of instructions paint what its manual says, and nothing else."""

from __future__ import annotations

from own_atari import compile_library

SEGMENTS = 20_000


def test_every_kind_of_instructions_paints_the_same() -> None:
    library = compile_library("painting.cpp")
    there = library.differing_painters(0, 1)
    for seed in range(SEGMENTS):
        differing = library.differing_painters(seed, 0)
        assert not differing, f"segment {seed}: kinds {differing:#x} of {there:#x} differ"
