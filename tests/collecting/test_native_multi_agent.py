# SPDX-License-Identifier: Apache-2.0
"""Policies of groups in the pool's threads: what each agent's rows hold, and who computes them."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from leaving_agents import LEAVING
from test_recurrent import Gru
from torch import Tensor, nn

import rollouts
from rollouts import Collector
from rollouts.batch import RolloutBatch
from rollouts.errors import ClosedError, EnvError, SpecError
from rollouts.policy import TorchPolicy
from rollouts.recurrent import RecurrentTorchPolicy

# groups of several kinds: MultiDiscrete, Discrete, Box; one group, two, three
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "tag": ("TagContinuous-v0", LEAVING),
    "grid": ("TagGridWorld-v0", {"max_episode_steps": 7}),
    "spread": ("simple_spread_v3", {"max_episode_steps": 7}),
    "continuous": ("simple_tag_v3", {"max_episode_steps": 7, "continuous_actions": True}),
    "world": ("simple_world_comm_v3", {"max_episode_steps": 7}),
}
FIELDS = ("obs", "action", "log_prob", "value", "reward", "terminated", "truncated",
          "bootstrap_value", "last_value", "last_obs", "episode_return", "env_id")  # fmt: skip
STEPS = 20
Batches = dict[str, RolloutBatch]


class Agent(nn.Module):
    """Actor and critic of one group."""

    def __init__(self, group: rollouts.AgentGroup) -> None:
        super().__init__()
        space = group.single_action_space
        self.is_box = isinstance(space, gymnasium.spaces.Box)
        outputs = int(
            np.sum(getattr(space, "nvec", getattr(space, "n", np.prod(space.shape or ()))))
        )
        self.trunk = nn.Linear(int(np.prod(group.single_observation_space.shape or ())), 12)
        self.actor, self.critic = nn.Linear(12, outputs), nn.Linear(12, 1)
        self.log_std = nn.Parameter(torch.full((outputs,), -0.5))

    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        hidden = torch.tanh(self.trunk(obs.float()))
        log_std = (self.log_std,) if self.is_box else ()
        return (self.actor(hidden), *log_std, self.critic(hidden))


def make(case: str, num_envs: int, **options: Any) -> rollouts.MultiAgentVectorEnv:
    env_id, own = CASES[case]
    given = {"seed": 3, "autoreset_mode": "same_step"} | own | options
    return rollouts.make_multi_agent_vec(env_id, num_envs, **given)


def policies_of(env: rollouts.MultiAgentVectorEnv) -> dict[str, TorchPolicy]:
    torch.manual_seed(0)
    return {
        name: TorchPolicy(Agent(group), group.single_action_space, seed=5 + index)
        for index, (name, group) in enumerate(env.groups.items())
    }


def collected(case: str, num_envs: int, times: int = 3, **options: Any) -> list[Batches]:
    with make(case, num_envs, **options) as env:
        collector = Collector(env, policies_of(env), STEPS, engine="native")
        return [collector.collect() for _ in range(times)]


def by_group(env: rollouts.MultiAgentVectorEnv, arrays: Any) -> dict[str, Any]:
    return arrays if isinstance(arrays, dict) else {next(iter(env.groups)): arrays}


@pytest.mark.parametrize("case", CASES)
def test_a_rollout_is_what_its_actions_do_step_by_step(case: str) -> None:
    """Replayed through `step` of an equal pool; values and densities are torch's."""
    with make(case, 5, num_threads=2) as env, make(case, 5) as replayed:
        policies = policies_of(env)
        collector = Collector(env, policies, STEPS)
        assert collector.engine == "native", collector.why_not_native
        obs = by_group(env, replayed.reset()[0])
        num_ends = 0
        for _ in range(3):
            batches = collector.collect()
            for t in range(STEPS):
                actions = {}
                for name, batch in batches.items():
                    agents = env.groups[name].num_agents
                    np.testing.assert_array_equal(batch.obs[t].reshape(obs[name].shape), obs[name])
                    action = batch.action[t].reshape(5, agents, *batch.action.shape[2:])
                    space = env.groups[name].single_action_space
                    is_box = isinstance(space, gymnasium.spaces.Box)
                    actions[name] = action.clip(space.low, space.high) if is_box else action
                *five, info = replayed.step(actions)
                obs, reward, terminated, truncated = (by_group(env, each) for each in five)
                active, final = by_group(env, info["active"]), by_group(env, info["final_obs"])
                for name, batch in batches.items():
                    is_active = active[name].ravel()
                    np.testing.assert_array_equal(batch.extras["active"][t], is_active)
                    expected = reward[name].ravel().astype(np.float32)
                    np.testing.assert_array_equal(batch.reward[t], expected)
                    np.testing.assert_array_equal(batch.terminated[t], terminated[name].ravel())
                    over = np.repeat(info["ended"], env.groups[name].num_agents)
                    cut = truncated[name].ravel()
                    np.testing.assert_array_equal(batch.truncated[t], cut | (over & ~is_active))
                    rows = final[name].reshape(len(cut), -1)
                    bootstrap = np.where(cut, policies[name].value(rows), 0)
                    np.testing.assert_allclose(batch.bootstrap_value[t], bootstrap, atol=1e-5)
                    num_ends += int(cut.sum() + terminated[name].sum())
            for name, batch in batches.items():
                np.testing.assert_array_equal(batch.last_obs.reshape(obs[name].shape), obs[name])
                assert_is_of(policies[name], batch)
        assert num_ends > 0


