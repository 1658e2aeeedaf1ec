# SPDX-License-Identifier: Apache-2.0
"""Infos of MuJoCo's tasks at an episode's end in same-step mode: docs/how_to/autoreset.md."""

from __future__ import annotations

import numpy as np
import pytest

import rollouts

IDS = ["Ant-v5", "Ant-v4", "Hopper-v5", "HalfCheetah-v5", "Humanoid-v5", "Reacher-v5", "Pusher-v5"]
OWN = {"env_id", "episode_return", "episode_length"}


@pytest.mark.parametrize("env_id", IDS)
def test_infos_are_the_next_episodes_and_final_info_has_the_last_ones(env_id: str) -> None:
    generator = np.random.default_rng(0)
    arguments = {"seed": 3, "num_threads": 1, "max_episode_steps": 5}
    with (
        rollouts.make_vec(env_id, 3, autoreset_mode="same_step", **arguments) as env,
        rollouts.make_vec(env_id, 3, autoreset_mode="disabled", **arguments) as plain,
    ):
        env.reset()
        plain.reset()
        names = None
        for _ in range(12):
            actions = generator.uniform(-1, 1, env.action_space.shape).astype(np.float32)
            actions = np.clip(actions, env.action_space.low, env.action_space.high)
            obs, _, terminated, truncated, info = env.step(actions)
            last = plain.step(actions)[4]
            over = terminated | truncated
            names = {name for name in last if not name.startswith("_")} - OWN
            if not over.any():
                for name in names:
                    np.testing.assert_array_equal(info[name], last[name], err_msg=name)
                continue
            first_obs, first = plain.reset(options={"reset_mask": over})
            np.testing.assert_array_equal(obs, first_obs)
            for name in names:
                now, final = info[name][over], info["final_info"][name][over]
                np.testing.assert_array_equal(now, first[name][over], err_msg=name)
                np.testing.assert_array_equal(final, last[name][over], err_msg=name)
        assert names
