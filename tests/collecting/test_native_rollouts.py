# SPDX-License-Identifier: Apache-2.0
"""Rollouts that the pool's threads collect: what they hold, how they end, who computes them."""

from __future__ import annotations

import signal
import threading
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn

import rollouts
from rollouts.batch import RolloutBatch
from rollouts.errors import ClosedError, EnvError, ProtocolError, SpecError
from rollouts.policies.native import Head, NativePolicy
from rollouts.policy import PolicyOutput, TorchPolicy

HANG_S = 60.0
FIELDS = ("obs", "action", "log_prob", "value", "reward", "terminated", "truncated",
          "bootstrap_value", "last_value", "last_obs", "episode_return", "episode_length",
          "final_obs", "env_id", "policy_version")  # fmt: skip
# light and heavy, discrete and Box, observations of three dtypes, ends of both kinds
IDS = ["CartPole-v1", "Pendulum-v1", "Acrobot-v1", "Hopper-v5", "HalfCheetah-v5", "CliffWalking-v1"]


class Agent(nn.Module):
    """Actor and critic with one trunk."""

    def __init__(self, env: rollouts.VectorEnv, size: int = 24) -> None:
        super().__init__()
        torch.manual_seed(0)
        space = env.single_action_space
        self.is_box = isinstance(space, gymnasium.spaces.Box)
        outputs = int(np.prod(space.shape or ())) if self.is_box else int(getattr(space, "n", 0))
        inputs = int(np.prod(env.single_observation_space.shape or (1,)))
        self.inputs = inputs
        self.trunk = nn.Sequential(nn.Linear(inputs, size), nn.Tanh(), nn.Linear(size, size))
        self.first, self.critic = nn.Linear(size, outputs), nn.Linear(size, 1)
        self.log_std = nn.Parameter(torch.full((outputs,), -0.3))

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = torch.tanh(self.trunk(obs.reshape(-1, self.inputs).float()))
        log_std = (self.log_std,) if self.is_box else ()
        return (self.first(hidden), *log_std, self.critic(hidden))


def make(env_id: str, num_envs: int, **options: Any) -> rollouts.VectorEnv:
    return rollouts.make_vec(env_id, num_envs, seed=3, autoreset_mode="same_step", **options)


def torch_policy(env: rollouts.VectorEnv) -> TorchPolicy:
    return TorchPolicy(Agent(env), env.single_action_space, seed=11)


def collector(env: rollouts.VectorEnv, steps: int = 30, **options: Any) -> rollouts.Collector:
    return rollouts.Collector(env, torch_policy(env), steps, engine="native", **options)


def collected(env_id: str, num_envs: int, times: int = 3, **options: Any) -> list[RolloutBatch]:
    with make(env_id, num_envs, **options) as env:
        collect = collector(env, keep_final_obs=True)
        return [collect.collect() for _ in range(times)]


def assert_equal(found: list[RolloutBatch], expected: list[RolloutBatch]) -> None:
    for one, other in zip(found, expected, strict=True):
        for name in FIELDS:
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)


@pytest.mark.parametrize("env_id", IDS)
def test_a_rollout_is_what_its_actions_do_step_by_step(env_id: str) -> None:
    """Replayed through `step` of an equal pool; values and densities are torch's."""
    limit = {"max_episode_steps": 17} if env_id != "CartPole-v1" else {}
    with make(env_id, 21, num_threads=2, **limit) as env, make(env_id, 21, **limit) as replayed:
        collect = collector(env, keep_final_obs=True)
        policy = collect.policy
        obs, _ = replayed.reset()
        for _ in range(3):
            batch = collect.collect()
            assert batch.final_obs is not None
            final_obs = iter(batch.final_obs)
            for t in range(30):
                np.testing.assert_array_equal(batch.obs[t], obs)
                sampled = batch.action[t]
                space = env.single_action_space
                clipped = sampled
                if isinstance(space, gymnasium.spaces.Box):
                    clipped = sampled.clip(space.low, space.high)
                obs, reward, terminated, truncated, info = replayed.step(clipped)
                np.testing.assert_array_equal(batch.reward[t], reward.astype(np.float32))
                np.testing.assert_array_equal(batch.terminated[t], terminated)
                np.testing.assert_array_equal(batch.truncated[t], truncated)
                bootstrap = np.zeros(21, np.float32)
                for row in np.flatnonzero(terminated | truncated):
                    np.testing.assert_array_equal(next(final_obs), info["final_obs"][row])
                    if truncated[row] and not terminated[row]:
                        bootstrap[row] = policy.value(info["final_obs"][row][None])[0]
                np.testing.assert_allclose(batch.bootstrap_value[t], bootstrap, atol=1e-5)
            np.testing.assert_array_equal(batch.last_obs, obs)
            assert next(final_obs, None) is None
            flat = torch.from_numpy(batch.obs.reshape(-1, *batch.obs.shape[2:]).copy())
            actions = torch.from_numpy(batch.action.reshape(-1, *batch.action.shape[2:]).copy())
            with torch.no_grad():
                *params, value = policy.module(flat)  # type: ignore[attr-defined]
                log_prob, _ = policy.head.evaluate(params, actions)  # type: ignore[attr-defined]
            np.testing.assert_allclose(batch.value.ravel(), value.numpy().ravel(), atol=1e-5)
            np.testing.assert_allclose(batch.log_prob.ravel(), log_prob.numpy(), atol=1e-5)
            np.testing.assert_allclose(batch.last_value, policy.value(obs), atol=1e-5)


