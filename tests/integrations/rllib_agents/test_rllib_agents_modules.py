# SPDX-License-Identifier: Apache-2.0
"""Modules that act for agents in RolloutsMultiAgentEnvRunner, learners, and what is refused."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

pytest.importorskip(
    "ray.tune", exc_type=ImportError, reason="RLlib is not installed: pip install 'rollouts[rllib]'"
)
pytest.importorskip("pettingzoo", reason="PettingZoo is not installed: pip install pettingzoo")

import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.training_data import TrainingData
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.rllib.evaluation.postprocessing import Postprocessing
from rllib_agents_cases import (
    LEAVING,
    Recorded,
    assert_same,
    by_group,
    by_hand,
    config_of,
    runner_of,
    stitched,
)
from rollouts.integrations import rllib

from rollouts.errors import SpecError

SPREAD = "simple_spread_v3"


def shared(agent: str, *args: Any, **kwargs: Any) -> str:
    """One module for all."""
    return "shared"


class Counting(torch.nn.Module):
    """Counts the forward passes of modules, and their rows."""

    def __init__(self, runner: Any) -> None:
        """Hooks into every module of a runner."""
        super().__init__()
        self.rows: dict[str, list[int]] = {}
        for module_id, module in runner.module.items():
            rows = self.rows.setdefault(module_id, [])
            module.encoder.register_forward_hook(
                lambda _, args, __, rows=rows: rows.append(len(args[0][Columns.OBS]))
            )


def test_each_module_is_called_once_per_step_for_all_its_agents() -> None:
    runner = runner_of("simple_world_comm_v3", 5, mapping=by_group)
    counting = Counting(runner)
    chunks = runner.sample(num_timesteps=5 * 30)
    assert counting.rows == {"leadadversary": [5] * 30, "adversary": [15] * 30, "agent": [10] * 30}
    for chunk in chunks:
        for agent, episode in chunk.agent_episodes.items():
            assert episode.module_id == chunk.module_for(agent) == agent.partition("_")[0]


def test_agents_that_left_are_not_asked() -> None:
    env_id, options = LEAVING
    runner = runner_of(env_id, 3, **options)
    counting = Counting(runner)
    chunks = runner.sample(num_timesteps=3 * 40)
    for name, rows in counting.rows.items():
        agents = [a for a in runner.env.pool.agents if a.startswith(name)]
        steps = sum(len(c.agent_episodes[a]) for c in chunks for a in agents)
        assert sum(rows) == steps and len(rows) == 40
    assert min(counting.rows["runner"]) < 3 * 5


def test_modules_are_mapped_anew_in_every_episode_and_keep_their_agents() -> None:
    seen: list[tuple[str, str]] = []

    def mapping(agent: str, episode: Any, **kwargs: Any) -> str:
        seen.append((episode.id_, agent))
        # another module for the first agent in every other episode
        return "a" if agent == "agent_0" and int(episode.id_, 16) % 2 else "b"

    config = config_of(SPREAD, 4, policies=("a", "b"), mapping=mapping, max_episode_steps=9)
    runner = rllib.RolloutsMultiAgentEnvRunner(config=config)
    seen.clear()
    recorded = Recorded(runner)
    chunks = [e for steps in (5, 17, 20) for e in runner.sample(num_timesteps=4 * steps)]
    assert max(Counter(seen).values()) == 1
    of_first = {chunk.id_: chunk.agent_episodes["agent_0"].module_id for chunk in chunks}
    assert set(of_first.values()) == {"a", "b"}
    for chunk in chunks:
        modules = {agent: each.module_id for agent, each in chunk.agent_episodes.items()}
        expected = {agent: mapping(agent, chunk) for agent in modules}
        assert modules == expected
        for agent, each in chunk.agent_episodes.items():
            # the module that acted is the one that the episode names
            module = runner.module[modules[agent]]
            obs = torch.from_numpy(each.get_observations(slice(0, len(each))))
            with torch.no_grad():
                logits = module.forward_exploration({Columns.OBS: obs})["action_dist_inputs"]
            got = each.get_extra_model_outputs("action_dist_inputs")
            np.testing.assert_allclose(got, logits, rtol=1e-4, atol=1e-5)
            chosen = torch.from_numpy(each.get_actions()).long()[:, None]
            logp = logits.log_softmax(-1).gather(-1, chosen)[:, 0]
            np.testing.assert_allclose(
                each.get_extra_model_outputs("action_logp"), logp, rtol=1e-4, atol=1e-5
            )
    assert_same(stitched(chunks), by_hand(SPREAD, 4, recorded.actions, max_episode_steps=9))


def learner_of(config: PPOConfig, runner: Any) -> Any:
    """PPO's learner with a runner's modules."""
    return config.build_learner(spaces=runner.get_spaces())


def test_rllib_s_learner_computes_advantages_of_every_agent() -> None:
    env_id, options = LEAVING
    config = config_of(env_id, 3, **options).training(gamma=0.9, lambda_=0.8)
    runner = rllib.RolloutsMultiAgentEnvRunner(config=config)
    learner = learner_of(config, runner)
    runner.sample(num_timesteps=3 * 20)
    chunks = runner.sample(num_timesteps=3 * 25)
    expected: dict[str, list[np.ndarray[Any, Any]]] = {"tagger": [], "runner": []}
    kinds = set()
    for chunk in chunks:
        # the order in which RLlib goes through agents is that of a set
        for each in [chunk.agent_episodes[agent] for agent in chunk.agent_ids]:
            obs = torch.from_numpy(each.get_observations(slice(0, len(each) + 1)))
            with torch.no_grad():
                values = learner.module[each.module_id].compute_values({Columns.OBS: obs}).numpy()
            kinds.add((each.is_terminated, each.is_truncated))
            expected[each.module_id].append(_targets(each, values, gamma=0.9, lambda_=0.8))
    assert kinds == {(False, False), (True, False), (False, True)}
    batch = learner._learner_connector(
        rl_module=learner.module, batch={}, episodes=chunks, shared_data={}, metrics=None
    )
    for module_id, parts in expected.items():
        # RLlib appends a row to each, for the value of the last observation
        targets = batch[module_id][Postprocessing.VALUE_TARGETS].numpy()
        real = batch[module_id][Columns.LOSS_MASK].numpy().astype(bool)
        np.testing.assert_allclose(targets[real], np.concatenate(parts), rtol=1e-4, atol=1e-4)


def _targets(episode: Any, values: Any, *, gamma: float, lambda_: float) -> Any:
    """Lambda returns of one agent's chunk, by their definition."""
    rewards = episode.get_rewards()
    next_values = np.append(values[1:-1], 0.0 if episode.is_terminated else values[-1])
    deltas = rewards + gamma * next_values - values[:-1]
    targets, advantage = np.zeros(len(rewards)), 0.0
    for t in reversed(range(len(rewards))):
        advantage = deltas[t] + gamma * lambda_ * advantage
        targets[t] = advantage + values[t]
    return targets


