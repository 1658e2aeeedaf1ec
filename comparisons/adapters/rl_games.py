# SPDX-License-Identifier: Apache-2.0
"""Contestants of `rollouts bench adapter rl_games`: vecenvs of rl_games, random actions."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

from rollouts.integrations.rl_games import RolloutsVecEnv

from comparisons.adapters.measuring import Case, Contestant
from comparisons.adapters.random_steps import RandomSteps


def _ours(case: Case) -> Contestant:
    envs = RolloutsVecEnv("rollouts", case.num_envs, env_name=case.id, num_threads=case.num_threads)
    envs.reset()
    return RandomSteps(case, envs.step, envs.close)


def _envpool(case: Case) -> Contestant:
    envs: Any = importlib.import_module("rl_games.envs.envpool").Envpool(
        "envpool", case.num_envs, env_name=case.id, num_threads=case.num_threads
    )
    envs.reset()
    dtype = envs.action_space.dtype
    return RandomSteps(
        case,
        lambda actions: envs.step(actions.astype(dtype)),
        envs.env.close,
        note="rl_games' own vecenv for EnvPool",
    )


CONTESTANTS: dict[str, Callable[[Case], Contestant]] = {"rollouts": _ours}
if importlib.util.find_spec("envpool") is not None:
    CONTESTANTS["rl-games-envpool"] = _envpool
