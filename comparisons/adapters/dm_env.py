# SPDX-License-Identifier: Apache-2.0
"""Contestants of `rollouts bench adapter dm_env`: batches of dm_env's TimeSteps, random actions."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

from rollouts.integrations.dm_env import BatchedEnvironment

from comparisons.adapters.measuring import Case, Contestant
from comparisons.adapters.random_steps import RandomSteps


def _ours(case: Case) -> Contestant:
    envs = BatchedEnvironment(case.id, case.num_envs, num_threads=case.num_threads, seed=case.seed)
    envs.reset()
    return RandomSteps(case, envs.step, envs.close)


def _envpool(case: Case) -> Contestant:
    envs: Any = importlib.import_module("envpool").make_dm(
        case.id, num_envs=case.num_envs, num_threads=case.num_threads, seed=case.seed
    )
    envs.reset()
    # dm_env's actions of DeepMind's tasks are doubles
    dtype = envs.action_spec().dtype
    return RandomSteps(case, lambda actions: envs.step(actions.astype(dtype)), envs.close)


CONTESTANTS: dict[str, Callable[[Case], Contestant]] = {"rollouts": _ours}
if importlib.util.find_spec("envpool") is not None:
    CONTESTANTS["envpool"] = _envpool
