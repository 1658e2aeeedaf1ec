# SPDX-License-Identifier: Apache-2.0
"""`terminated` and `truncated` are independent: the last allowed step may be both."""

from __future__ import annotations

import numpy as np
import pytest

import rollouts


def first_termination(env_id: str, limit: int) -> tuple[int, bool]:
    """Steps with action 1 until the environment terminates; returns when, and `truncated`."""
    with rollouts.make_vec(
        env_id, 1, seed=1, autoreset_mode="disabled", max_episode_steps=limit
    ) as env:
        env.reset()
        for step in range(1, 301):
            _, _, terminated, truncated, _ = env.step(np.ones(1, np.int64))
            if terminated[0]:
                return step, bool(truncated[0])
    raise AssertionError(f"{env_id} did not terminate")


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Blackjack-v1", "Catch-v0"])
def test_last_allowed_step_can_both_terminate_and_truncate(env_id: str) -> None:
    steps, truncated = first_termination(env_id, limit=0)
    assert not truncated
    assert first_termination(env_id, limit=steps) == (steps, True)
    assert first_termination(env_id, limit=steps + 1) == (steps, False)
