# SPDX-License-Identifier: Apache-2.0
"""Small programs in a console's RAM, in our Atari 2600 and in ale-py: what few games do."""

from __future__ import annotations

import ctypes
import itertools
import struct
from collections.abc import Iterable
from typing import Any

import ale_py
import numpy as np
import pytest
from own_atari import Lockstep, build

pytestmark = pytest.mark.system

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
    """Code of about 512 times `count` instructions that touch no chip; uses X and Y."""
    return [0xA0, count, 0xA2, 0, 0xCA, 0xD0, 0xFD, 0x88, 0xD0, 0xF8]


END_FRAME = [*lda(2), *sta(VSYNC), *lines(4), *lda(0), *sta(VSYNC)]


def sampled(every: int, *lists: Iterable[Any]) -> list[Any]:
    """All combinations, of which `make test` has one of `every`, and `make test-all` the others.

    Those of the first list are all among them where the last one has `every` or more.
    """
    return [
        pytest.param(*one, marks=() if at % every == 0 else pytest.mark.slow)
        for at, one in enumerate(itertools.product(*lists))
    ]


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    return build()


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


@pytest.mark.parametrize(("setting", "line"), sampled(3, SETTINGS, [1, 2, 3, 4]))
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


# LDA, STA, INC
@pytest.mark.parametrize(("address", "opcode"), sampled(2, SEEN, [0xAD, 0x8D, 0xEE]))
def test_accesses_move_pitfalls_random_number_on(
    library: ctypes.CDLL, address: int, opcode: int
) -> None:
    program = [opcode, address & 0xFF, address >> 8, 0xAD, 0, 0x10, *sta(KEPT)]
    compare(library, [*program, *lines(250), *END_FRAME], "pitfall2").close()


SHA_POINTER, SHA, SHS, SHY, SHX = 0x93, 0x9F, 0x9B, 0x9C, 0x9E
ARR, ANE, LXA, LAX_ZERO_PAGE, ISB = 0x6B, 0x8B, 0xAB, 0xA7, 0xEF
TABLE = 0xD0  # a table of data, in RAM
KEEP = [*sta(COUNT), 0x86, COUNT + 1, 0x84, COUNT + 2, 0x08, 0x68, *sta(COUNT + 3)]
TIMER = [*lda(0xFF), 0x8D, 0x94, 0x02]  # falls with every cycle
UNDOCUMENTED = {
    "SHA pointer": [SHA_POINTER, TABLE + 2],
    "SHA": [SHA, TABLE - 0x40, 0x07],
    "SHA next page": [SHA, 0xF1, 0x04],
    "SHS": [SHS, TABLE - 0x40, 0x05],
    "SHY": [SHY, TABLE - 0x40, 0x07],
    "SHX": [SHX, TABLE - 0x40, 0x07],
    "ARR": [ARR, 0xB7],
    "ANE": [ANE, 0xF5],
    "LXA": [LXA, 0x63],
    "LAX": [LAX_ZERO_PAGE, TABLE],
    "ISB of the switches' direction": [ISB, 0x83, 0x02],
    "pull of a chip's register": [0xA2, 0x35, 0x9A, 0x68, *sta(KEPT + 4)],
}


@pytest.mark.parametrize(
    ("decimal", "case"), [(0xD8, case) for case in UNDOCUMENTED] + sampled(3, [0xF8], UNDOCUMENTED)
)
def test_undocumented_instructions_leave_what_ale_py_s_do(
    library: ctypes.CDLL, case: str, decimal: int
) -> None:
    start = [0xA2, 0xE8, 0x9A, *TIMER, *lda(0x5F), 0xA2, 0x4B, 0xA0, 0x41, decimal]
    after = [*KEEP, 0xD8, 0xAD, 0x84, 0x02, *sta(COUNT + 5), *lines(230), *END_FRAME]
    compare(library, [*start, *UNDOCUMENTED[case], *after]).close()


@pytest.mark.parametrize(
    ("entry", "how"),
    sampled(
        3,
        [0x2E05, 0x0E8D, 0x8503, 0x0284, 0x2A21, 0x0297],
        ["jump", "call", "return", "break"],
    ),
)
def test_code_among_the_chips_registers_is_made_of_the_bus(
    library: ctypes.CDLL, how: str, entry: int
) -> None:
    low, high = entry & 0xFF, entry >> 8
    push = [*lda(high), 0x48, *lda(low), 0x48]
    leave = {
        "jump": [0x4C, low, high],
        "call": [0x20, low, high],
        "return": [*push, 0x60],
        "break": [*push, 0x08, 0x40],
    }[how]
    program = [0xA2, 0xE8, 0x9A, *TIMER, 0xA2, 0x4B, 0xA0, 0x41, *leave]
    # where the code goes on depends on the game's vectors; there are no lines to be compared
    compare(library, program, height=0).close()


