# SPDX-License-Identifier: Apache-2.0
"""Our own Atari 2600 in lock-step with ale-py: the same ROM and actions from the same state."""

from __future__ import annotations

import ctypes
import functools
import struct
from pathlib import Path
from typing import Any

import ale_py
import numpy as np
from made_once import BUILD, make
from numpy.typing import NDArray

from rollouts.own_env.compiler import find_compiler

HERE = Path(__file__).parent
INCLUDE = Path(__file__).parents[2] / "native" / "include"
CACHE = BUILD / "atari2600"
SOURCES = ("console.cpp", "ale_snapshot.cpp")
# -O2 would take twice as long, and games no longer than they do
FLAGS = ("-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC")

PADDLES = {"backgammon", "blackjack", "breakout", "casino", "kaboom", "pong"}
SECOND_PORT = {"surround", "wizard_of_wor"}  # games whose player is at the other joystick
NO_BLANKS = {"asteroids", "battle_zone", "darkchambers", "ms_pacman"}
# resistance of a paddle: least, most, and what a frame of turning changes
LEAST, MOST, TURN = 27450, 790196, 23000
# ALE's 18 actions as (up, right, left, down)
MOVES = [
    *((0, 0, 0, 0), (0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)),
    *((1, 1, 0, 0), (1, 0, 1, 0), (0, 1, 0, 1), (0, 0, 1, 1)),
]


@functools.cache
def compile_library(*names: str) -> ctypes.CDLL:
    """A library of these sources, compiled once for all tests and processes."""
    command = [*find_compiler().command, *FLAGS, f"-I{INCLUDE}", f"-I{HERE}"]
    objects = [
        make(CACHE / f"{name}.o", [*command, "-MMD", "-c", str(HERE / name)], [HERE / name])
        for name in names
    ]
    linked = [*command, "-shared", *map(str, objects)]
    return ctypes.CDLL(str(make(CACHE / f"{names[0]}.so", linked, objects)))


def build() -> ctypes.CDLL:
    """Compiles the console into a library."""
    found = compile_library(*SOURCES)
    found.machine_new.restype = ctypes.c_void_p
    found.machine_new.argtypes = [ctypes.c_char_p, ctypes.c_int]
    found.machine_delete.argtypes = [ctypes.c_void_p]
    found.machine_load.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]
    found.machine_board.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
    found.machine_step.argtypes = [ctypes.c_void_p, *[ctypes.c_int] * 3, ctypes.c_void_p]
    found.machine_show.argtypes = [*[ctypes.c_void_p] * 3, ctypes.c_int]
    found.run_program.argtypes = [ctypes.c_char_p, *[ctypes.c_int] * 3, ctypes.c_void_p]
    return found


def run_program(library: ctypes.CDLL, program: bytes, count: int, *, one_by_one: bool) -> list[int]:
    """Runs some instructions of a program, and returns what the CPU holds then; see console.cpp."""
    after = np.zeros(8, np.int32)
    library.run_program(program, len(program), count, one_by_one, after.ctypes.data)
    return after.tolist()


class Lockstep:
    """Both emulators of one game."""

    def __init__(self, library: ctypes.CDLL, rom: str) -> None:
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self.rom, self.library = rom, library
        path = Path(str(ale_py.roms.get_rom_path(rom)))
        self.ale: Any = ale_py.ALEInterface()
        self.ale.setInt("random_seed", 0)
        self.ale.setFloat("repeat_action_probability", 0.0)
        self.ale.loadROM(str(path))
        self.ale.reset_game()
        self.shape = self.ale.getScreen().shape
        data = path.read_bytes()
        self.machine = library.machine_new(data, len(data))
        self.resistance = 0
        self.load()

    def close(self) -> None:
        self.library.machine_delete(self.machine)

    def load(self) -> None:
        """Makes ours take over the state of ALE's."""
        state = bytes(self.ale.cloneState().serialize())
        assert self.library.machine_load(self.machine, state, len(state)) == 0
        is_pal, blanks = self.shape[0] == 250, self.rom not in NO_BLANKS
        self.library.machine_board(self.machine, int(is_pal), int(blanks))
        (self.resistance, self._other) = struct.unpack_from("<2i", state)

    def step(self, action: int) -> None:
        """A frame of both."""
        self.ale.act(ale_py.Action(action))
        up, right, left, down = MOVES[action if action < 10 else action - 8]
        fires = action == 1 or action >= 10
        port, fire, paddles = 0xFF, [0x80, 0x80], [-1] * 4
        if self.rom in PADDLES:
            turned = self.resistance + TURN * (left - right)
            self.resistance = max(LEAST, min(MOST, turned))
            paddles[:2] = [int(1.6 * r * 1e-8 * 1.19e6) for r in (self.resistance, self._other)]
            port &= ~0x80 if fires else 0xFF
        else:
            player = int(self.rom in SECOND_PORT)
            pushed = up | down << 1 | left << 2 | right << 3
            port &= ~(pushed << (0 if player else 4))
            fire[player] = 0 if fires else 0x80
        cycles = (ctypes.c_int * 4)(*paddles)
        self.library.machine_step(self.machine, port, *fire, ctypes.addressof(cycles))

    def shown(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Our RAM (128,) and screen (height, 160) of palette indices."""
        ram, screen = np.empty(128, np.uint8), np.empty(self.shape, np.uint8)
        self.library.machine_show(self.machine, ram.ctypes.data, screen.ctypes.data, screen.size)
        return ram, screen
