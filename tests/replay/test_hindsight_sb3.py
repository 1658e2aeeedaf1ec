# SPDX-License-Identifier: Apache-2.0
"""Hindsight gives what Stable-Baselines3's HerReplayBuffer gives of the same steps and goals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from replay_model import ACTION_SPACE, BOTH, OBS_SPACE, TERMINATED, TRUNCATED, World
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from rollouts.replay import GoalColumns, Hindsight, ReplayBuffer, SparseReward, TableConfig

GOAL = GoalColumns(achieved_goal=(2, 3), desired_goal=(0, 1), observation=(0, 3))
PLAN = [[(7, TRUNCATED), (3, TERMINATED)], [(5, BOTH), (1, TRUNCATED), (9, TERMINATED)]]
REWARD = SparseReward(1.5)
STEPS = 60
ENVS = len(PLAN)


class RewardsOfEnvs:
    """The only thing that HerReplayBuffer asks of environments."""

    num_envs = ENVS

    def env_method(self, name: str, *args: Any, indices: Any = None) -> list[Any]:
        assert name == "compute_reward"
        return [REWARD(*args)]


class Stored:
    """The same steps in both buffers, and where SB3 has each of them."""

    def __init__(self, strategy: str) -> None:
        space: Any = spaces.Dict(
            {n: spaces.Box(-1, 1e6, (e - b,)) for n, (b, e) in GOAL.check(3).items()}
        )
        envs: Any = RewardsOfEnvs()
        self.theirs = HerReplayBuffer(
            STEPS * ENVS, space, ACTION_SPACE, envs, "cpu", ENVS, goal_selection_strategy=strategy
        )
        kind = Hindsight(GOAL, REWARD, strategy, share=1.0)  # type: ignore[arg-type]
        self.ours = ReplayBuffer(OBS_SPACE, ACTION_SPACE, TableConfig(items=kind))
        self.place: dict[Any, tuple[int, int]] = {}
        rollout = World(PLAN, env_id=range(ENVS)).rollout(STEPS)
        self.ours.add_batch(rollout)
        assert rollout.final_obs is not None
        finals = iter(rollout.final_obs)
        for t in range(STEPS):
            ends = rollout.terminated[t] | rollout.truncated[t]
            after = rollout.obs[t + 1] if t + 1 < STEPS else rollout.last_obs
            next_obs = np.array([next(finals) if ends[i] else after[i] for i in range(ENVS)])
            infos = [
                {
                    "TimeLimit.truncated": bool(
                        rollout.truncated[t, i] and not rollout.terminated[t, i]
                    )
                }
                for i in range(ENVS)
            ]
            for i in range(ENVS):
                self.place[i, int(rollout.obs[t, i, 1]), int(rollout.obs[t, i, 2])] = (t, i)
            self.theirs.add(
                GOAL.views(rollout.obs[t]),
                GOAL.views(next_obs),
                rollout.action[t],
                rollout.reward[t],
                ends,
                infos,
            )

    def places(self, batch: Any) -> tuple[Any, Any]:
        steps = zip(batch.env_id, batch.obs[:, 1], batch.obs[:, 2], strict=True)
        found = [self.place[int(i), int(n), int(t)] for i, n, t in steps]
        return np.array([t for t, _ in found]), np.array([i for _, i in found])


@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
def test_relabelled_steps_equal_those_of_sb3_towards_the_same_goals(
    strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = Stored(strategy)
    batch: Any = stored.ours.sample(2000)
    monkeypatch.setattr(stored.theirs, "_sample_goals", lambda *_: batch.obs[:, :1].copy())
    theirs = stored.theirs._get_virtual_samples(*stored.places(batch), None)
    for obs, dicts in (
        (batch.obs, theirs.observations),
        (batch.next_obs, theirs.next_observations),
    ):
        views = GOAL.views(obs)
        for name in ("achieved_goal", "desired_goal"):
            assert (views[name] == dicts[name].numpy()).all()
        # the whole row: theirs has the old goal in it, which relabelling leaves to the dict's
        assert (views["observation"][:, 1:] == dicts["observation"].numpy()[:, 1:]).all()
    assert (batch.reward == theirs.rewards.numpy()[:, 0]).all()
    assert (batch.action == theirs.actions.numpy()[:, 0]).all()
    # time limits are no ends of theirs
    assert (batch.terminated == theirs.dones.numpy()[:, 0]).all()


@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
def test_the_goals_of_a_step_are_those_that_sb3_draws_from(
    strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = Stored(strategy)
    samples: Any = stored.ours.sample(40_000)
    ours: dict[Any, set[float]] = {}
    for place, goal in zip(
        zip(*stored.places(samples), strict=True), samples.obs[:, 0], strict=True
    ):
        ours.setdefault(place, set()).add(float(goal))
    # theirs, whatever is drawn: each number of the range that it asks for
    places = sorted(ours)
    rows, envs = (np.array(part) for part in zip(*places, strict=True))
    theirs: list[set[float]] = [set() for _ in places]
    for draw in range(10):
        monkeypatch.setattr(
            np.random, "randint", lambda low, high, draw=draw: low + draw % (np.asarray(high) - low)
        )
        for goals, goal in zip(theirs, stored.theirs._sample_goals(rows, envs), strict=True):
            goals.add(float(goal[0]))
    assert [ours[place] for place in places] == theirs
    # and the same steps can be sampled
    assert {
        (int(t), int(i)) for t, i in zip(*np.nonzero(stored.theirs.ep_length), strict=True)
    } == {(int(t), int(i)) for t, i in places}
