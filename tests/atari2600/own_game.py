# SPDX-License-Identifier: Apache-2.0
"""Our console with a game in it, beside ale-py: both are switched on, reset and played alike."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import ale_py
import numpy as np
from numpy.typing import NDArray
from own_atari import compile_library


def build_games() -> ctypes.CDLL:
    """Compiles the console into a library."""
    found = compile_library("game.cpp")
    pointer, number = ctypes.c_void_p, ctypes.c_int
    found.game_new.restype = found.game_clone.restype = pointer
    found.game_new.argtypes = [ctypes.c_char_p, number, ctypes.c_uint]
    found.game_clone.argtypes = found.game_delete.argtypes = [pointer]
    found.game_reset.argtypes = [pointer, number, number, ctypes.c_float]
    found.game_act.argtypes = [pointer, number, ctypes.c_float]
    found.game_ram.restype = found.game_screen.restype = pointer
    found.game_ram.argtypes = found.game_screen.argtypes = [pointer]
    return found


class Twins:
    """A game in ale-py's emulator and in ours, from being switched on."""

    def __init__(self, library: ctypes.CDLL, rom: str, seed: int = 0, sticky: float = 0.0) -> None:
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        path = Path(str(ale_py.roms.get_rom_path(rom)))
        self.rom, self.library, self.sticky = rom, library, sticky
        self.ale: Any = ale_py.ALEInterface()
        self.ale.setInt("random_seed", seed)
        self.ale.setFloat("repeat_action_probability", sticky)
        self.ale.loadROM(str(path))
        self.shape = self.ale.getScreen().shape
        data = path.read_bytes()
        self.player = library.game_new(data, len(data), seed)
        assert self.player, rom
        # loadROM has reset the game
        self.mode, self.difficulty = self.ale.getAvailableModes()[0], 0
        library.game_reset(self.player, self.mode, self.difficulty, self.sticky)

    def close(self) -> None:
        self.library.game_delete(self.player)

    def reset(self, mode: int | None = None, difficulty: int | None = None) -> None:
        """Resets both; a mode or difficulty that is not given stays."""
        if mode is not None:
            self.mode = mode
            self.ale.setMode(mode)
        if difficulty is not None:
            self.difficulty = difficulty
            self.ale.setDifficulty(difficulty)
        self.ale.reset_game()
        self.library.game_reset(self.player, self.mode, self.difficulty, self.sticky)

    def act(self, action: int) -> None:
        """A frame of both; none of a game that is over, in which ale-py's stands still."""
        if self.ale.game_over():
            return
        self.ale.act(ale_py.Action(action))
        self.library.game_act(self.player, action, self.sticky)

    def shown(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Our RAM (128,) and screen (height, 160) of palette indices."""
        ram = ctypes.string_at(self.library.game_ram(self.player), 128)
        size = self.shape[0] * self.shape[1]
        screen = ctypes.string_at(self.library.game_screen(self.player), size)
        return np.frombuffer(ram, np.uint8), np.frombuffer(screen, np.uint8).reshape(self.shape)

    def difference(self) -> str:
        """Names a difference between the two, an empty text for none."""
        ram, screen = self.shown()
        expected = self.ale.getRAM()
        wrong = np.flatnonzero(ram != expected)
        if len(wrong):
            at = int(wrong[0])
            return f"RAM {at + 128:#x} is {ram[at]:#x}, not {expected[at]:#x}; {len(wrong)} differ"
        wrong_pixels = np.argwhere(screen != self.ale.getScreen())
        if len(wrong_pixels):
            return f"{len(wrong_pixels)} pixels differ, the first at {wrong_pixels[0].tolist()}"
        return ""
