# SPDX-License-Identifier: Apache-2.0
"""`mask_actions`: policies choose among what `info["action_mask"]` allows."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import rollouts
from rollouts.policies.native import Head
from rollouts.policy import mask_logits
from rollouts.workers import CollectOptions

T, N = 40, 70  # not in whole groups of native columns


class Network(nn.Module):
    """Reads one number; says logits and a value."""

    def __init__(self, inputs: int = 1, outputs: int = 6) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.body = nn.Sequential(nn.Linear(inputs, 16), nn.Tanh())
        self.actor, self.critic = nn.Linear(16, outputs), nn.Linear(16, 1)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = self.body(obs.reshape(len(obs), -1).float() / 100)
        return self.actor(features) * 3, self.critic(features)[:, 0]


class Plain(nn.Module):
    """The same without what native code cannot read of a Discrete observation."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.body = nn.Sequential(nn.Linear(1, 16), nn.Tanh())
        self.actor, self.critic = nn.Linear(16, 6), nn.Linear(16, 1)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = self.body(obs)
        return self.actor(features) * 3, self.critic(features)[:, 0]


def taxi(num_envs: int = N, **options: Any) -> rollouts.VectorEnv:
    given = {"autoreset_mode": "same_step", "max_episode_steps": 15, "seed": 5, **options}
    return rollouts.make_vec("Taxi-v3", num_envs, **given)


def masks_of(obs: Any) -> Any:
    """Gymnasium's own, of Taxi's states."""
    reference: Any = gymnasium.make("Taxi-v3").unwrapped
    return np.array([reference.action_mask(int(state)) for state in np.ravel(obs)]).reshape(
        (*np.shape(obs), 6)
    )


def check(batch: rollouts.RolloutBatch, module: nn.Module) -> None:
    """The rollout's masks are Gymnasium's, actions are among them, log_prob is torch's."""
    mask = batch.extras["action_mask"]
    assert mask.dtype == np.bool_
    np.testing.assert_array_equal(mask, masks_of(batch.obs))
    assert np.take_along_axis(mask, batch.action[..., None].astype(int), -1).all()
    # random actions would be illegal often
    assert mask.mean() < 0.8
    with torch.inference_mode():
        obs = torch.from_numpy(batch.obs).flatten(0, 1)
        logits, value = module(obs[:, None].float() if isinstance(module, Plain) else obs)
        masked = logits.masked_fill(~torch.from_numpy(mask).flatten(0, 1), -torch.inf)
        expected = torch.distributions.Categorical(logits=masked)
        log_prob = expected.log_prob(torch.from_numpy(batch.action).flatten())
    # native code adds up in another order than torch
    np.testing.assert_allclose(batch.log_prob.ravel(), log_prob, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(batch.value.ravel(), value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"batch_size": 30}], ids=["sync", "async"])
def test_torch_chooses_among_what_is_allowed(options: dict[str, Any]) -> None:
    module = Network()
    with taxi(**options) as env:
        policy = rollouts.TorchPolicy(module, env.single_action_space, seed=1)
        collector = rollouts.Collector(env, policy, T, mask_actions=True, engine="torch")
        for _ in range(3):
            batch = collector.collect()
            # episodes end within, also by the time limit
            assert batch.terminated.any() or batch.truncated.any()
            check(batch, module)


@pytest.mark.parametrize("num_threads", [1, 2])
def test_native_code_chooses_among_what_is_allowed(num_threads: int) -> None:
    module = Plain()
    batches = []
    for _ in range(2):
        with taxi(num_threads=num_threads) as env:
            policy = rollouts.NativePolicy.from_torch(module, env.single_action_space, 1, seed=1)
            collector = rollouts.Collector(
                env, policy, T, mask_actions=True, outputs=["entropy", "logits"]
            )
            assert collector.engine == "native", collector.why_not_native
            batches.append([collector.collect() for _ in range(3)])
    for batch, again in zip(*batches, strict=True):
        check(batch, module)
        np.testing.assert_array_equal(batch.action, again.action)
        mask = batch.extras["action_mask"]
        logits = torch.from_numpy(batch.extras["logits"])
        assert torch.isneginf(logits[~torch.from_numpy(mask)]).all()
        entropy = torch.distributions.Categorical(logits=logits).entropy()
        np.testing.assert_allclose(batch.extras["entropy"], entropy, rtol=1e-4, atol=1e-5)


