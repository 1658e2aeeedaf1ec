# SPDX-License-Identifier: Apache-2.0
"""`RolloutsEnv` is a TorchRL environment whose data are right at the ends of episodes."""

from __future__ import annotations

import importlib
import math
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("torchrl", reason="needs TorchRL: pip install 'rollouts[torchrl]'")

from gymnasium.vector import AutoresetMode, SyncVectorEnv
from rollouts.integrations.torchrl import RolloutsEnv
from torchrl.collectors import Collector, MultiSyncCollector
from torchrl.envs import Compose, GymWrapper, RewardSum, StepCounter, TransformedEnv
from torchrl.envs.utils import check_env_specs

import rollouts
from rollouts.errors import EngineError, ProtocolError, SpecError

EXAMPLE = Path(__file__).parents[2] / "examples" / "integrations" / "torchrl_collector.py"


def in_bounds(obs: torch.Tensor) -> torch.Tensor:
    """Tells if CartPole goes on from these observations."""
    return (obs[..., 0].abs() <= 2.4) & (obs[..., 2].abs() <= math.radians(12))


@pytest.mark.parametrize("categorical", [False, True])
@pytest.mark.parametrize(
    "env_id", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Blackjack-v1", "ALE/Pong-v5"]
)
def test_specs_fit_the_data(env_id: str, categorical: bool) -> None:
    env = RolloutsEnv(env_id, num_envs=3, categorical_action_encoding=categorical)
    check_env_specs(env, break_when_any_done="both")
    assert env.batch_size == (3,)
    env.close()
    env.close()


def test_specs_are_those_of_torchrls_own_wrapper() -> None:
    import gymnasium as gym

    for categorical in (False, True):
        theirs = GymWrapper(
            SyncVectorEnv(
                [lambda: gym.make("CartPole-v1") for _ in range(2)],
                autoreset_mode=AutoresetMode.SAME_STEP,
            ),
            categorical_action_encoding=categorical,
        )
        ours = RolloutsEnv("CartPole-v1", num_envs=2, categorical_action_encoding=categorical)
        assert ours.action_spec == theirs.action_spec
        assert ours.reward_spec == theirs.reward_spec
        assert set(ours.done_keys) == set(theirs.done_keys)
        assert ours.observation_spec["observation"].shape == (2, 4)
        assert ours.observation_spec["observation"].dtype == torch.float32
        ours.close()
        theirs.close()


def test_an_ended_episode_keeps_its_last_observation() -> None:
    torch.manual_seed(0)
    env = RolloutsEnv("CartPole-v1", num_envs=8, seed=0)
    data = env.rollout(100, break_when_any_done=False)
    done = data["next", "done"][..., 0]
    assert done.sum() > 8
    after = data["next", "observation"]
    # the last observation of an episode is out of bounds, where the next one begins is near 0
    assert torch.equal(in_bounds(after), ~done)
    first = data["observation"][:, 1:][done[:, :-1]]
    assert (first.abs() <= 0.05).all()
    goes_on = ~done[:, :-1]
    assert torch.equal(after[:, :-1][goes_on], data["observation"][:, 1:][goes_on])
    env.close()


# CartPole's episodes end one by one, Pendulum's all at once
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_the_data_are_those_of_a_pool_without_autoreset(env_id: str) -> None:
    env = RolloutsEnv(
        env_id, num_envs=4, seed=3, categorical_action_encoding=True, max_episode_steps=30
    )
    torch.manual_seed(0)
    data = env.rollout(80, break_when_any_done=False)
    pool = rollouts.make_vec(env_id, 4, seed=3, autoreset_mode="disabled", max_episode_steps=30)
    obs, _ = pool.reset()
    for t in range(80):
        assert np.array_equal(data["observation"][:, t].numpy(), obs)
        obs, reward, terminated, truncated, _ = pool.step(data["action"][:, t].numpy())
        row = data["next"][:, t]
        assert np.array_equal(row["observation"].numpy(), obs)
        assert np.array_equal(row["reward"][:, 0].numpy(), reward.astype(np.float32))
        assert np.array_equal(row["terminated"][:, 0].numpy(), terminated)
        ended = terminated | truncated
        if ended.any():
            obs, _ = pool.reset(options={"reset_mask": ended})
    env.close()
    pool.close()


