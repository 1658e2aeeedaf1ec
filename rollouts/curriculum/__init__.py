# SPDX-License-Identifier: Apache-2.0
"""Schedulers that choose each environment's next level, and environments that begin the levels.

    levels = Curriculum(env, [{"gravity": g} for g in (5.0, 10.0, 20.0)], SuccessStages(3))
    obs = levels.begin()
    obs = levels.end(terminated | truncated, score)

A level is a dict of options or a saved state. Levels change only at the end of an episode.
"""

from __future__ import annotations

from rollouts.curriculum.archive import StateArchive
from rollouts.curriculum.level_envs import Curriculum, Scheduler, first_states
from rollouts.curriculum.level_replay import LevelReplay
from rollouts.curriculum.success_stages import SuccessStages

__all__ = [
    "Curriculum",
    "LevelReplay",
    "Scheduler",
    "StateArchive",
    "SuccessStages",
    "first_states",
]
