# SPDX-License-Identifier: Apache-2.0
"""Scenarios of the vizdoom package: their ids, their files, and the engine's library.

vizdoom is imported only when one of its environments is used.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.metadata
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

from rollouts import _native
from rollouts.errors import EngineError, SpecError
from rollouts.families.family import Family

OWN_CONFIG = "ViZDoom-v0"  # with the option cfg_file
_ENTRY = "Vizdoom*"  # the id of all scenarios together in native/envs.cmake
_PREFIX = "Vizdoom"

# vizdoom has no stable ABI: these are the versions that the native side was tested with
_FIRST_VERSION = (1, 3)
_NEXT_VERSION = (1, 4)
_INSTALL = 'pip install "vizdoom>=1.3,<1.4"'

# scenarios that vizdoom.gymnasium_wrapper registers, with the config file of each
_SCENARIOS = {
    "Basic": "basic",
    "BasicAudio": "basic_audio",
    "BasicNotifications": "basic_notifications",
    "DeadlyCorridor": "deadly_corridor",
    "DefendCenter": "defend_the_center",
    "DefendLine": "defend_the_line",
    "HealthGathering": "health_gathering",
    "MyWayHome": "my_way_home",
    "PredictPosition": "predict_position",
    "TakeCover": "take_cover",
    "Deathmatch": "deathmatch",
    "HealthGatheringSupreme": "health_gathering_supreme",
}
# whole games, with an id for each map and skill; those of Doom need its files, which are sold
_GAMES = {
    "Doom": ("doom", "E"),
    "Doom2": ("doom2", "MAP"),
    "Freedoom1": ("freedoom1", "E"),
    "Freedoom2": ("freedoom2", "MAP"),
}
_EPISODES = [f"E{episode}M{number}" for episode in range(1, 5) for number in range(1, 10)]
_LEVELS = [f"MAP{number:02}" for number in range(1, 33)]


@dataclass(frozen=True, slots=True)
class Scenario:
    """The scenario behind an id.

    Attributes:
      cfg: Name of the config file, without ".cfg".
      max_buttons_pressed: Buttons that an action may press at once: 1; 0 stands for all.
      doom_map: Name of the map; empty: the config file's map.
      doom_skill: 1 to 5; 0: the config file's skill.
    """

    cfg: str
    max_buttons_pressed: int
    doom_map: str = ""
    doom_skill: int = 0


@functools.cache
def scenarios() -> dict[str, Scenario]:
    """Every id that vizdoom registers with Gymnasium, in its order."""
    found = {}
    for name, cfg in _SCENARIOS.items():
        found[f"{_PREFIX}{name}-v1"] = Scenario(cfg, 1)
        found[f"{_PREFIX}{name}-MultiBinary-v1"] = Scenario(cfg, 0)
    for skill in range(1, 6):
        for game, (cfg, kind) in _GAMES.items():
            for level in _EPISODES if kind == "E" else _LEVELS:
                found[f"{_PREFIX}{game}{level}-S{skill}-v0"] = Scenario(cfg, 0, level, skill)
    return found


def listed_ids() -> list[str]:
    """Ids of the small scenarios; empty without vizdoom. `make_vec` takes the others, too."""
    if _installed_version() is None:
        return []
    return [env_id for env_id, scenario in scenarios().items() if not scenario.doom_map]


@functools.cache
def load_engine() -> Path:
    """Imports vizdoom and hands its native module to ours; once per process.

    Returns:
      The folder of the package.

    Raises:
      EngineError: vizdoom is missing, of an unsupported version, or lacks symbols.
    """
    version = _installed_version()
    if version is None:
        raise EngineError(f"ViZDoom's environments need the vizdoom package: {_INSTALL}")
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if not _FIRST_VERSION <= numbers < _NEXT_VERSION:
        raise EngineError(
            f"vizdoom {version} is installed, rollouts was tested with >=1.3,<1.4: {_INSTALL}"
        )
    guardian = Path(str(_native.__file__)).parent / "game_guardian"
    if not guardian.is_file():
        raise EngineError("ViZDoom's environments run on Linux alone: this build has no guardian")
    try:
        # a plain import provides the Python symbols that the module needs
        module = importlib.import_module("vizdoom.vizdoom")
    except ImportError as error:
        raise EngineError(f"vizdoom {version} cannot be imported: {error}") from error
    library = Path(str(module.__file__))
    _native.load_doom(str(library), version, str(library.parent / "vizdoom"), str(guardian))
    return library.parent


def _load(id: str, header: str) -> dict[str, str | int]:
    if id == OWN_CONFIG:
        load_engine()
        return {}
    known = scenarios()
    if id not in known:
        close = difflib.get_close_matches(id, known, n=3)
        hint = f" Did you mean {' or '.join(close)}?" if close else ""
        raise SpecError(f"unknown scenario of ViZDoom {id!r}.{hint}")
    scenario = known[id]
    return {
        "scenario": str(load_engine() / "scenarios" / f"{scenario.cfg}.cfg"),
        "scenario_map": scenario.doom_map,
        "scenario_skill": scenario.doom_skill,
        "scenario_buttons": scenario.max_buttons_pressed,
        "all_parts": False,
    }


def _installed_version() -> str | None:
    try:
        return importlib.metadata.version("vizdoom")
    except importlib.metadata.PackageNotFoundError:
        return None


def _ids(native_id: str) -> list[str]:
    return listed_ids() if native_id == _ENTRY else []


FAMILY = Family(
    headers="envs/vizdoom/",
    drawer="engine",
    ids=_ids,
    prefix=_PREFIX,
    entry=_ENTRY,
    load=_load,
    internal=frozenset(
        {"scenario", "scenario_map", "scenario_skill", "scenario_buttons", "all_parts"}
    ),
    parts_option="all_parts",
)
