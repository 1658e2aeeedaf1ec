# SPDX-License-Identifier: Apache-2.0
"""`RolloutsMultiAgentEnv` has the keys of TorchRL's own wrappers, and the pool's data."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("torchrl", reason="needs TorchRL: pip install 'rollouts[torchrl]'")

import mpe2.simple_tag_v3
from rollouts.integrations.torchrl import RolloutsEnv, RolloutsMultiAgentEnv
from tensordict.nn import TensorDictModule, TensorDictSequential
from torchrl.collectors import Collector
from torchrl.envs import PettingZooWrapper, RewardSum, TransformedEnv
from torchrl.envs.utils import check_env_specs
from torchrl.modules import MultiAgentMLP

import rollouts
from rollouts.errors import ProtocolError, SpecError

# runners leave one after the other, and episodes end early or at their limit
TAG: dict[str, Any] = {"tagging_distance": 0.2, "max_episode_steps": 30, "num_runners": 4}


def by_group(arrays: Any, groups: Any) -> dict[str, Any]:
    return arrays if isinstance(arrays, dict) else dict.fromkeys(groups, arrays)


@pytest.mark.parametrize("categorical", [True, False])
@pytest.mark.parametrize(
    ("env_id", "options"),
    [
        ("simple_spread_v3", {}),
        ("simple_tag_v3", {}),
        ("simple_tag_v3", {"continuous_actions": True}),
        ("TagContinuous-v0", TAG),
        ("TagGridWorld-v0", {"grid_length": 3}),
    ],
)
def test_specs_fit_the_data(env_id: str, options: dict[str, Any], categorical: bool) -> None:
    env = RolloutsMultiAgentEnv(env_id, num_envs=3, categorical_actions=categorical, **options)
    check_env_specs(env, break_when_any_done="both")
    assert env.batch_size == (3,)
    assert env.group_map == {name: [*group.agents] for name, group in env.pool.groups.items()}
    env.close()
    env.close()


@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize("categorical", [False, True])
def test_specs_are_those_of_torchrls_own_wrapper(categorical: bool, continuous: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about PettingZoo's version
        theirs = PettingZooWrapper(
            mpe2.simple_tag_v3.parallel_env(continuous_actions=continuous),
            use_mask=True,
            device="cpu",
            categorical_actions=categorical,
        )
    ours = RolloutsMultiAgentEnv(
        "simple_tag_v3",
        num_envs=2,
        categorical_actions=categorical,
        continuous_actions=continuous,
    )
    assert ours.group_map == theirs.group_map
    for name in ("action_keys", "reward_keys", "done_keys"):
        assert getattr(ours, name) == getattr(theirs, name)
    for name in ("full_observation_spec", "full_action_spec", "full_reward_spec", "full_done_spec"):
        # theirs has no batch
        assert getattr(ours, name)[0] == getattr(theirs, name), name
    ours.close()


@pytest.mark.parametrize(
    ("env_id", "options"),
    [
        ("TagContinuous-v0", TAG),
        ("simple_tag_v3", {"num_adversaries": 6, "terminate_on_success": True}),
        ("simple_spread_v3", {}),
    ],
)
def test_the_data_are_those_of_a_pool_without_autoreset(
    env_id: str, options: dict[str, Any]
) -> None:
    env = RolloutsMultiAgentEnv(env_id, num_envs=4, seed=3, **options)
    torch.manual_seed(0)
    data = env.rollout(80, break_when_any_done=False)
    pool = rollouts.make_multi_agent_vec(env_id, 4, seed=3, autoreset_mode="disabled", **options)
    first, info = pool.reset()
    obs, acting = by_group(first, pool.groups), by_group(info["active"], pool.groups)
    acting = {name: each.copy() for name, each in acting.items()}
    num_ended = 0
    for t in range(80):
        now, after = data[:, t], data["next"][:, t]
        for name in pool.groups:
            assert np.array_equal(now[name, "observation"].numpy(), obs[name])
            assert np.array_equal(now[name, "mask"].numpy(), acting[name])
        actions = {name: now[name, "action"].numpy() for name in pool.groups}
        *step, info = pool.step(actions)
        obs, reward, terminated, truncated = (by_group(each, pool.groups) for each in step)
        for name in pool.groups:
            row = after[name]
            left = terminated[name] | ~acting[name]
            acting[name] = ~left & ~truncated[name]
            assert np.array_equal(row["observation"].numpy(), obs[name])
            assert np.array_equal(row["reward"][..., 0].numpy(), reward[name].astype(np.float32))
            assert np.array_equal(row["terminated"][..., 0].numpy(), left)
            assert np.array_equal(row["truncated"][..., 0].numpy(), truncated[name])
            assert np.array_equal(row["done"][..., 0].numpy(), left | truncated[name])
            assert np.array_equal(row["mask"].numpy(), acting[name])
        ended = info["ended"]
        cut = np.any([each.any(axis=1) for each in truncated.values()], axis=0)
        assert np.array_equal(after["done"][:, 0].numpy(), ended)
        assert np.array_equal(after["truncated"][:, 0].numpy(), ended & cut)
        assert np.array_equal(after["terminated"][:, 0].numpy(), ended & ~cut)
        num_ended += ended.sum()
        if ended.any():
            first, _ = pool.reset(options={"reset_mask": ended})
            obs = by_group(first, pool.groups)
            for each in acting.values():
                each[ended] = True
    assert num_ended > 4
    env.close()
    pool.close()


def test_a_rollout_goes_on_until_the_last_environment_has_ended() -> None:
    options = {"num_taggers": 5, "grid_length": 4, "max_episode_steps": 30}
    env = RolloutsMultiAgentEnv("TagGridWorld-v0", num_envs=4, seed=3, **options)
    torch.manual_seed(0)
    data = env.rollout(60, break_when_any_done=False, break_when_all_done=True)
    done = data["next", "done"][..., 0]
    assert done[:, -1].all()
    lengths = [int(row.nonzero()[0]) + 1 for row in done]
    assert len(set(lengths)) > 1 and max(lengths) == data.shape[1]
    pool = rollouts.make_multi_agent_vec(
        "TagGridWorld-v0", 4, seed=3, autoreset_mode="disabled", **options
    )
    pool.reset()
    for t in range(data.shape[1]):
        going = np.array([t < length for length in lengths]).nonzero()[0]
        actions = {name: data[name, "action"][going, t].numpy() for name in pool.groups}
        obs, *_ = pool.step(actions, going)
        for name, seen in by_group(obs, pool.groups).items():
            assert np.array_equal(data["next", name, "observation"][going, t].numpy(), seen)
    env.close()
    pool.close()


def test_agents_that_left_are_masked_until_the_next_episode() -> None:
    env = RolloutsMultiAgentEnv("TagContinuous-v0", num_envs=4, seed=0, **TAG)
    torch.manual_seed(0)
    data = env.rollout(90, break_when_any_done=False)
    mask, done = data["runner", "mask"], data["next", "done"][..., 0]
    # some leave while their episode goes on
    gone = ~mask & ~data["done"]
    assert gone.any() and not gone.all()
    assert (data["next", "runner", "reward"][~mask] == 0).all()
    assert data["next", "runner", "done"][~mask].all()
    # nobody comes back within an episode, and all are there at its beginning
    assert not (mask[:, 1:] & ~mask[:, :-1])[~done[:, :-1]].any()
    assert mask[:, 1:][done[:, :-1]].all() and mask[:, 0].all()
    assert not data["next", "runner", "mask"][done].any()
    assert data["tagger", "mask"].all()
    env.close()


def test_a_mask_resets_running_environments_and_no_others() -> None:
    env = RolloutsMultiAgentEnv("TagContinuous-v0", num_envs=3, seed=0, **TAG)
    torch.manual_seed(1)
    data = env.reset()
    for _ in range(8):
        data = env.rand_step(data)["next"].exclude(*env.reward_keys)
    before = data.clone()
    assert not before["done"].any() and not before["runner", "mask"].all(dim=1).any()
    data["_reset"] = torch.tensor([[False], [True], [False]])
    data = env.reset(data)
    for name in env.group_map:
        for key in ("observation", "mask", "done", "terminated", "truncated"):
            assert torch.equal(data[name, key][[0, 2]], before[name, key][[0, 2]])
    assert data["runner", "mask"][1].all() and not data["runner", "done"][1].any()
    # the next step knows who is there
    after = env.rand_step(data)["next"]
    assert torch.equal(after["runner", "done"][[0, 2], :, 0] | before["runner", "mask"][[0, 2]],
                       torch.ones(2, 4, dtype=torch.bool))  # fmt: skip
    env.close()


def test_a_policy_of_torchrl_acts_and_its_returns_add_up() -> None:
    # a group's reward is summed up to its "episode_reward"
    keys = {"in_keys": [("agent", "reward")], "out_keys": [("agent", "episode_reward")]}
    env = TransformedEnv(RolloutsMultiAgentEnv("simple_spread_v3", num_envs=5), RewardSum(**keys))
    net = MultiAgentMLP(18, 5, 3, centralized=False, share_params=True, depth=1, num_cells=8)
    scores = TensorDictModule(net, [("agent", "observation")], [("agent", "scores")])
    choice = TensorDictModule(lambda x: x.argmax(-1), [("agent", "scores")], [("agent", "action")])
    with torch.no_grad():
        data = env.rollout(25, TensorDictSequential(scores, choice))
    assert data.shape == (5, 25) and data["next", "truncated"][:, -1].all()
    total = data["next", "agent", "reward"].sum(1)
    torch.testing.assert_close(data["next", "agent", "episode_reward"][:, -1], total)
    env.close()


def test_works_behind_a_collector() -> None:
    env = RolloutsMultiAgentEnv("TagContinuous-v0", num_envs=4, **TAG)
    collector = Collector(env, None, frames_per_batch=160, total_frames=320)
    batches = list(collector)
    assert [batch.shape for batch in batches] == [(4, 40)] * 2
    done = batches[0]["next", "done"][..., 0]
    assert done.any() and batches[0]["runner", "mask"][:, 1:][done[:, :-1]].all()
    collector.shutdown()


def test_seeds_make_rollouts_repeatable() -> None:
    env = RolloutsMultiAgentEnv("simple_tag_v3", num_envs=3)
    first = []
    for _ in range(2):
        env.set_seed(5)
        torch.manual_seed(0)
        first.append(env.rollout(20, break_when_any_done=False))
    assert (first[0] == first[1]).all()
    env.close()


def test_ended_environments_do_not_step() -> None:
    env = RolloutsMultiAgentEnv("simple_spread_v3", num_envs=2)
    data = env.rollout(100)
    assert data.shape == (2, 25)
    with pytest.raises(ProtocolError, match="have ended"):
        env.rand_step(data[:, -1]["next"])
    env.close()


def test_each_class_is_for_its_own_environments() -> None:
    with pytest.raises(SpecError, match="use RolloutsMultiAgentEnv"):
        RolloutsEnv("simple_spread_v3", num_envs=2)
    with pytest.raises(SpecError, match="one agent are a RolloutsEnv"):
        RolloutsMultiAgentEnv("CartPole-v1", num_envs=2)
    for mode in ("next_step", "disabled"):
        pool = rollouts.make_multi_agent_vec("simple_v3", 2, autoreset_mode=mode)
        with pytest.raises(SpecError, match="expected same_step"):
            RolloutsMultiAgentEnv(pool)
        assert not pool.closed
        pool.close()
    with rollouts.make_multi_agent_vec("simple_v3", 2, autoreset_mode="same_step") as pool:
        with pytest.raises(SpecError, match="for ids"):
            RolloutsMultiAgentEnv(pool, num_envs=2)
        check_env_specs(RolloutsMultiAgentEnv(pool))
