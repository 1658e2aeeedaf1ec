# SPDX-License-Identifier: Apache-2.0
"""Atari games of the ale-py package: their ids, their ROMs, and the engine's library.

ale_py is imported only when an Atari environment is used: the list of games is read from the
package's files.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rollouts import _native
from rollouts.errors import EngineError, SpecError
from rollouts.families import native_games
from rollouts.families.family import Family
from rollouts.support.user_warnings import warn_user

_ENTRY = "ALE/*"  # the id of all games together in native/envs.cmake
PREFIX = "ALE/"

# ale-py has no stable ABI: these are the versions that the native side was tested with
_FIRST_VERSION = (0, 12)
_NEXT_VERSION = (0, 13)
_INSTALL = 'pip install "ale-py>=0.12,<0.13"'

# ROMs in ale-py for several players only, which make its C++ engine end the process
_MULTI_PLAYER_ONLY = frozenset({"combat", "joust", "maze_craze", "warlords"})


def ale_game_ids() -> list[str]:
    """Ids of all single-player games, such as "ALE/Pong-v5"; empty without ale-py."""
    return [_env_id(rom) for rom in sorted(_rom_hashes())]


def same_game(name: str, known: Iterable[str]) -> list[str]:
    """The id of a game by another name: of older Gym and Gymnasium, or the game's name alone.

    Examples are PongNoFrameskip-v4, Pong-ram-v0 and pong.
    """
    game = re.sub(
        r"(Deterministic|NoFrameskip)?(-ram(Deterministic|NoFrameskip)?)?-v\d+$", "", name
    ).removeprefix(PREFIX)
    wanted = f"{PREFIX}{game.replace('_', '')}-v5".lower()
    return [one for one in known if one.lower() == wanted]


def rom_path(id: str) -> Path:
    """Finds and checks the ROM behind an id, and loads the engine into this process.

    Args:
      id: Such as "ALE/Pong-v5".

    Returns:
      The ROM file, in ALE_ROMS_DIR if that is set, else in the ale-py package.

    Raises:
      SpecError: There is no such game.
      EngineError: ale-py is missing or of an unsupported version, or the ROM is missing or
        is not the one that ale-py expects.
    """
    load_engine()
    hashes = _rom_hashes()
    roms = {_env_id(rom): rom for rom in hashes}
    if id not in roms:
        close = same_game(id, roms) or difflib.get_close_matches(id, roms, n=3)
        hint = f" Did you mean {' or '.join(close)}?" if close else ""
        raise SpecError(
            f"unknown Atari game {id!r}.{hint} `rollouts.env_ids()` lists all {len(roms)}."
        )
    rom = roms[id]
    path = Path(os.environ.get("ALE_ROMS_DIR") or _package_dir() / "roms") / f"{rom}.bin"
    if not path.is_file():
        raise EngineError(
            f"no ROM of {id}: expected {path}. Put it there, unset ALE_ROMS_DIR to use "
            f"the ROMs of ale-py, or reinstall those: {_INSTALL} --force-reinstall"
        )
    found = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
    if found != hashes[rom]:
        raise EngineError(
            f"{path} is not the ROM that ale-py knows as {rom}: expected MD5 {hashes[rom]}, "
            f"got {found}. Reinstall the ROMs: {_INSTALL} --force-reinstall"
        )
    return path


def game_engine(id: str) -> str:
    """The engine that `engine="auto"` stands for in a game: "native" or "ale"."""
    return "ale" if id in native_games.DIFFERENT else "native"


def _warn_of_differences(id: str, columns: Mapping[str, Any]) -> None:
    """Warns if the native engine is used for a game in which it is known to differ from ALE."""
    given = columns.get("engine", "auto")
    difference = native_games.DIFFERENT.get(id)
    if difference and "native" in (given if isinstance(given, list) else [given]):
        warn_user(
            f"{id} with engine='native' is not equal to ALE: {difference}. engine='auto' or "
            "'ale' has ALE itself",
            UserWarning,
        )


@functools.cache
def load_engine() -> None:
    """Imports ale_py and hands its native module to ours; once per process.

    Raises:
      EngineError: ale-py is missing, of an unsupported version, or lacks symbols.
    """
    version = _installed_version()
    if version is None:
        raise EngineError(f"Atari games need the ale-py package, which is missing: {_INSTALL}")
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if not _FIRST_VERSION <= numbers < _NEXT_VERSION:
        raise EngineError(
            f"ale-py {version} is installed, rollouts was tested with >=0.12,<0.13: {_INSTALL}"
        )
    try:
        # a plain import provides the Python symbols that the module needs
        module = importlib.import_module("ale_py._ale_py")
    except ImportError as error:
        raise EngineError(f"ale-py {version} cannot be imported: {error}") from error
    _native.load_ale(str(module.__file__), version)


def _env_id(rom: str) -> str:
    """The Gymnasium id of a ROM: ms_pacman is ALE/MsPacman-v5."""
    return f"{PREFIX}{rom.title().replace('_', '')}-v5"


def _installed_version() -> str | None:
    try:
        return importlib.metadata.version("ale-py")
    except importlib.metadata.PackageNotFoundError:
        return None


def _package_dir() -> Path:
    # finding a top-level package does not import it
    spec = importlib.util.find_spec("ale_py")
    if spec is None or spec.origin is None:
        raise EngineError(f"Atari games need the ale-py package, which is missing: {_INSTALL}")
    return Path(spec.origin).parent


@functools.cache
def _rom_hashes() -> dict[str, str]:
    """MD5 by ROM name of all single-player games; empty without ale-py."""
    if _installed_version() is None:
        return {}
    table = json.loads((_package_dir() / "roms" / "md5.json").read_text(encoding="utf-8"))
    hashes = {str(file).removesuffix(".bin"): str(md5) for file, md5 in table.items()}
    return {rom: md5 for rom, md5 in hashes.items() if rom not in _MULTI_PLAYER_ONLY}


FAMILY = Family(
    headers="envs/atari/",
    drawer="engine",
    ids=lambda _: ale_game_ids(),
    prefix=PREFIX,
    entry=_ENTRY,
    load=lambda env_id, _: {"rom_path": str(rom_path(env_id)), "game_engine": game_engine(env_id)},
    internal=frozenset({"rom_path", "game_engine"}),
    warn=_warn_of_differences,
)
