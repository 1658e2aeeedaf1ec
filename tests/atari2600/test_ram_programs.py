# SPDX-License-Identifier: Apache-2.0
"""Small programs in a console's RAM, in our Atari 2600 and in ale-py: what few games do."""

from __future__ import annotations

import ctypes
import struct

import ale_py
import numpy as np
import pytest
from own_atari import Lockstep, build

RAM = 0x80  # where a program begins
VSYNC, VBLANK, WSYNC, NUSIZ0, COLUP0, COLUBK = 0x00, 0x01, 0x02, 0x04, 0x06, 0x09
RESM0, ENAM0, HMM0, RESMP0, HMOVE, HMCLR = 0x12, 0x1D, 0x22, 0x28, 0x2A, 0x2B
INPT0 = 0x08
COUNT, KEPT = 0xF0, 0xF1  # in RAM, behind the programs


def join(*parts: list[int]) -> list[int]:
    return [byte for part in parts for byte in part]


def lda(value: int) -> list[int]:
    return [0xA9, value]


def sta(address: int) -> list[int]:
    return [0x85, address]


def inc(address: int) -> list[int]:
    return [0xE6, address]


def lines(count: int) -> list[int]:
    """Waits for the ends of lines; uses X."""
    return [0xA2, count, *sta(WSYNC), 0xCA, 0xD0, 0xFB]


def instructions(count: int) -> list[int]:
    """Some 512 times as many, which touch no chip; uses X and Y."""
    return [0xA0, count, 0xA2, 0, 0xCA, 0xD0, 0xFD, 0x88, 0xD0, 0xF8]


END_FRAME = [*lda(2), *sta(VSYNC), *lines(4), *lda(0), *sta(VSYNC)]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return build(tmp_path_factory.mktemp("atari2600_programs"))


def put_program(state: bytes, program: list[int]) -> bytes:
    """A state of ale-py's with a program in RAM, at which the CPU goes on."""
    patched = bytearray(state)
    cpu = state.index(b"M6502Low") + len(b"M6502Low")
    struct.pack_into("<i", patched, cpu + 5 * 4, RAM)
    ram = state.index(b"M6532") + len(b"M6532") + 4
    struct.pack_into("<128i", patched, ram, *program, *[0] * (128 - len(program)))
    return bytes(patched)


def compare(
    library: ctypes.CDLL, program: list[int], rom: str = "journey_escape", height: int = 150
) -> Lockstep:
    """Runs a program over and over, for ten frames; compares RAM and rows of the screen."""
    game = Lockstep(library, rom)
    state = put_program(bytes(game.ale.cloneState().serialize()), [*program, 0x4C, RAM, 0])
    game.ale.restoreState(ale_py.ALEState(state))
    game.load()
    for frame in range(10):
        game.step(0)
        ram, screen = game.shown()
        np.testing.assert_array_equal(ram, game.ale.getRAM(), err_msg=f"frame {frame}")
        # a state has no screens: a frame or two are not what was drawn
        if frame > 3:
            expected = game.ale.getScreen()[:height]
            np.testing.assert_array_equal(screen[:height], expected, err_msg=f"frame {frame}")
    return game


SETTINGS = {
    "none": [],
    "size": [*lda(0x20), *sta(NUSIZ0)],
    "same size": [*lda(0), *sta(NUSIZ0)],
    "struck": sta(RESM0),
    "to player": [*lda(2), *sta(RESMP0), *lda(0), *sta(RESMP0)],
    "moved": sta(HMOVE),
    "unmoved": sta(HMCLR),
    "blank": [*lda(2), *sta(VBLANK), *lines(3), *lda(0), *sta(VBLANK)],
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("line", [1, 2, 3, 4])
def test_late_motion_makes_stars(library: ctypes.CDLL, setting: str, line: int) -> None:
    program = join(
        *(lda(0x72), sta(COLUP0), sta(ENAM0), sta(HMM0), lda(0), sta(VBLANK), sta(NUSIZ0)),
        *(lines(50), sta(HMOVE), [0xEA] * 8, lda(0x60), sta(HMM0), lines(line)),
        *(SETTINGS[setting], lines(160 - line), sta(HMOVE), END_FRAME),
    )
    game = compare(library, program)
    # there is something to be seen, which is not the same in all lines
    drawn = game.shown()[1][:150] == 0x72
    assert len(np.unique(drawn.argmax(axis=1))) > (2 if setting == "moved" else 20)
    game.close()


@pytest.mark.parametrize("again", [2, 0xFF, 0])
def test_a_frame_ends_a_line_after_vsync_was_last_switched_on(
    library: ctypes.CDLL, again: int
) -> None:
    program = join(
        *(inc(COUNT), lines(200), lda(2), sta(VSYNC), lines(2), lda(again), sta(VSYNC)),
        *(lda(0), sta(VSYNC), lines(2), inc(KEPT), END_FRAME),
    )
    # where frames are short, nothing draws all rows
    compare(library, program, height=0).close()


@pytest.mark.parametrize("before", [1, 60])
def test_an_unfinished_frame_shows_what_its_last_write_drew(
    library: ctypes.CDLL, before: int
) -> None:
    colour = [*inc(COUNT), 0xA5, COUNT, 0x0A, *sta(COLUBK)]
    program = join(
        *(lda(0), sta(VBLANK), colour, lines(before), colour),
        *(instructions(60), lines(200), END_FRAME),
    )
    compare(library, program).close()


def test_a_paddle_that_was_full_in_a_frame_before_reads_as_empty(library: ctypes.CDLL) -> None:
    # it is emptied in one frame of four
    empty = join(lda(0x80), sta(VBLANK), lda(0), sta(VBLANK))
    one_of_four = [*inc(COUNT), 0xA5, COUNT, 0x29, 3, 0xD0, len(empty), *empty]
    program = join(one_of_four, lines(220), [0xA5, INPT0], sta(KEPT), END_FRAME)
    compare(library, program, "backgammon").close()


# addresses with the chip's registers, ROM, hot spots, and what lies around them
SEEN = [0x1000, 0x103F, 0x1040, 0x107F, 0x1080, 0x1FBF, 0x1FC0, 0x1FF0]


@pytest.mark.parametrize("opcode", [0xAD, 0x8D, 0xEE])  # LDA, STA, INC
@pytest.mark.parametrize("address", SEEN)
def test_accesses_move_pitfalls_random_number_on(
    library: ctypes.CDLL, opcode: int, address: int
) -> None:
    program = [opcode, address & 0xFF, address >> 8, 0xAD, 0, 0x10, *sta(KEPT)]
    compare(library, [*program, *lines(250), *END_FRAME], "pitfall2").close()