def assert_is_of(policy: TorchPolicy, batch: RolloutBatch) -> None:
    flat = torch.from_numpy(batch.obs.reshape(-1, batch.obs.shape[-1]).copy())
    actions = torch.from_numpy(batch.action.reshape(-1, *batch.action.shape[2:]).copy())
    with torch.no_grad():
        *params, value = policy.module(flat)
        log_prob, _ = policy.head.evaluate(params, actions)
    np.testing.assert_allclose(batch.value.ravel(), value.numpy().ravel(), atol=2e-5)
    np.testing.assert_allclose(batch.log_prob.ravel(), log_prob.numpy(), atol=2e-5)
    np.testing.assert_allclose(batch.last_value, policy.value(batch.last_obs), atol=2e-5)


@pytest.mark.parametrize("case", ["tag", "world"])
def test_the_same_bits_for_every_number_of_threads(case: str) -> None:
    expected = collected(case, 37, num_threads=1)
    for num_threads in (2, 4):
        found = collected(case, 37, num_threads=num_threads)
        for one, other in zip(found, expected, strict=True):
            for name, batch in one.items():
                for field in FIELDS:
                    left, right = getattr(batch, field), getattr(other[name], field)
                    np.testing.assert_array_equal(left, right, field)


def test_agents_of_all_groups_draw_for_themselves() -> None:
    """One policy for two groups, which see the same: no two agents share their noise."""
    with make("grid", 64) as env:
        space = env.groups["tagger"].single_action_space
        module = Agent(env.groups["tagger"])
        nn.init.zeros_(module.actor.weight)
        nn.init.zeros_(module.actor.bias)
        collector = Collector(env, TorchPolicy(module, space), STEPS, engine="native")
        batches = collector.collect()
    agents = [
        batch.action.reshape(STEPS, 64, -1)[:, :, agent].ravel()
        for batch in batches.values()
        for agent in range(batch.action.shape[1] // 64)
    ]
    for i, one in enumerate(agents):
        # uniform over five actions, and equal by chance alone
        counts = np.bincount(one, minlength=5)
        assert ((counts - 256) ** 2 / 256).sum() < 25
        for other in agents[:i]:
            assert 0.15 < (one == other).mean() < 0.25


def test_what_an_agent_remembers_begins_with_its_episode() -> None:
    with make("tag", 4) as env:
        torch.manual_seed(1)
        size = env.groups["runner"].single_observation_space.shape
        assert size is not None
        module = Memory(size[0])
        space = env.groups["runner"].single_action_space
        policies = {
            "tagger": policies_of(env)["tagger"],
            "runner": RecurrentTorchPolicy(module, space, seed=3),
        }
        collector = Collector(env, policies, STEPS, engine="native")
        hidden = module.gru.initial_state()[0].expand(24, -1)
        begin = np.ones(24, np.bool_)
        for _ in range(3):
            batch = collector.collect()["runner"]
            for t in range(STEPS):
                start = module.gru.initial_state()[0].expand(24, -1)
                hidden = torch.where(torch.from_numpy(begin)[:, None], start, hidden)
                if t == 0:
                    expected = np.where(begin[:, None], start.detach(), batch.policy_state[0])
                    np.testing.assert_allclose(hidden.detach(), expected, atol=1e-5)
                with torch.no_grad():
                    _, value, (hidden,) = module(torch.from_numpy(batch.obs[t].copy()), (hidden,))
                np.testing.assert_allclose(batch.value[t], value.ravel(), atol=1e-5)
                begin = batch.terminated[t] | batch.truncated[t]
        assert not batch.extras["active"].all()


class Memory(nn.Module):
    """A GRU for observations of any size and actions of 11 x 11."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.first, self.gru, self.actor = nn.Linear(size, 4), Gru(), nn.Linear(3, 22)

    def initial_state(self) -> Any:
        return self.gru.initial_state()

    def forward(self, obs: Tensor, state: Any) -> tuple[Tensor, Tensor, Any]:
        logits, value, state = self.gru(torch.tanh(self.first(obs)), state)
        return self.actor(torch.cat([logits, value.reshape(-1, 1)], 1)), value, state


def test_weights_are_followed_and_one_group_may_be_frozen() -> None:
    with make("tag", 3) as env:
        policies = policies_of(env)
        collector = Collector(env, policies, STEPS)
        collector.collect()
        with torch.no_grad():
            policies["runner"].module.critic.bias.fill_(50.0)
            policies["runner"].module.critic.weight.zero_()
        policies["runner"].policy_version = 7
        batches = collector.collect()
    assert (batches["runner"].value == 50.0).all() and (batches["runner"].policy_version == 7).all()
    assert (batches["tagger"].value != 50.0).all() and (batches["tagger"].policy_version == 0).all()


def test_torch_acts_for_all_where_native_code_cannot_act_for_one() -> None:
    class Odd(TorchPolicy):
        pass

    with make("tag", 3) as env:
        policies = policies_of(env)
        runner = env.groups["runner"]
        policies["runner"] = Odd(Agent(runner), runner.single_action_space)
        collector = Collector(env, policies, STEPS)
        assert collector.engine == "torch"
        assert collector.why_not_native.startswith("group 'runner': the policy is a Odd")
        collector.collect()
        with pytest.raises(SpecError, match="engine='native' is not possible: group 'runner'"):
            Collector(env, policies, STEPS, engine="native")
        with pytest.raises(SpecError, match="engine is 'fast'"):
            Collector(env, policies, STEPS, engine="fast")  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", ["native", "torch", "device"])
def test_each_agent_has_one_episode_in_each_of_its_environment(engine: Any) -> None:
    device = {"device": "cpu-emulation"} if engine == "device" else {}
    with make("tag", 4, **device) as env:
        policies: Any = policies_of(env)
        by = "native" if device else engine
        batches = Collector(env, policies, 40, keep_final_obs=True, engine=by).collect()
        taggers, runners = (batches[name].episodes() for name in ("tagger", "runner"))
        in_row = batches["runner"].terminated | batches["runner"].truncated
    # two taggers stay to the end of their environment's episode
    of_env = np.bincount(np.asarray(taggers.env_id)[np.asarray(taggers.env_id) % 2 == 0] // 2)
    of_agent = np.bincount(np.asarray(runners.env_id), minlength=24).reshape(4, 6)
    # some of six runners have left the episode that goes on
    more = of_agent - of_env[:, None]
    assert ((more == 0) | (more == 1)).all()
    assert len(runners.returns) == len(runners.final_obs) == of_agent.sum() < in_row.sum()
    assert (np.asarray(runners.lengths) < 9).any() and (np.asarray(taggers.lengths) == 9).any()


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_an_environment_that_failed_has_no_value_to_go_on_from(engine: Any) -> None:
    # in the second world a tag is worth more than a number holds
    rewards = np.array([1.0, 3.0e38])
    options = {"tag_reward_for_tagger": rewards, "runner_exits_game_after_tagged": False}
    with make("tag", 2, on_env_error="reset", **options) as env:
        collector = Collector(env, policies_of(env), STEPS, engine=engine)
        batch = collector.collect()["tagger"]
        failed = batch.truncated[:, 2:] & (np.cumsum(batch.truncated[:, 2:], axis=0) < 9)
        assert failed.sum() > 4
        episodes = batch.episodes()
        assert (episodes.lengths[episodes.env_id >= 2] < 9).any()
        early = batch.truncated & (batch.episode_length < 9)
        assert early[:, 2:].any() and not early[:, :2].any()
        assert not batch.bootstrap_value[early].any()
    with make("tag", 2, **options) as env:
        collector = Collector(env, policies_of(env), STEPS, engine=engine)
        with pytest.raises(EnvError, match="the reward of agent tagger"):
            for _ in range(5):
                collector.collect()


def test_bad_weights_and_closed_pools_are_told_by_group_and_agent() -> None:
    with make("tag", 3) as env:
        policies = policies_of(env)
        collector = Collector(env, policies, STEPS)
        with torch.no_grad():
            policies["runner"].module.critic.bias.fill_(float("nan"))
        with pytest.raises(SpecError, match=r"critic\.bias"):
            collector.collect()
        with torch.no_grad():
            policies["runner"].module.critic.bias.fill_(3e38)
            policies["runner"].module.critic.weight.fill_(3e38)
        with pytest.raises(SpecError, match=r"value of -?inf for agent runner_\d of env_id \d"):
            collector.collect()
        env.close()
        with pytest.raises(ClosedError):
            collector.collect()


@pytest.mark.parametrize("case", ["tag", "continuous"])
def test_rollouts_that_were_begun_ahead_are_of_the_weights_before(case: str) -> None:
    def collect(prefetch: int, num_learned: int) -> tuple[list[Any], list[int]]:
        """Rollouts, whose policies learn after the first `num_learned` of them."""
        with make(case, 3) as env:
            policies = policies_of(env)
            collector = Collector(env, policies, STEPS, engine="native", prefetch=prefetch)
            found, versions = [], []
            for index in range(3):
                found.append(collector.collect())
                versions.append(int(found[-1].policy_version.max()))
                if index < num_learned:
                    for policy in policies.values():
                        policy.policy_version += 1
                        with torch.no_grad():
                            for weights in policy.module.parameters():
                                weights.add_(0.05)
            collector.close()
            return found, versions

    ahead, versions = collect(1, 1)
    assert versions == [0, 0, 1]
    # the first two are of the first weights
    for mine, theirs in zip(ahead[:2], collect(0, 0)[0][:2], strict=True):
        for name, batch in theirs.items():
            for field in FIELDS:
                np.testing.assert_array_equal(
                    getattr(mine[name], field), getattr(batch, field), f"{name} {field}"
                )


def test_agents_that_torch_computes_are_not_begun_ahead() -> None:
    with make("spread", 2) as env, pytest.raises(SpecError, match=r"prefetch=1 needs the native"):
        Collector(env, policies_of(env), STEPS, engine="torch", prefetch=1)


def test_agents_are_collected_anew_after_a_reset() -> None:
    with make("spread", 2) as env:
        collector = Collector(env, policies_of(env), 3)
        collector.collect()
        collector.reset()
        (batch,) = collector.collect().values()
        assert (batch.episode_length[0] == 1).all()