@pytest.mark.parametrize(("env_id", "num_envs"), [("CartPole-v1", 150), ("Hopper-v5", 37)])
def test_the_same_bits_for_every_number_of_threads(env_id: str, num_envs: int) -> None:
    expected = collected(env_id, num_envs, num_threads=1)
    for num_threads in (2, 3, 4):
        assert_equal(collected(env_id, num_envs, num_threads=num_threads), expected)


def test_an_environments_data_do_not_depend_on_its_pool() -> None:
    whole = collected("CartPole-v1", 40)
    for first, count in ((0, 7), (7, 33)):
        parts = collected("CartPole-v1", count, env_id_offset=first)
        for part, batch in zip(parts, whole, strict=True):
            for name in ("obs", "action", "log_prob", "value", "reward", "terminated"):
                rows = getattr(batch, name)[:, first : first + count]
                np.testing.assert_array_equal(getattr(part, name), rows, name)


def test_per_env_options_and_several_ids_are_collected() -> None:
    ids = ["CartPole-v0"] * 5 + ["CartPole-v1"] * 20
    with rollouts.make_vec(ids, seed=1, autoreset_mode="same_step",
                           gravity=list(np.linspace(5, 15, 25))) as env:  # fmt: skip
        batch = rollouts.Collector(env, torch_policy(env), 50, engine="native").collect()
        assert batch.reward.shape == (50, 25) and env.stats().env_steps == 1250


def test_rollouts_of_one_step_follow_each_other() -> None:
    with make("CartPole-v1", 3) as env, make("CartPole-v1", 3) as longer:
        single, whole = collector(env, steps=1), collector(longer, steps=20).collect()
        for t in range(20):
            batch = single.collect()
            np.testing.assert_array_equal(batch.obs[0], whole.obs[t])
            np.testing.assert_array_equal(batch.action[0], whole.action[t])
            assert batch.reward.shape == (1, 3)


def test_weights_that_a_learner_changes_hold_from_the_next_rollout() -> None:
    with make("CartPole-v1", 8) as env:
        collect = collector(env)
        collect.collect()
        with torch.no_grad():
            collect.policy.module.critic.bias.add_(100)  # type: ignore[attr-defined]
        assert collect.collect().value.min() > 50


def test_a_module_or_a_seed_given_later_holds_from_the_next_rollout() -> None:
    with make("CartPole-v1", 8) as env:
        collect = collector(env)
        policy: Any = collect.policy
        collect.collect()
        policy.module = Agent(env)
        with torch.no_grad():
            policy.module.critic.bias.add_(100)
        assert collect.collect().value.min() > 50
        # what draws is asked for the same observations again
        rows = np.zeros((50, 4), np.float32)
        keys = np.arange(150, dtype=np.uint32).reshape(3, 50)
        before = collect._strategy._native[""].refresh().act(rows, keys)[0]  # type: ignore[index]
        policy.seed(99)
        collect.collect()
        after = collect._strategy._native[""].refresh().act(rows, keys)[0]  # type: ignore[index]
        assert not np.array_equal(before, after)