def test_prefetched_rollouts_go_on_from_their_masks() -> None:
    module = Plain()
    with taxi() as env:
        policy = rollouts.NativePolicy.from_torch(module, env.single_action_space, 1, seed=1)
        collector = rollouts.Collector(env, policy, T, mask_actions=True, prefetch=1)
        for _ in range(4):
            check(collector.collect(), module)
        collector.close()


def test_native_and_torch_engines_draw_from_the_same_probabilities() -> None:
    counts = []
    module = Plain()
    obs = np.full((20_000, 1), 33.0, np.float32)
    mask = np.tile([True, False, True, True, False, True], (len(obs), 1))
    space = spaces.Discrete(6)
    native = rollouts.NativePolicy.from_torch(module, space, 1, seed=2)
    for policy in (native, rollouts.TorchPolicy(module, space, seed=2)):
        output = policy.act(obs, mask)
        counts.append(np.bincount(output.action, minlength=6) / len(obs))
    with torch.inference_mode():
        logits = mask_logits(module(torch.from_numpy(obs[:1]))[0], torch.from_numpy(mask[:1]))
    for shares in counts:
        # five standard deviations of a share of 1/2
        np.testing.assert_allclose(shares, logits.softmax(-1)[0], atol=5 * 0.5 / len(obs) ** 0.5)
        assert shares[[1, 4]].tolist() == [0, 0]


def test_actions_of_several_numbers_have_masks_side_by_side() -> None:
    space = spaces.MultiDiscrete([3, 2], dtype=np.int32)
    module = Network(4, 5)
    obs = np.random.default_rng(0).normal(size=(500, 4)).astype(np.float32) * 100
    mask = np.tile([True, False, True, False, True], (len(obs), 1))
    output = rollouts.TorchPolicy(module, space, seed=2).act(obs, mask)
    assert set(output.action[:, 0].tolist()) == {0, 2} and set(output.action[:, 1].tolist()) == {1}
    mask[7, 3:] = False
    with pytest.raises(rollouts.SpecError, match="action_mask allows no action"):
        rollouts.TorchPolicy(module, space).act(obs, mask)


