# SPDX-License-Identifier: Apache-2.0
"""The contestants of `rollouts bench adapter rllib` collect what they say."""

from __future__ import annotations

import pytest

pytest.importorskip(
    "ray.tune", exc_type=ImportError, reason="RLlib is not installed: pip install 'rollouts[rllib]'"
)

from comparisons.adapters.measuring import Case
from comparisons.adapters.rllib import CONTESTANTS


@pytest.mark.parametrize("name", list(CONTESTANTS))
def test_contestant_collects_cartpole(name: str) -> None:
    contestant = CONTESTANTS[name](Case("CartPole-v1", 3, 1, rollout_length=8))
    # RLlib's own loop may take a step more of the environments that did not end
    assert 24 <= contestant.collect() <= 26
    contestant.close()


@pytest.mark.parametrize("name", ["rollouts", "rllib", "rllib-vector-entry-point"])
def test_contestant_collects_atari(name: str) -> None:
    pytest.importorskip("ale_py", reason="ale-py is not installed")
    if name == "rllib":
        pytest.importorskip("cv2", reason="RLlib's wrappers need opencv-python-headless")
    contestant = CONTESTANTS[name](Case("ALE/Pong-v5", 2, 1, rollout_length=3))
    assert contestant.collect() == 6
    contestant.close()