def test_a_native_policy_may_be_deterministic() -> None:
    with make("Pendulum-v1", 4) as env:
        policy = NativePolicy.from_torch(
            Agent(env), env.single_action_space, env.single_observation_space,
            head=Head("gaussian", deterministic=True),
        )  # fmt: skip
        batch = rollouts.Collector(env, policy, 10).collect()
        mean = policy.module_outputs(batch.obs[4])[0]
        np.testing.assert_array_equal(batch.action[4], mean)


# -- who computes -------------------------------------------------------------------------


class Own:
    policy_version = 0

    def act(self, obs: Any) -> PolicyOutput:
        zeros = np.zeros(len(obs), np.float32)
        return PolicyOutput(np.zeros(len(obs), np.int64), zeros, zeros)

    def value(self, obs: Any) -> Any:
        return np.zeros(len(obs), np.float32)


def test_auto_is_native_where_it_can_be_and_says_why_not() -> None:
    with make("CartPole-v1", 4) as env, make("CartPole-v1", 4, batch_size=2) as asynchronous:
        policy = torch_policy(env)
        expected = "torch" if rollouts._native.policy_kernels_in_use() == "emulated" else "native"
        assert rollouts.Collector(env, policy, 5).engine == expected
        assert rollouts.Collector(env, policy, 5, engine="torch").engine == "torch"
        late = rollouts.Collector(asynchronous, policy, 5)
        assert late.engine == "torch" and "batch_size == num_envs" in late.why_not_native
        own: Any = rollouts.Collector(env, Own(), 5)  # type: ignore[arg-type]
        assert own.engine == "torch" and "Own" in own.why_not_native
        with pytest.raises(SpecError, match=r"engine='native' is not possible.*Own"):
            rollouts.Collector(env, Own(), 5, engine="native")  # type: ignore[arg-type]
        with pytest.raises(SpecError, match="engine is 'numpy'"):
            rollouts.Collector(env, policy, 5, engine="numpy")  # type: ignore[arg-type]


def test_a_module_that_cannot_be_read_stays_with_torch() -> None:
    class Sine(Agent):
        def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return super().forward(torch.sin(obs))

    with make("CartPole-v1", 4) as env:
        policy = TorchPolicy(Sine(env), env.single_action_space)
        collect = rollouts.Collector(env, policy, 5)
        assert collect.engine == "torch" and "sin" in collect.why_not_native
        assert collect.collect().reward.shape == (5, 4)


def test_a_module_of_another_environment_is_refused() -> None:
    with make("CartPole-v1", 4) as env, make("Acrobot-v1", 4) as other:
        with pytest.raises(SpecError, match="engine='native' is not possible"):
            rollouts.Collector(other, torch_policy(env), 5, engine="native")
        fits = NativePolicy.from_torch(Agent(env), env.single_action_space, 4)
        with pytest.raises(SpecError, match="reads observations of 4 numbers"):
            rollouts.Collector(other, fits, 5).collect()


# -- how it ends --------------------------------------------------------------------------


class Clamped(Agent):
    """Says something finite of whatever it sees."""

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return super().forward(obs.clamp(-10, 10))


def clamped(env: rollouts.VectorEnv, **options: Any) -> rollouts.Collector:
    policy = TorchPolicy(Clamped(env), env.single_action_space)
    return rollouts.Collector(env, policy, 30, engine="native", **options)


def test_a_failing_environment_is_an_error_with_its_id_and_the_next_rollout_starts_anew() -> None:
    gravity = [9.8] * 30
    gravity[17] = 1e308
    with make("CartPole-v1", 30, num_threads=2, env_id_offset=100, gravity=gravity) as env:
        collect = clamped(env)
        with pytest.raises(EnvError, match="env_id 117"):
            collect.collect()
        env.reset(options={"gravity": 9.8})
        batch = collect.collect()
        assert np.abs(batch.obs[0]).max() <= 0.05  # episodes begin


