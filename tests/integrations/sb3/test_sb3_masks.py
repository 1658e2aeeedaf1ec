# SPDX-License-Identifier: Apache-2.0
"""sb3-contrib's MaskablePPO over a native pool: the masks are those of Gymnasium's Taxi."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import sb3_contrib
from rollouts.integrations.sb3 import NativeVecEnv
from sb3_contrib.common.maskable.utils import get_action_masks, is_masking_supported


def masks_of(obs: Any) -> Any:
    reference: Any = gymnasium.make("Taxi-v3").unwrapped
    return np.array([reference.action_mask(int(state)) for state in obs]) != 0


def test_masks_are_those_of_the_observations() -> None:
    with_masks = NativeVecEnv("Taxi-v3", 5, seed=1, max_episode_steps=9)
    assert is_masking_supported(with_masks)
    obs = with_masks.reset()
    with_masks.action_space.seed(1)
    for _ in range(40):
        np.testing.assert_array_equal(get_action_masks(with_masks), masks_of(obs))
        obs, *_ = with_masks.step(np.array([with_masks.action_space.sample() for _ in range(5)]))
    with_masks.close()
    without = NativeVecEnv("CartPole-v1", 2)
    assert not is_masking_supported(without)
    without.close()


def test_maskable_ppo_learns_with_them() -> None:
    env = NativeVecEnv("Taxi-v3", 4, seed=1, max_episode_steps=30)
    model = sb3_contrib.MaskablePPO("MlpPolicy", env, n_steps=32, batch_size=64, n_epochs=1, seed=1)
    model.learn(4 * 32)
    buffer = model.rollout_buffer
    observed = np.reshape(buffer.observations, -1)
    masks = np.reshape(buffer.action_masks, (len(observed), 6)) != 0
    np.testing.assert_array_equal(masks, masks_of(observed))
    actions = np.reshape(buffer.actions, -1).astype(int)
    assert masks[np.arange(len(actions)), actions].all()
    env.close()
