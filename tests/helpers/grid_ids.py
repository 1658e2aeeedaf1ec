# SPDX-License-Identifier: Apache-2.0
"""Ids of MiniGrid and BabyAI that stand for all: they share types, whose options differ."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest

_PREFIXES = ("MiniGrid-", "BabyAI-")
# a door and a key, obstacles that draw in steps (a type of its own), rooms that take many draws,
# sentences of any kind
_SAMPLE = (
    "MiniGrid-DoorKey-5x5-v0",
    "MiniGrid-Dynamic-Obstacles-6x6-v0",
    "MiniGrid-MultiRoom-N6-v0",
    "BabyAI-BossLevel-v0",
)


def by_kind(env_ids: Iterable[str]) -> pytest.MarkDecorator:
    """Parametrises by these ids; `slow` are those whose names differ from a number on alone."""
    seen: set[str] = set()
    found = []
    for one in env_ids:
        # a size, a number of rooms or objects, and the version
        kind = re.split(r"-?(?:[SNR]?\d|v\d)", one)[0]
        found.append(pytest.param(one, marks=[pytest.mark.slow] * (kind in seen)))
        seen.add(kind)
    return pytest.mark.parametrize("env_id", found)


def without_equal_kinds(env_ids: Iterable[str]) -> list[str]:
    """All ids but those of grids that others stand for; tests/grids has every one."""
    return [one for one in env_ids if not one.startswith(_PREFIXES) or one in _SAMPLE]
