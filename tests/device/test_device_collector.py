# SPDX-License-Identifier: Apache-2.0
"""Rollouts of a GPU's pool, its kernels run as loops, against those of C++ pools: bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from kernel_ids import light_kernel_ids
from torch import Tensor, nn

import rollouts
from rollouts import (
    Collector,
    EnvError,
    NativePolicy,
    RecurrentTorchPolicy,
    RolloutBatch,
    SpecError,
    TorchPolicy,
)
from rollouts.collecting.actor_rows import ActorRows
from rollouts.collecting.device_policy import DevicePolicy
from rollouts.envs.kernel import kernel
from rollouts.envs.kernel.emulation import HostKernel
from rollouts.envs.kernel.policy_launch import PolicyLaunch
from rollouts.policy import SquashedGaussianHead
from rollouts.returns import Gae, Nstep

pytestmark = pytest.mark.system

EMULATION = "cpu-emulation"
LIGHT = light_kernel_ids()
DISCRETE = [one for one in LIGHT if rollouts.env_spec(one).header.startswith("envs/toy_text/")]
ARRAYS = (
    *("obs", "action", "reward", "terminated", "truncated", "bootstrap_value", "log_prob"),
    *("value", "last_obs", "last_value", "env_id"),
)
GAE = Gae(gamma=0.99, gae_lambda=0.95)


class ActorCritic(nn.Module):
    """A head for any space of actions, over any observation of numbers."""

    def __init__(self, obs_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> None:
        super().__init__()
        self.counts = [obs_space] if isinstance(obs_space, spaces.Discrete) else []
        self.table = nn.Embedding(int(self.counts[0].n), 8) if self.counts else None
        size = 8 if self.counts else int(np.prod(obs_space.shape or ()))
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(size, 19), nn.Tanh(), nn.LayerNorm(19))
        self.head = nn.Linear(19, num_outputs(action_space))
        self.value = nn.Linear(19, 1)
        self.log_std = nn.Parameter(torch.tensor([-0.5]))
        self.is_box = isinstance(action_space, spaces.Box)

    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        hidden = self.body(self.table(obs) if self.table is not None else obs.float())
        params = (self.head(hidden), self.log_std) if self.is_box else (self.head(hidden),)
        return *params, self.value(hidden)


class Remembering(nn.Module):
    """The same with a memory of two tensors."""

    def __init__(self, obs_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(int(np.prod(obs_space.shape or ())), 9)
        self.head = nn.Linear(9, num_outputs(action_space))
        self.value = nn.Linear(9, 1)
        self.first = nn.Parameter(torch.linspace(-1, 1, 9))

    def initial_state(self) -> tuple[Tensor, Tensor]:
        return self.first, torch.zeros(9)

    def forward(self, obs: Tensor, state: tuple[Tensor, Tensor]) -> Any:
        hidden, cell = self.cell(obs, state)
        return self.head(hidden), self.value(hidden), (hidden, cell)


def num_outputs(space: spaces.Space[Any]) -> int:
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    counts = space.nvec if isinstance(space, spaces.MultiDiscrete) else np.ones(space.shape or ())
    return int(np.sum(counts))


def make_both(env_id: str, num_envs: int, **options: Any) -> tuple[Any, Any]:
    arguments: dict[str, Any] = {"seed": 3, "autoreset_mode": "same_step", **options}
    cpu = rollouts.make_vec(env_id, num_envs, num_threads=1, **arguments)
    return cpu, rollouts.make_vec(env_id, num_envs, device=EMULATION, **arguments)


def assert_equal(found: RolloutBatch[Tensor], expected: Any, name: str = "") -> None:
    for array in ARRAYS:
        np.testing.assert_array_equal(
            getattr(found, array).numpy(), getattr(expected, array), err_msg=f"{name} {array}"
        )
    assert found.extras.keys() == expected.extras.keys()
    for key, tensor in found.extras.items():
        np.testing.assert_array_equal(tensor.numpy(), expected.extras[key], err_msg=key)
    for mine, theirs in zip(found.policy_state, expected.policy_state, strict=True):
        np.testing.assert_array_equal(mine.numpy(), theirs)
    ended = found.terminated | found.truncated
    # a C++ pool tells the returns of agents who took part to the end
    if "active" not in found.extras:
        np.testing.assert_array_equal(found.episode_return[ended], expected.episode_return[ended])
        np.testing.assert_array_equal(found.episode_length[ended], expected.episode_length[ended])


def change(module: nn.Module) -> None:
    with torch.no_grad():
        for param in module.parameters():
            param.add_(0.05 * torch.randn_like(param))


@pytest.mark.parametrize("returns", (GAE, Nstep(gamma=0.9, n=3)))
@pytest.mark.parametrize("env_id", DISCRETE)
def test_rollouts_are_those_of_a_cpp_pool(env_id: str, returns: Gae | Nstep) -> None:
    # more rows than a block has threads
    cpu, device = make_both(env_id, 150, max_episode_steps=17)
    torch.manual_seed(0)
    space = cpu.single_action_space
    module = ActorCritic(cpu.single_observation_space, space)
    arguments: dict[str, Any] = {"outputs": ("entropy", "logits"), "returns": returns}
    theirs = Collector(cpu, TorchPolicy(module, space, seed=5), 20, engine="native", **arguments)
    mine = Collector(device, TorchPolicy(module, space, seed=5), 20, **arguments)
    num_ends = 0
    for _ in range(3):
        found = mine.collect()
        assert_equal(found, theirs.collect())
        num_ends += int((found.terminated | found.truncated).sum())
        # a learner changes the weights in place
        change(module)
    assert num_ends > 100
    mine.synchronize()
    assert int(device.stats().num_episodes) == num_ends


AGENTS: dict[str, dict[str, Any]] = {
    "simple_tag_v3": {},
    "simple_reference_v3": {},
    "simple_spread_v3": {"continuous_actions": True},
    "TagGridWorld-v0": {},
    "TagContinuous-v0": {"num_runners": 20, "tagging_distance": 0.2, "grid_length": 3.0},
}


@pytest.mark.parametrize(
    "env_id, memory",
    [(env_id, False) for env_id in AGENTS]
    + [(env_id, True) for env_id in AGENTS if env_id != "simple_spread_v3"],
)
def test_rollouts_of_agents_are_those_of_a_cpp_pool(env_id: str, memory: bool) -> None:
    options = AGENTS[env_id]
    cpu, device = make_both(env_id, 5, max_episode_steps=9, **options)
    torch.manual_seed(0)
    kind: Any = Remembering if memory else ActorCritic
    modules = {
        name: kind(group.single_observation_space, group.single_action_space)
        for name, group in cpu.groups.items()
    }

    def policies() -> dict[str, Any]:
        keep = {"keep_states": True} if memory else {}
        of: Any = RecurrentTorchPolicy if memory else TorchPolicy
        return {
            name: of(modules[name], group.single_action_space, seed=5, **keep)
            for name, group in cpu.groups.items()
        }

    arguments: dict[str, Any] = {"outputs": ("entropy",), "returns": GAE}
    theirs = Collector(cpu, policies(), 14, engine="native", **arguments)
    mine = Collector(device, policies(), 14, **arguments)
    for _ in range(3):
        found, expected = mine.collect(), theirs.collect()
        assert found.keys() == expected.keys()
        for name, batch in expected.items():
            assert_equal(found[name], batch, name)
            change(modules[name])
    mine.synchronize()
    if "num_runners" in options:
        # somebody left early, and waited for the others
        assert not found["runner"].extras["active"].all()


def test_squashed_actions_are_those_of_a_cpp_pool() -> None:
    cpu, device = make_both("simple_spread_v3", 50, max_episode_steps=9, continuous_actions=True)
    torch.manual_seed(0)
    ((name, group),) = cpu.groups.items()
    space = group.single_action_space
    module = ActorCritic(group.single_observation_space, space)
    policies = [TorchPolicy(module, space, seed=5) for _ in range(2)]
    for policy in policies:
        policy.head = SquashedGaussianHead.of(space)
    theirs = Collector(cpu, policies[0], 14, engine="native", outputs=("entropy",))
    mine = Collector(device, {name: policies[1]}, 14, outputs=("entropy",))
    for _ in range(2):
        found = mine.collect()[name]
        assert_equal(found, theirs.collect()[name])
        assert found.action.min() >= 0 and 0.9 < found.action.max() <= 1
        change(module)


def test_memory_begins_anew_with_an_episode() -> None:
    cpu, device = make_both("simple_v3", 8, max_episode_steps=5)
    (space,) = cpu.single_action_spaces.values()
    (obs_space,) = cpu.single_observation_spaces.values()
    module = Remembering(obs_space, space)
    policy = RecurrentTorchPolicy(module, space, keep_states=True)
    (found,) = Collector(device, policy, 12).collect().values()
    hidden = found.extras["policy_state.0"]
    begins = torch.tensor([t % 5 == 0 for t in range(12)])
    is_first = (hidden == module.first).all(-1).all(-1)
    assert torch.equal(is_first, begins)
    assert torch.equal(found.policy_state[0], hidden[0])


@pytest.mark.parametrize("env_id", ("Pendulum-v1", "MountainCarContinuous-v0"))
def test_boxes_are_clipped_on_their_way(env_id: str) -> None:
    """Dynamics have 32 bits here: the policy is compared on what it saw, and the steps replayed."""
    _, device = make_both(env_id, 9, max_episode_steps=40)
    _, again = make_both(env_id, 9, max_episode_steps=40)
    space = device.single_action_space
    module = ActorCritic(device.single_observation_space, space)
    with torch.no_grad():
        module.log_std.fill_(1.0)
    outputs = ("entropy", "mean", "log_std")
    found = Collector(device, TorchPolicy(module, space, seed=5), 60, outputs=outputs).collect()
    twin = TorchPolicy(module, space, seed=5)
    native = NativePolicy.from_torch(module, space, device.single_observation_space)
    native.seed_with(twin.noise_seed)
    obs = again.reset()[0]
    low, high = torch.tensor(space.low), torch.tensor(space.high)
    assert ((found.action < low) | (found.action > high)).any()
    for t in range(60):
        assert torch.equal(obs, found.obs[t])
        keys = np.array([found.env_id.numpy(), np.full(9, t // 40), np.full(9, t % 40)], np.uint32)
        action, log_prob, entropy, mean, _, value = native.refresh().act(obs.numpy(), keys)
        np.testing.assert_array_equal(found.action[t], action)
        np.testing.assert_array_equal(found.log_prob[t], log_prob)
        np.testing.assert_array_equal(found.value[t], value[:, 0])
        np.testing.assert_array_equal(found.extras["entropy"][t], entropy)
        np.testing.assert_array_equal(found.extras["mean"][t], mean)
        assert (found.extras["log_std"][t] == 1.0).all()
        obs, reward, _, truncated, info = again.step(found.action[t].clamp(low, high))
        assert torch.equal(reward, found.reward[t])
        cut = native.refresh().evaluate(info["final_obs"].numpy())[-1][:, 0]
        expected = np.where(truncated, cut, 0.0)
        np.testing.assert_array_equal(found.bootstrap_value[t], expected)
    assert torch.equal(obs, found.last_obs)


def test_threads_may_run_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    _, device = make_both("FrozenLake-v1", 300)
    space = device.single_action_space
    module = ActorCritic(device.single_observation_space, space)
    forwards = Collector(device, TorchPolicy(module, space), 8, returns=GAE).collect()
    from rollouts.collecting import device_policy

    monkeypatch.setattr(
        device_policy,
        "make_kernel",
        lambda source, device, emulated: HostKernel(source, backwards=True),
    )
    assert kernel.make_kernel is not device_policy.make_kernel
    _, other = make_both("FrozenLake-v1", 300)
    backwards = Collector(other, TorchPolicy(module, space), 8, returns=GAE).collect()
    for name in ARRAYS:
        assert torch.equal(getattr(forwards, name), getattr(backwards, name)), name
    assert torch.equal(forwards.extras["advantage"], backwards.extras["advantage"])


class Wide(nn.Module):
    """An actor and a critic of their own, whose layers do not fit what threads share."""

    def __init__(self, num_obs: int, num_actions: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(num_obs, 3)
        self.actor = self.layers(3, width, num_actions)
        self.critic = self.layers(3, width, 1)

    @staticmethod
    def layers(inputs: int, width: int, outputs: int) -> nn.Sequential:
        first, second = nn.Linear(inputs, width), nn.Linear(width, width)
        return nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), nn.Linear(width, outputs))

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        seen = self.table(obs)
        return self.actor(seen), self.critic(seen)


@pytest.mark.parametrize("width", (64, 160))
def test_wide_networks_lie_in_global_memory_and_narrow_ones_do_not(width: int) -> None:
    cpu, device = make_both("FrozenLake-v1", 150)
    torch.manual_seed(1)
    space = cpu.single_action_space
    module = Wide(16, 4, width)
    theirs = Collector(cpu, TorchPolicy(module, space), 12, engine="native", returns=GAE)
    mine = Collector(device, TorchPolicy(module, space), 12, returns=GAE)
    assert_equal(mine.collect(), theirs.collect())
    of = ActorRows(150, 1, 0, 1, False, (1,), "int64", space)
    native = NativePolicy.from_torch(module, space, cpu.single_observation_space)
    policy = DevicePolicy(native, of, torch.device("cpu"), emulated=True)
    launch = PolicyLaunch()
    policy.fill(launch)
    # two layers at a time, and not the five of both parts
    assert launch.policy.num_rows == 1 + 3 + 2 * width + 4 + 1
    assert (launch.scratch is None) == (width == 64)


def make_collector(env_id: str = "FrozenLake-v1", steps: int = 4, **kwargs: Any) -> Any:
    _, device = make_both(env_id, 5)
    module = ActorCritic(device.single_observation_space, device.single_action_space)
    policy = TorchPolicy(module, device.single_action_space)
    return Collector(device, policy, steps, **kwargs), module


def test_what_is_held_is_not_written_again() -> None:
    collector, _ = make_collector(returns=GAE)
    held = [collector.collect() for _ in range(3)]
    copies = [one.value.clone() for one in held]
    advantage = held[0].extras["advantage"]
    kept = advantage.clone()
    del held[0]
    for _ in range(6):
        collector.collect()
    assert all(torch.equal(one.value, copy) for one, copy in zip(held, copies[1:], strict=True))
    assert torch.equal(advantage, kept)


def test_what_nobody_holds_is_used_again() -> None:
    collector, _ = make_collector()
    places = {collector.collect().value.data_ptr() for _ in range(20)}
    assert len(places) == 2  # one goes on where the other ended


def test_a_reset_begins_new_episodes() -> None:
    collector, _ = make_collector("Taxi-v3", 3)
    assert (collector.collect().episode_length[:, 0] == torch.tensor([1, 2, 3])).all()
    assert (collector.collect().episode_length[:, 0] == torch.tensor([4, 5, 6])).all()
    collector.reset()
    assert (collector.collect().episode_length[:, 0] == torch.tensor([1, 2, 3])).all()


def test_a_policy_that_is_not_finite_is_named_afterwards() -> None:
    collector, module = make_collector()
    collector.collect()
    collector.synchronize()
    with torch.no_grad():
        module.value.weight.fill_(float("nan"))
    collector.collect()
    with pytest.raises(EnvError, match=r"environment 0 got a policy whose value or log_prob"):
        collector.synchronize()


def test_the_version_is_that_of_the_weights() -> None:
    collector, _ = make_collector()
    assert (collector.collect().policy_version == 0).all()
    collector.policies[""].policy_version = 7
    assert (collector.collect().policy_version == 7).all()


def test_a_policy_may_get_other_layers() -> None:
    collector, module = make_collector()
    collector.collect()
    module.body[2] = nn.ReLU()
    first = collector.collect()
    native = NativePolicy.from_torch(module, *space_of(collector))
    (*_, value) = native.module_outputs(first.obs[0].numpy())
    np.testing.assert_array_equal(first.value[0], value[:, 0])


def space_of(collector: Any) -> tuple[Any, Any]:
    return collector.env.single_action_space, collector.env.single_observation_space


def test_errors_say_what_to_do() -> None:
    cpu, device = make_both("FrozenLake-v1", 2)
    space = cpu.single_action_space
    policy = TorchPolicy(ActorCritic(cpu.single_observation_space, space), space)
    with pytest.raises(
        SpecError, match=r"cuda_graph cannot be had of environments on the host: .*leave"
    ):
        Collector(cpu, policy, 4, cuda_graph=True)
    with pytest.raises(SpecError, match=r"mask_actions cannot be had of a pool on a device"):
        Collector(device, policy, 4, mask_actions=True)
    with pytest.raises(SpecError, match="rollout_length is 0"):
        Collector(device, policy, 0)
    other = rollouts.make_vec("FrozenLake-v1", 2, device=EMULATION)
    with pytest.raises(SpecError, match="SAME_STEP"):
        Collector(other, policy, 4)
    with pytest.raises(SpecError, match="outputs are"):
        Collector(device, policy, 4, outputs=("mean",))
    wrong = spaces.Discrete(7)
    with pytest.raises(SpecError, match=r"does not fit actions of Discrete\(4\)"):
        Collector(device, TorchPolicy(ActorCritic(spaces.Discrete(16), wrong), wrong), 4)
    with pytest.raises(SpecError, match="reads observations of"):
        (seen,) = make_both("CartPole-v1", 2)[1:]
        acts = spaces.Discrete(2)
        module = ActorCritic(spaces.Box(0, 1, (3,)), acts)
        Collector(seen, NativePolicy.from_torch(module, acts, 3), 4)
    half = rollouts.make_vec(
        "CartPole-v1", 2, device=EMULATION, obs_dtype="float16", autoreset_mode="same_step"
    )
    fits = TorchPolicy(ActorCritic(half.single_observation_space, acts), acts)
    with pytest.raises(SpecError, match="observations are float16"):
        Collector(half, fits, 4, engine="native")
    assert Collector(half, fits, 4).collect().obs.dtype == torch.float16
