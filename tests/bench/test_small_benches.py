# SPDX-License-Identifier: Apache-2.0
"""The contestants of `rollouts bench adapter` for cleanrl, dm_env, rl_games and jax collect."""

from __future__ import annotations

import importlib

import pytest

from comparisons.adapters.measuring import Case

pytestmark = pytest.mark.system


@pytest.mark.parametrize("library", ["cleanrl", "dm_env", "rl_games", "jax"])
def test_contestants_collect_what_they_say(library: str) -> None:
    needed = {"dm_env": "dm_env", "rl_games": "rl_games", "jax": "jax"}.get(library, "torch")
    pytest.importorskip(needed, reason=f"{needed} is not installed")
    module = importlib.import_module(f"comparisons.adapters.{library}")
    assert next(iter(module.CONTESTANTS)) == "rollouts"
    for name, make in module.CONTESTANTS.items():
        contestant = make(Case("CartPole-v1", 4, 1, rollout_length=40))
        assert contestant.collect() + contestant.collect() == 320, name
        if library == "cleanrl":
            assert contestant.episodes > 0, name
        contestant.close()


@pytest.mark.parametrize("env_id", ["CartPole-v1", "waiting", "heavy-observation"])
def test_hosts_of_python_environments_collect_what_they_say(env_id: str) -> None:
    module = importlib.import_module("comparisons.adapters.env_fns")
    assert next(iter(module.CONTESTANTS)) == "rollouts"
    for name, make in module.CONTESTANTS.items():
        contestant = make(Case(env_id, 4, 1, rollout_length=4))
        assert contestant.collect() + contestant.collect() == 32, name
        assert "process" in contestant.note
        contestant.close()
