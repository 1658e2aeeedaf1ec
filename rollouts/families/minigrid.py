# SPDX-License-Identifier: Apache-2.0
"""Missions of MiniGrid and BabyAI, whose words are numbers in observations."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rollouts.errors import DTypeError, SpecError
from rollouts.families.family import Family
from rollouts.support.include_dir import include_dir

FAMILIES = (
    Family(headers="envs/minigrid/", drawer="grids"),
    Family(headers="envs/babyai/", drawer="grids"),
)


@functools.cache
def mission_words() -> tuple[str, ...]:
    """Words by number; 0 means no word and is "". Numbers up to 51 are minigrid's own."""
    header = Path(include_dir(), "rollouts", "envs", "minigrid", "words.h")
    return ("", *re.findall(r'X\(\w+, "([^"]+)"\)', header.read_text(encoding="utf-8")))


def decode_mission(mission: npt.ArrayLike) -> str:
    """Turns a mission of MiniGrid or BabyAI into minigrid's sentence.

    Args:
      mission: (W,) whole numbers, one for each word, then zeros: `obs["mission"][i]` with
        `make_vec(flatten_observation=False)`, or the last W numbers of a flat observation.

    Returns:
      The sentence, such as "get to the green goal square".

    Raises:
      SpecError: Not one row, or a number that is no word. DTypeError: Not whole numbers.
    """
    numbers = np.asarray(mission)
    if numbers.ndim != 1:
        raise SpecError(f"mission must be one row of words, got the shape {numbers.shape}")
    if not np.issubdtype(numbers.dtype, np.integer):
        raise DTypeError(f"mission must be whole numbers, got {numbers.dtype}")
    words = mission_words()
    wrong = numbers[(numbers < 0) | (numbers >= len(words))]
    if len(wrong):
        raise SpecError(f"mission holds {wrong[0]}, words have the numbers 0 to {len(words) - 1}")
    return " ".join(words[number] for number in numbers if number).replace(" ,", ",")