def test_only_the_policies_to_train_are_trained() -> None:
    env_id, options = LEAVING
    config = config_of(env_id, 3, **options).multi_agent(policies_to_train=["runner"])
    config.training(minibatch_size=64, num_epochs=1, lr=0.01)
    runner = rllib.RolloutsMultiAgentEnvRunner(config=config)
    learner = learner_of(config, runner)
    before = {
        name: {key: value.copy() for key, value in state.items()}
        for name, state in learner.module.get_state().items()
    }
    episodes = runner.sample(num_timesteps=3 * 30)
    timesteps = {"num_env_steps_sampled_lifetime": 90}
    learner.update(training_data=TrainingData(episodes=episodes), timesteps=timesteps)
    after = learner.module.get_state()
    changed = {
        name: any((before[name][key] != value).any() for key, value in state.items())
        for name, state in after.items()
    }
    assert changed == {"runner": True, "tagger": False}
    # the runner acts with the weights that it is given
    runner.set_state({"rl_module": after, "weights_seq_no": 5})
    chunk = runner.sample(num_timesteps=3)[0].agent_episodes["runner_0"]
    assert chunk.get_extra_model_outputs("weights_seq_no")[-1] == 5
    state = runner.get_state()
    assert state["weights_seq_no"] == 5
    for name, weights in state["rl_module"].items():
        for key, value in weights.items():
            np.testing.assert_array_equal(value, after[name][key])