def test_a_rollout_goes_on_until_the_last_environment_has_ended() -> None:
    env = RolloutsEnv("CartPole-v1", num_envs=4, seed=3, categorical_action_encoding=True)
    torch.manual_seed(0)
    data = env.rollout(500, break_when_any_done=False, break_when_all_done=True)
    assert data["next", "done"][:, -1].all()
    pool = rollouts.make_vec("CartPole-v1", 4, seed=3, autoreset_mode="disabled")
    obs, _ = pool.reset()
    lengths = []
    for row in range(4):
        own = data[row]
        length = int(own["next", "done"][:, 0].nonzero()[0]) + 1
        lengths.append(length)
        # TorchRL repeats the last step of what has ended
        last = own[length - 1]
        for t in range(length, data.shape[1]):
            assert torch.equal(own[t]["next", "observation"], last["next", "observation"])
    assert len(set(lengths)) > 1 and max(lengths) == data.shape[1]
    for t in range(data.shape[1]):
        going = np.array([t < length for length in lengths]).nonzero()[0]
        assert np.array_equal(data["observation"][going, t].numpy(), obs[going])
        after, *_ = pool.step(data["action"][going, t].numpy(), going)
        assert np.array_equal(data["next", "observation"][going, t].numpy(), after)
        obs = obs.copy()
        obs[going] = after
    # and the next one begins anew
    again = env.rollout(3, break_when_any_done=False, break_when_all_done=True)
    assert (again["observation"][:, 0].abs() <= 0.05).all()
    env.close()


def test_a_mask_resets_running_environments_and_no_others() -> None:
    env = RolloutsEnv("CartPole-v1", num_envs=3, seed=0)
    data = env.reset()
    for _ in range(3):
        data = env.rand_step(data)["next"].exclude("reward")
    before = data["observation"].clone()
    data["_reset"] = torch.tensor([[False], [True], [False]])
    data = env.reset(data)
    assert torch.equal(data["observation"][[0, 2]], before[[0, 2]])
    assert (data["observation"][1].abs() <= 0.05).all()
    assert not torch.equal(data["observation"][1], before[1])
    env.close()


def test_transforms_may_truncate_episodes() -> None:
    env = TransformedEnv(
        RolloutsEnv("CartPole-v1", num_envs=4, seed=0), Compose(RewardSum(), StepCounter(10))
    )
    check_env_specs(env)
    data = env.rollout(50, break_when_any_done=False)
    assert data["next", "step_count"].max() == 10
    done = data["next", "done"][..., 0]
    lengths = data["next", "step_count"][..., 0][done]
    returns = data["next", "episode_reward"][..., 0][done]
    assert torch.equal(lengths.float(), returns)
    assert (data["observation"][:, 1:][done[:, :-1]].abs() <= 0.05).all()
    env.close()


def test_ended_environments_do_not_step() -> None:
    env = RolloutsEnv("CartPole-v1", num_envs=4, seed=0)
    data = env.rollout(100)
    assert data["next", "done"][:, -1].any()
    with pytest.raises(ProtocolError, match="have ended"):
        env.rand_step(data[:, -1]["next"])
    env.close()


