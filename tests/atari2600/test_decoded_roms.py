# SPDX-License-Identifier: Apache-2.0
"""A ROM's decoded and compiled instructions do what its plain ones do, whatever the ROM is."""

from __future__ import annotations

import ctypes
import platform
import sys

import numpy as np
import pytest
from own_atari import compile_library

pytestmark = pytest.mark.system

# cartridges by their number in CartridgeKind, with their bytes
KINDS = {"2k": (0, 2048), "4k": (0, 4096), "f8": (1, 8192), "f6": (2, 16384), "e0": (3, 8192)}
KINDS |= {"f8sc": (5, 8192), "f6sc": (6, 16384)}
STOPS = [0x02, 0x12, 0x22, 0x32, 0x42, 0x52, 0x62, 0x72, 0x92, 0xB2, 0xD2, 0xF2]
FRAMES = 3
# ROMs of each kind; make test-all goes on with ten times as many
FEW_ROMS = 20
ROMS = pytest.mark.parametrize("roms", [FEW_ROMS, pytest.param(200, marks=pytest.mark.slow)])
CASES = 2000
COMPILES = pytest.mark.parametrize("compiles", [False, True], ids=["decoded", "compiled"])


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    return compile_library("decoded.cpp")


def random_rom(rng: np.random.Generator, size: int) -> bytes:
    """Random bytes, with few that stop a CPU, and more that reach RAM, the TIA and the timer."""
    rom = rng.integers(256, size=size, dtype=np.uint8)
    rom[np.isin(rom, STOPS)] = 0xEA
    at = rng.integers(size - 3, size=size // 8)
    rom[at] = rng.choice([0x85, 0xA5, 0x95, 0xB5, 0xC6, 0xE6, 0x06, 0x66], size=at.size)
    rom[at + 1] = rng.integers(256, size=at.size)
    # loops that wait, and absolute addresses of the cartridge
    loops = [[0xCA, 0xD0, 0xFD], [0x88, 0x10, 0xFD], [0xA5, 0x84, 0x02]]
    for place in rng.integers(size - 8, size=size // 64):
        rom[place : place + 3] = loops[rng.integers(3)]
    for place in rng.integers(size - 8, size=size // 16):
        code = rng.choice([0xAD, 0xBD, 0xB9, 0x8D, 0x9D, 0x20, 0x4C, 0x6C, 0xDD])
        rom[place : place + 3] = [code, rng.integers(256), rng.choice([0, 2, 0x10, 0x1F, 0xFF])]
    return rom.tobytes()


def skip_where_none_are_compiled(compiles: bool) -> None:
    if compiles and (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip("ROMs are compiled on x86-64 Linux alone")


@pytest.mark.parametrize("kind", KINDS)
@COMPILES
@ROMS
def test_made_roms_run_as_plain_ones(
    library: ctypes.CDLL, kind: str, compiles: bool, roms: int
) -> None:
    skip_where_none_are_compiled(compiles)
    number, size = KINDS[kind]
    rng = np.random.default_rng(number + size)
    for seed in range(roms):
        # nothing behind it is read
        rom = random_rom(rng, size)
        frame = library.first_difference(number, rom, size, seed, FRAMES, compiles)
        assert frame != -2, "this machine does not let code be made"
        assert frame == -1, f"ROM {seed} of {kind}: frame {frame} differs"


@pytest.mark.parametrize("kind", KINDS)
@COMPILES
@ROMS
def test_few_instructions_at_the_ends_of_things_do_as_plain_ones(
    library: ctypes.CDLL, kind: str, compiles: bool, roms: int
) -> None:
    skip_where_none_are_compiled(compiles)
    number, size = KINDS[kind]
    rng = np.random.default_rng(number * size)
    for seed in range(roms // 4):
        rom = ctypes.create_string_buffer(random_rom(rng, size), size)
        case = library.first_wrong_case(number, rom, size, seed, CASES, compiles)
        assert case == -1, f"ROM {seed} of {kind}: case {case} differs"
