# SPDX-License-Identifier: Apache-2.0
"""EnvPool's numbers of MiniGrid's missions, from their words."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from rollouts.integrations.envpool.arrays import library
from rollouts.integrations.envpool.envpool_options import AskedTask

import rollouts
from rollouts.batch import StepBatch
from rollouts.families.minigrid import mission_words

_MINIGRID, _BABYAI = "envs/minigrid/", "envs/babyai/"
_COLORS = ("red", "green", "blue", "purple", "yellow", "grey")
_TYPES = ("key", "ball", "box")
# the beginnings of Fetch's missions, before colour and type
_FETCH = ("get a", "go get a", "fetch a", "go fetch a", "you must fetch a")


def tells_missions(task: AskedTask) -> bool:
    """True for a task on a grid whose observations have the mission's words."""
    # observations of minigrid's FlatObsWrapper have letters in their rows
    is_grid = bool(task.header.startswith((_MINIGRID, _BABYAI)))
    return is_grid and task.env_options.get("observation") != "flat"


def mission_id(task: AskedTask, batch: StepBatch) -> Any:
    """(B,) int32: 0 where a level has one mission or EnvPool numbers none; -1 for BabyAI."""
    lib = library(batch.obs)
    zeros = lib.zeros(len(batch.obs), np.int32)
    if task.header.startswith(_BABYAI):
        return zeros - 1
    name = task.id.removeprefix("MiniGrid-")
    if not name.startswith(("Fetch", "GoTo", "PutNear", "UnlockPickup")):
        return zeros
    count = _num_words(task.id)
    words = batch.obs[:, batch.obs.shape[1] - count :].astype(np.int32)
    length = (words > 0).sum(1)

    def word(place: int) -> Any:
        """Returns the words (B,) at a place of each row; places below 0 count from the end."""
        index = length + place if place < 0 else length * 0 + place
        return lib.take_along_axis(words, lib.clip(index, 0, count - 1)[:, None], 1)[:, 0]

    color, kind = _index(word(-2), _COLORS), _index(word(-1), _TYPES)
    if name.startswith("Fetch"):
        return (_template(words) * 12 + color * 2 + kind).astype(np.int32)
    if name.startswith("GoToObject"):
        return (color * 3 + kind).astype(np.int32)
    if name.startswith("PutNear"):
        # "put the red key near the green ball"
        moved = _index(word(2), _COLORS) * 3 + _index(word(3), _TYPES)
        return (moved * 18 + color * 3 + kind).astype(np.int32)
    return color.astype(np.int32)


def _template(words: Any) -> Any:
    """Returns for each row (B, W) the index in _FETCH of the words with which it begins."""
    found = 0
    for number, text in enumerate(_FETCH):
        begin = [mission_words().index(one) for one in text.split()]
        found = found + number * (words[:, : len(begin)] == library(words).asarray(begin)).all(1)
    return found


def _index(words: Any, names: Sequence[str]) -> Any:
    """The place of each word (B,) among names."""
    table = np.zeros(len(mission_words()), np.int32)
    for place, name in enumerate(names):
        table[mission_words().index(name)] = place
    return library(words).asarray(table)[words]


@functools.cache
def _num_words(id: str) -> int:
    """Words at the end of a row: the part "mission" of an id's observations."""
    name, shape = rollouts.env_spec(id).observation_parts[-1]
    assert name == "mission"
    return int(shape[0])