def test_tensors_stay_what_they_were_while_somebody_holds_them() -> None:
    env = RolloutsEnv("CartPole-v1", num_envs=8, seed=0)
    data = env.reset()
    held, copies = [], []
    for _ in range(200):
        stepped, data = env.step_and_maybe_reset(env.rand_action(data))
        held.append(stepped)
        copies.append(stepped.clone())
    assert all((one == copy).all() for one, copy in zip(held, copies, strict=True))
    # observations are not copied, so 200 held steps are 200 of the pool's buffers
    with_views = env.pool.buffer_bytes
    assert with_views >= 200 * 8 * 4 * 4
    # and once nobody holds them, their memory is free
    held.clear()
    del stepped
    env.step_and_maybe_reset(env.rand_action(data))
    assert env.pool.buffer_bytes < with_views / 10
    env.close()


def test_seeds_make_rollouts_repeatable() -> None:
    env = RolloutsEnv("CartPole-v1", num_envs=3)
    first = []
    for _ in range(2):
        env.set_seed(5)
        torch.manual_seed(0)
        first.append(env.rollout(20, break_when_any_done=False))
    assert (first[0] == first[1]).all()
    env.close()


@pytest.mark.parametrize("mode", ["next_step", "disabled"])
def test_pools_in_other_modes_are_refused(mode: str) -> None:
    pool = rollouts.make_vec("CartPole-v1", 2, autoreset_mode=mode)
    with pytest.raises(SpecError, match="expected same_step"):
        RolloutsEnv(pool)
    pool.close()


def test_a_next_step_pool_would_store_a_reset_as_a_transition() -> None:
    pool = rollouts.make_vec("CartPole-v1", 1, seed=0, autoreset_mode="next_step")
    obs, _ = pool.reset()
    rows = []
    for _ in range(40):
        after, reward, terminated, _, _ = pool.step(np.zeros(1, np.int64))
        rows.append((obs.copy(), reward[0], after.copy(), terminated[0]))
        obs = after
    ended = next(i for i, row in enumerate(rows) if row[3])
    before, reward, after, _ = rows[ended + 1]
    # from the end of one episode to the start of the next, for no reward
    assert not in_bounds(torch.from_numpy(before)).item()
    assert (np.abs(after) <= 0.05).all()
    assert reward == 0
    pool.close()


def test_asynchronous_pools_and_arguments_for_ids_are_refused() -> None:
    pool = rollouts.make_vec("CartPole-v1", 4, batch_size=2, autoreset_mode="same_step")
    with pytest.raises(SpecError, match="batch_size 2"):
        RolloutsEnv(pool)
    with pytest.raises(SpecError, match="for ids"):
        RolloutsEnv(pool, num_envs=4)
    pool.close()
    with pytest.raises(SpecError, match="expected ids"):
        RolloutsEnv(3)


def make_env() -> Any:
    """Makes an environment in worker processes, which import this module."""
    return RolloutsEnv("CartPole-v1", num_envs=4)


def test_works_behind_collectors() -> None:
    collector = Collector(make_env(), None, frames_per_batch=80, total_frames=160)
    batches = list(collector)
    assert [batch.shape for batch in batches] == [(4, 20)] * 2
    done = batches[0]["next", "done"][..., 0]
    assert torch.equal(in_bounds(batches[0]["next", "observation"]), ~done)
    collector.shutdown()


@pytest.mark.system  # processes that import torch
def test_works_behind_collectors_in_processes() -> None:
    collector = MultiSyncCollector(
        [make_env, make_env], frames_per_batch=160, total_frames=160, cat_results=0
    )
    (batch,) = list(collector)
    collector.shutdown()
    assert batch.numel() == 160
    done = batch["next", "done"][..., 0]
    assert torch.equal(in_bounds(batch["next", "observation"]), ~done)


def test_the_example_runs() -> None:
    assert runpy.run_path(str(EXAMPLE))["train"](num_envs=8, total_frames=1024) > 5


def test_without_torchrl_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "rollouts.integrations.torchrl")
    monkeypatch.setitem(sys.modules, "torchrl.data", None)
    with pytest.raises(EngineError, match=r"pip install 'rollouts\[torchrl\]'"):
        importlib.import_module("rollouts.integrations.torchrl")