def test_random_actions_need_no_module_and_a_reset_begins_episodes() -> None:
    runner = runner_of(*("TagGridWorld-v0", 3), num_taggers=2)
    runner.sample(num_timesteps=12)
    chunks = runner.sample(num_timesteps=3 * 40, random_actions=True)
    actions = np.concatenate([c.agent_episodes["tagger_0"].get_actions() for c in chunks])
    assert set(actions) == set(range(5))
    assert all(
        "action_logp" not in c.agent_episodes["runner_0"].extra_model_outputs for c in chunks
    )
    assert all(c.env_t_started == 0 for c in runner.sample(num_timesteps=9, force_reset=True))


def test_exploiting_takes_the_most_probable_action() -> None:
    runner = runner_of(SPREAD, 3)
    for chunk in runner.sample(num_timesteps=60, explore=False):
        for each in chunk.agent_episodes.values():
            logits = each.get_extra_model_outputs("action_dist_inputs")
            np.testing.assert_array_equal(logits.argmax(-1), each.get_actions())


def test_one_agent_is_refused_with_the_runner_to_take() -> None:
    config = config_of("CartPole-v1", 2, policies=("p",), mapping=lambda *_, **__: "p")
    with pytest.raises(SpecError, match="CartPole-v1 has one agent: use RolloutsEnvRunner"):
        rllib.RolloutsMultiAgentEnvRunner(config=config)
    config = PPOConfig().environment(SPREAD).env_runners(num_env_runners=0)
    with pytest.raises(ValueError, match="not multi-agent"):
        rllib.RolloutsMultiAgentEnvRunner(config=config)


def test_several_agents_are_refused_by_runners_for_one() -> None:
    with pytest.raises(SpecError, match="use RolloutsMultiAgentEnvRunner"):
        rllib.RolloutsEnvRunner(config=config_of(SPREAD, 2))
    config = (
        PPOConfig()
        .environment(rllib.register(SPREAD))
        .env_runners(num_env_runners=0, gym_env_vectorize_mode="vector_entry_point")
    )
    with pytest.raises(SpecError, match="env_runner_cls=RolloutsMultiAgentEnvRunner"):
        SingleAgentEnvRunner(config=config)
    config.multi_agent(policies={"p"}, policy_mapping_fn=lambda *_, **__: "p")
    config.env_runners(gym_env_vectorize_mode="sync")
    with pytest.raises(Exception, match="env_runner_cls=RolloutsMultiAgentEnvRunner"):
        MultiAgentEnvRunner(config=config)


def test_an_unknown_module_is_named() -> None:
    config = config_of(SPREAD, 2, policies=("p", "q"), mapping=lambda *_, **__: "r")
    with pytest.raises(
        SpecError, match=r"returned 'r' for agent 'agent_0', expected one of '[pq]'"
    ):
        rllib.RolloutsMultiAgentEnvRunner(config=config)


def test_spaces_that_differ_are_refused() -> None:
    config = config_of("simple_tag_v3", 2, policies=("p",), mapping=lambda *_, **__: "p")
    with pytest.raises(ValueError, match="different observation spaces"):
        rllib.RolloutsMultiAgentEnvRunner(config=config)
    pool_of = runner_of("simple_tag_v3", 1).env
    spec = RLModuleSpec(
        observation_space=pool_of.single_observation_spaces["agent_0"],
        action_space=pool_of.single_action_spaces["agent_0"],
    )
    config.rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs={"p": spec}))
    with pytest.raises(SpecError, match=r"module 'p''s observation space is .*agent 'adversary_0'"):
        rllib.RolloutsMultiAgentEnvRunner(config=config)
    config = config_of(SPREAD, 2)
    config.environment(observation_space=pool_of.single_observation_space)
    with pytest.raises(SpecError, match=r"the observation space .*leave observation_space out"):
        rllib.RolloutsMultiAgentEnvRunner(config=config)


def test_options_of_the_pool_are_checked_as_for_one_agent() -> None:
    with pytest.raises(SpecError, match="next-step autoreset for granted"):
        rllib.RolloutsMultiAgentEnvRunner(config=config_of(SPREAD, 2, autoreset_mode="disabled"))
    with pytest.raises(SpecError, match="batch_size is 1, expected none"):
        rllib.RolloutsMultiAgentEnvRunner(config=config_of(SPREAD, 2, batch_size=1))
    name = rllib.register(SPREAD, "spread-of-five", N=5)
    config = config_of(name, 2, policies=("shared",), mapping=shared)
    runner = rllib.RolloutsMultiAgentEnvRunner(config=config)
    assert len(runner.sample(num_timesteps=4)[0].agent_ids) == 5
