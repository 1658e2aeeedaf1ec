# SPDX-License-Identifier: Apache-2.0
"""`examples/her.py` and `compare_her.py` train on goals that each episode draws anew."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rollouts

pytestmark = pytest.mark.system

SMALL = ["--total-steps", "400", "--learning-starts", "200", "--eval-interval", "200"]


@pytest.fixture(autouse=True)
def examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(rollouts.__file__).parents[1] / "examples")


def test_goals_are_drawn_for_each_episode_and_reached_where_the_reward_is_0() -> None:
    from common.reaching import EPISODE, GOAL, REWARD, make_arms

    with make_arms(8, seed=3) as arms:
        obs, _ = arms.reset()
        first = GOAL.views(obs)["desired_goal"].copy()
        assert len(np.unique(first[:, 0])) == 8
        assert (np.abs(first) <= 0.13).all()
        for _ in range(EPISODE):
            obs, reward, terminated, truncated, info = arms.step(arms.action_space.sample())
            shown = GOAL.views(np.stack(info["final_obs"]) if truncated.all() else obs)
            assert (shown["desired_goal"] == first).all()
            assert (reward == REWARD(shown["achieved_goal"], shown["desired_goal"])).all()
            assert not terminated.any()
        assert truncated.all()
        assert (GOAL.views(obs)["desired_goal"] != first).all()


@pytest.mark.parametrize("program", ["her", "compare_her"])
def test_both_train_log_and_say_that_so_few_steps_solve_nothing(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    log = tmp_path / "one.csv"
    monkeypatch.setattr(sys, "argv", [program, *SMALL, "--log", str(log)])
    assert __import__(program).main() == 1
    assert "not solved" in capsys.readouterr().out
    assert len(log.read_text().splitlines()) >= 2
    picture = tmp_path / "her.png"
    from common.reaching import draw

    draw(picture, [log])
    assert picture.read_bytes().startswith(b"\x89PNG")