def test_a_push_behind_another_one_does_not_wait_for_the_line(library: ctypes.CDLL) -> None:
    # BRK writes to registers 3, 2 and 1: WSYNC is the second one
    program = [0xA2, 0x03, 0x9A, *TIMER, 0x00]
    compare(library, program, height=0).close()


@pytest.mark.parametrize(
    ("objects", "ctrlpf"), sampled(3, [0x00, 0x1B, 0x1C, 0x1D, 0x1E, 0x1F], [2, 4, 6, 7])
)
def test_a_playfield_alone_has_the_players_colours(
    library: ctypes.CDLL, ctrlpf: int, objects: int
) -> None:
    off = join(*(sta(each) for each in (VBLANK, 0x1B, 0x1C, 0x1D, 0x1E, 0x1F, 0x25, 0x26, 0x27)))
    colours = join(*(join(lda(0x42 + 0x22 * i), sta(COLUP0 + i)) for i in range(4)))
    shown = join(lda(0x5A), sta(0x0D), sta(0x0E), sta(0x0F), sta(objects) if objects else [])
    program = join(lda(0), off, colours, lda(ctrlpf), sta(0x0A), shown, lines(200), END_FRAME)
    compare(library, program).close()


@pytest.mark.parametrize("delay", [*sampled(3, range(2, 9)), 9, 10, *sampled(3, range(11, 14))])
def test_hmove_in_a_lines_last_cycle_blanks_the_next_one(library: ctypes.CDLL, delay: int) -> None:
    # 3 cycles where it is odd, then 2 each
    odd = delay % 2
    wait = [0xA5, 0xFF] * odd + [0xEA] * ((delay - 3 * odd) // 2)
    clear = join(
        lda(0), *(sta(each) for each in (VBLANK, 0x0D, 0x0E, 0x0F, 0x1B, 0x1C, 0x1D, 0x1E))
    )
    program = join(lda(0x72), sta(COLUBK), clear, lines(60), [0xEA] * 29, wait, sta(HMOVE))
    game = compare(library, [*program, *lines(140), *END_FRAME])
    is_black = (game.shown()[1][:150, :8] == 0).all(axis=1)
    # the write is in cycle 65 + delay
    assert is_black.sum() == (delay >= 10), np.flatnonzero(is_black)
    game.close()


def stopping(how: list[int]) -> list[int]:
    """Draws a bright background; in the seventh frame a dark one, until the CPU stops."""
    stop = join(lda(0x86), sta(COLUBK), how)
    draw = join(lda(0x4E), sta(COLUBK), lines(240), END_FRAME)
    frames = [*inc(COUNT), 0xA5, COUNT, 0xC9, 6, 0xD0, len(stop)]
    return join(lda(0), sta(VBLANK), frames, stop, draw)


@pytest.mark.parametrize("line", [5, 60, 220])
def test_a_stopped_cpu_leaves_the_rest_of_an_older_frame_grey(
    library: ctypes.CDLL, line: int
) -> None:
    game = compare(library, stopping([*lines(line), 0x02]))
    assert (0x4E & 15) >> 1 in game.shown()[1]
    game.close()


@pytest.mark.parametrize("access", [[0xA5, 0x02], sta(0x0F), sta(0x1B), sta(WSYNC)])
def test_a_blank_is_as_long_as_the_first_access_behind_hmove_leaves(
    library: ctypes.CDLL, access: list[int]
) -> None:
    # the CPU stops in a line whose HMOVE has struck
    compare(library, stopping([*lines(60), *sta(HMOVE), 0xEA, 0xEA, *access, 0x02])).close()


@pytest.mark.parametrize("opcode", [0x02, 0x22])
@pytest.mark.parametrize("waits", [15, 20, 30])
def test_a_cpu_that_stops_among_the_chips_registers_reads_no_more(
    library: ctypes.CDLL, waits: int, opcode: int
) -> None:
    # a collision register, whose lower bits are the byte on the bus: the address's higher one
    jump = [0x4C, 0x35, opcode]
    game = compare(library, stopping([*lines(60), *[0xEA] * waits, *jump]))
    # every access draws: of the line in which it stopped, the left part is of this frame
    grey_of_this, grey_of_older = (0x86 & 15) >> 1, (0x4E & 15) >> 1
    assert any({grey_of_this, grey_of_older} <= {*row} for row in game.shown()[1].tolist())
    game.close()
