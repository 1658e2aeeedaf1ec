# SPDX-License-Identifier: Apache-2.0
"""Rows at the end of an episode of the DeepMind suite in same-step mode, by autoreset.md."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rollouts
from rollouts.families.dm_control import installed, task_ids

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(not installed(), reason="needs the dm-control package"),
]


def rows_of(obs: Any, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Parts of an observation, or the array as the only one, of some environments."""
    parts = obs if isinstance(obs, dict) else {"obs": obs}
    return {name: np.array(part[rows]) for name, part in parts.items()}


def final_of(info: dict[str, Any], rows: np.ndarray) -> dict[str, np.ndarray]:
    shown = [info["final_obs"][row] for row in np.flatnonzero(rows)]
    parts = [one if isinstance(one, dict) else {"obs": one} for one in shown]
    return {name: np.stack([one[name] for one in parts]) for name in parts[0]}


# tasks share the code that ends their episodes; make test-all has each task in both forms
EACH = [
    pytest.param(env_id, flat, id=f"{env_id}-{form}", marks=() if shown else pytest.mark.slow)
    for at, env_id in enumerate(task_ids())
    for form, flat, shown in (("flat", True, at % 3 == 0), ("parts", False, at % 3 == 1))
]


@pytest.mark.parametrize(("env_id", "flat"), EACH)
def test_infos_and_observations_of_both_episodes_stand_in_their_places(
    env_id: str, flat: bool
) -> None:
    arguments = {"seed": 3, "num_threads": 1, "max_episode_steps": 3, "flatten_observation": flat}
    generator = np.random.default_rng(0)
    with (
        rollouts.make_vec(env_id, 2, autoreset_mode="same_step", **arguments) as env,
        rollouts.make_vec(env_id, 2, autoreset_mode="disabled", **arguments) as plain,
    ):
        env.reset()
        plain.reset()
        # one is a step ahead
        env.send(np.zeros((1, *env.single_action_space.shape), np.float32), [0])
        env.recv()
        plain.send(np.zeros((1, *env.single_action_space.shape), np.float32), [0])
        plain.recv()
        ends = 0
        for _ in range(7):
            actions = generator.uniform(-1, 1, env.action_space.shape).astype(np.float32)
            obs, _, terminated, truncated, info = env.step(actions)
            last_obs, _, *_, last = plain.step(actions)
            over = terminated | truncated
            assert ("final_obs" in info) == over.any()
            if not over.any():
                continue
            ends += int(over.sum())
            np.testing.assert_equal(final_of(info, over), rows_of(last_obs, over))
            for name in ("episode_return", "episode_length"):
                # beside the next episode's first observation they are the last one's, too
                for shown in (info["final_info"], info):
                    np.testing.assert_array_equal(shown[name][over], last[name][over])
            first_obs, first = plain.reset(options={"reset_mask": over})
            np.testing.assert_equal(rows_of(obs, over), rows_of(first_obs, over))
            own = {name for name in first if not name.startswith("_")}
            assert own == {"env_id", "episode_return", "episode_length"}
        assert ends >= 4