class Masked(gymnasium.Env[Any, Any]):
    """An environment in Python whose step allows but one action of three."""

    observation_space = spaces.Box(0, 3, (1,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, says: bool = True) -> None:
        self.says = says

    def reset(self, **_: Any) -> Any:
        self.t = 0
        return self.seen()

    def step(self, action: Any) -> Any:
        assert action == self.t % 3, "an action that is not allowed"
        self.t += 1
        obs, info = self.seen()
        return obs, 1.0, self.t == 7, False, info

    def seen(self) -> Any:
        obs = np.array([self.t % 3], np.float32)
        return obs, {"action_mask": np.eye(3, dtype=np.int8)[self.t % 3]} if self.says else {}


def test_environments_in_python_tell_masks_too() -> None:
    with rollouts.from_env_fns([Masked] * 3, autoreset_mode="same_step", num_processes=1) as env:
        policy = rollouts.TorchPolicy(Network(1, 3), env.single_action_space)
        batch = rollouts.Collector(env, policy, 20, mask_actions=True).collect()
    assert (batch.extras["action_mask"].sum(-1) == 1).all()
    np.testing.assert_allclose(batch.log_prob, 0, atol=1e-6)
    assert batch.episodes().lengths.tolist() == [7] * 6


def test_workers_and_replay_have_masks() -> None:
    collect = CollectOptions(mask_actions=True, keep_final_obs=True)
    with rollouts.RolloutCoordinator(
        "Taxi-v3",
        lambda spec: rollouts.TorchPolicy(Network(), spec.single_action_space, seed=spec.seed),
        num_workers=0,
        num_envs_per_worker=4,
        rollout_length=16,
        collect=collect,
    ) as coordinator:
        coordinator.publish_weights(rollouts.TorchPolicy(Network(), spaces.Discrete(6)).weights())
        batch = coordinator.get()
    np.testing.assert_array_equal(batch.extras["action_mask"], masks_of(batch.obs))

    from rollouts.replay import ReplayBuffer, Sequences, TableConfig, Transitions

    buffer = ReplayBuffer(
        spaces.Discrete(500),
        spaces.Discrete(6),
        [
            TableConfig(name="steps", items=Transitions(0.99), max_size=1000),
            TableConfig(name="rows", items=Sequences(8), max_size=1000),
        ],
        extras={"action_mask": np.zeros(6, np.bool_)},
    )
    buffer.add_batch(batch)
    steps, rows = (buffer.sample(32, table=table) for table in ("steps", "rows"))
    np.testing.assert_array_equal(steps.extras["action_mask"], masks_of(steps.obs))
    valid = rows.valid
    np.testing.assert_array_equal(rows.extras["action_mask"][valid], masks_of(rows.obs[:-1])[valid])


def test_what_cannot_be_masked_is_named() -> None:
    with taxi(4) as env, rollouts.make_vec("CartPole-v1", 4, autoreset_mode="same_step") as other:

        class Own:
            policy_version = 0

            def act(self, obs: Any) -> Any: ...

        good = rollouts.TorchPolicy(Network(), env.single_action_space)
        with pytest.raises(rollouts.SpecError, match=r"needs a policy whose act takes action_mask"):
            rollouts.Collector(env, Own(), 4, mask_actions=True)  # type: ignore[arg-type]
        with pytest.raises(rollouts.SpecError, match="the environments report nothing"):
            rollouts.Collector(other, good, 4, mask_actions=True)
        with pytest.raises(rollouts.SpecError, match="report no action_mask, but nothing"):
            other.action_masks()
        with pytest.raises(rollouts.ProtocolError, match="nothing was received yet"):
            env.action_masks()
        greedy = rollouts.NativePolicy.from_torch(
            Plain(),
            env.single_action_space,
            1,
            head=Head("epsilon_greedy"),
        )
        with pytest.raises(rollouts.SpecError, match="categorical"):
            rollouts.Collector(env, greedy, 4, mask_actions=True).collect()
    with rollouts.make_vec("Pendulum-v1", 2, autoreset_mode="same_step") as env:
        policy = rollouts.TorchPolicy(Network(), env.single_action_space)
        with pytest.raises(rollouts.SpecError, match="is for Discrete and MultiDiscrete"):
            rollouts.Collector(env, policy, 4, mask_actions=True)
    obs, mask = np.zeros((2, 1), np.float32), np.zeros((2, 6), np.bool_)
    for made in (
        rollouts.TorchPolicy(Network(), spaces.Discrete(6)),
        rollouts.NativePolicy.from_torch(Plain(), spaces.Discrete(6), 1),
    ):
        with pytest.raises(rollouts.SpecError, match="action_mask allows no action"):
            made.act(obs, mask)
        with pytest.raises(rollouts.SpecError, match="action_mask has shape"):
            made.act(obs, np.ones((2, 5), np.bool_))
    silent = [lambda: Masked(says=False)]
    with rollouts.from_env_fns(silent, autoreset_mode="same_step", num_processes=1) as env:
        policy = rollouts.TorchPolicy(Network(1, 3), env.single_action_space)
        with pytest.raises(rollouts.SpecError, match=r'needs info\["action_mask"\] of every'):
            rollouts.Collector(env, policy, 4, mask_actions=True).collect()


@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_masks_of_a_batch_are_those_of_its_observations(mode: str) -> None:
    with taxi(8, autoreset_mode=mode) as env:
        obs, _ = env.reset()
        env.action_space.seed(1)
        for _ in range(60):
            np.testing.assert_array_equal(env.action_masks(), masks_of(obs))
            obs, *_ = env.step(env.action_space.sample())
        env.send(env.action_space.sample())
        step = env.recv_batch()
        np.testing.assert_array_equal(env.action_masks(), masks_of(step.obs))


def test_a_policy_with_memory_takes_masks() -> None:
    class Memory(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.actor = nn.GRUCell(1, 8), nn.Linear(8, 6)

        def initial_state(self) -> tuple[torch.Tensor, ...]:
            return (torch.zeros(8),)

        def forward(self, obs: Any, state: Any) -> Any:
            hidden = self.cell(obs.reshape(-1, 1).float() / 500, state[0])
            return self.actor(hidden), hidden[:, 0], (hidden,)

    with taxi(5) as env:
        policy = rollouts.RecurrentTorchPolicy(Memory(), env.single_action_space)
        batch = rollouts.Collector(env, policy, T, mask_actions=True, engine="torch").collect()
    mask = batch.extras["action_mask"]
    np.testing.assert_array_equal(mask, masks_of(batch.obs))
    assert np.take_along_axis(mask, batch.action[..., None].astype(int), -1).all()
