# SPDX-License-Identifier: Apache-2.0
"""Loops that only wait, which our CPU does at once, end as they do one instruction at a time."""

from __future__ import annotations

import ctypes
import itertools

import pytest
from own_atari import build, run_program

BPL, BNE = 0x10, 0xD0
LDX, DEX, LDY, DEY = 0xA2, 0xCA, 0xA0, 0x88


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    return build()


def assert_same(library: ctypes.CDLL, program: list[int], count: int) -> None:
    # one instruction at a time, there is no loop to be seen
    slowly = run_program(library, bytes(program), count, one_by_one=True)
    assert run_program(library, bytes(program), count, one_by_one=False) == slowly, (program, count)


@pytest.mark.parametrize("branch", [BPL, BNE])
@pytest.mark.parametrize(("load", "step"), [(LDX, DEX), (LDY, DEY)])
def test_loops_that_count(library: ctypes.CDLL, branch: int, load: int, step: int) -> None:
    # after some instructions the loop goes on
    for first, count in itertools.product(range(256), (9, 20, 21, 700)):
        assert_same(library, [load, first, step, branch, 0xFD, 0x4C, 0x05, 0x10], count)
        # LDA and JMP to the branch, which sees flags that are not the counter's
        for flags in (0x00, 0x01, 0x80):
            loop = [step, branch, 0xFD, 0x4C, 0x0A, 0x10]
            assert_same(library, [load, first, 0xA9, flags, 0x4C, 0x08, 0x10, *loop], count)


@pytest.mark.parametrize("branch", [BPL, BNE])
@pytest.mark.parametrize("load", [0xAC, 0xAD, 0xAE])
def test_loops_that_read_the_timer(library: ctypes.CDLL, branch: int, load: int) -> None:
    # TIM1T, TIM8T, TIM64T
    for register, first, count in itertools.product(
        (0x94, 0x95, 0x96), (0, 1, 2, 3, 7, 43, 127, 128, 129, 255), (6, 50, 51, 6000)
    ):
        start = [0xA9, first, 0x8D, register, 0x02]
        loop = [load, 0x84, 0x02, branch, 0xFB, 0x4C, 0x0A, 0x10]
        assert_same(library, [*start, *loop], count)