def test_a_failing_environment_is_cut_off_and_the_others_go_on() -> None:
    gravity = [9.8] * 30
    gravity[17] = 1e308
    with make("CartPole-v1", 30, on_env_error="reset", gravity=gravity) as env:
        collect = clamped(env, keep_final_obs=True)
        batch = collect.collect()
        assert batch.final_obs is not None
        # every second step: gravity has thrown it there by then
        assert batch.truncated[1::2, 17].all() and not batch.terminated[:, 17].any()
        assert (batch.bootstrap_value[:, 17] == 0).all()
        assert batch.terminated.any() and not np.delete(batch.truncated, 17, 1).any()
        ended = np.argwhere(batch.terminated | batch.truncated)
        for (t, row), final in zip(ended, batch.final_obs, strict=True):
            if row == 17:
                np.testing.assert_array_equal(final, batch.obs[t, row])
        # what happened there is not told again with later steps
        assert "_env_error" not in env.step(np.zeros(30, np.int64))[4]
        assert env.step(np.zeros(30, np.int64))[4]["_env_error"].sum() == 1


def test_values_that_are_not_finite_are_named_before_anything_is_stepped() -> None:
    # one thread: another may have stepped its own environments before it hears of the end
    with make("CartPole-v1", 20, num_threads=1) as env:
        collect = collector(env)
        module: Any = collect.policy.module  # type: ignore[attr-defined]
        with torch.no_grad():
            module.critic.weight.fill_(3e38)
        with pytest.raises(SpecError, match=r"value of .*inf for env_id \d+, expected a fin"):
            collect.collect()
        assert env.stats().env_steps == 0
        with torch.no_grad():
            module.critic.weight.fill_(float("nan"))
        with pytest.raises(SpecError, match=r"'critic\.weight'"):
            collect.collect()


@pytest.mark.parametrize("num_threads", [1, 2])
def test_an_interrupt_ends_a_long_rollout(num_threads: int) -> None:
    with make("CartPole-v1", 64, num_threads=num_threads) as env:
        collect = rollouts.Collector(env, torch_policy(env), 2_000_000 // 64, engine="native")
        collect.collect()
        before = signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            with pytest.raises(KeyboardInterrupt):
                while True:
                    collect.collect()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert np.abs(collect.collect().obs[0]).max() <= 0.05


def test_closing_the_pool_ends_a_rollout() -> None:
    env = make("CartPole-v1", 64, num_threads=2)
    collect = collector(env, steps=2_000)
    collect.collect()
    ended: list[BaseException] = []

    def go_on() -> None:
        try:
            while True:
                collect.collect()
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=go_on)
    thread.start()
    env.close()
    thread.join(HANG_S)
    assert not thread.is_alive() and isinstance(ended[0], ClosedError)


def test_environments_in_flight_are_not_collected() -> None:
    with make("CartPole-v1", 4) as env:
        collect = collector(env)
        collect.collect()
        env.send(np.zeros(4, np.int64))
        with pytest.raises(ProtocolError, match="expected a pool that nobody else uses"):
            collect.collect()


def test_arrays_of_other_shapes_are_refused() -> None:
    with make("CartPole-v1", 4) as env:
        env.reset()
        policy = NativePolicy.from_torch(Agent(env), env.single_action_space, 4)
        cells = {"reward": "f4", "value": "f4", "log_prob": "f4", "bootstrap_value": "f4",
                 "terminated": "?", "truncated": "?", "episode_return": "f8",
                 "episode_length": "i4", "action": "i8"}  # fmt: skip
        arrays = {name: np.zeros((5, 4), dtype) for name, dtype in cells.items()}
        arrays |= {"obs": np.zeros((6, 4, 4), "f4"), "last_value": np.zeros(4, "f4")}
        assert env.collect(policy, arrays) is None
        for name, wrong in {
            "obs": np.zeros((5, 4, 4), "f4"),
            "action": np.zeros((5, 4), "i4"),
            "value": np.zeros((4, 5), "f4").T,
            "last_value": np.zeros(5, "f4"),
        }.items():
            with pytest.raises(SpecError, match=f"rollout array {name} has shape"):
                env.collect(policy, arrays | {name: wrong})
        with pytest.raises(SpecError, match="rollout array value is missing"):
            env.collect(policy, {name: a for name, a in arrays.items() if name != "value"})


def test_other_autoreset_modes_are_refused() -> None:
    with rollouts.make_vec("CartPole-v1", 4) as env:
        env.reset()
        policy = NativePolicy.from_torch(Agent(env), env.single_action_space, 4)
        with pytest.raises(SpecError, match="autoreset in the same step"):
            arrays = {
                "obs": np.zeros((6, 4, 4), np.float32),
                "reward": np.zeros((5, 4), np.float32),
            }
            env.collect(policy, arrays)
