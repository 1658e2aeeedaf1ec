# SPDX-License-Identifier: Apache-2.0
"""Sizes that fit the environment of a test that is generated over the registry."""

from __future__ import annotations

import pytest
from contract_envs import LIGHT_IDS, actions_of
from own_envs import register_all

import rollouts


@pytest.fixture(scope="session", autouse=True)
def users_own_environments() -> None:
    """Registers them when tests run, so that other files' lists of ids are of ours alone."""
    register_all()


@pytest.fixture
def num_envs(env_id: str) -> int:
    return 5 if env_id in LIGHT_IDS else 2


@pytest.fixture
def limit(env_id: str, num_envs: int) -> int:
    """The most steps, up to 4, before the last of which no episode ends by itself."""
    with rollouts.make_vec(env_id, num_envs, seed=1, num_threads=1) as env:
        env.reset()
        for step in range(1, 4):
            _, _, terminated, _, _ = env.step(actions_of(env, step - 1))
            if terminated.any():
                return step
    return 4
