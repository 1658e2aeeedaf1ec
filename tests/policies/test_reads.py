# SPDX-License-Identifier: Apache-2.0
"""Reads of a forward besides its weights are followed; those that cannot be seen are found out."""

from __future__ import annotations

import cProfile
import functools
import os
import types
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor, nn

import rollouts
from rollouts import Collector, SpecError, TorchPolicy
from rollouts.policies.native import NativePolicy
from rollouts.recurrent import RecurrentTorchPolicy

ACTIONS = gymnasium.spaces.Discrete(2)
OBS = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
GLOBAL = {"scale": 1.0}
SCALE = 1.0
settings = types.ModuleType("settings")
settings.scale = 1.0  # type: ignore[attr-defined]


class Slotted:
    __slots__ = ("scale",)

    def __init__(self) -> None:
        self.scale = 1.0


def scaled(x: Tensor) -> Tensor:
    return x * SCALE


def times(x: Tensor, by: list[float]) -> Tensor:
    return x * by[0]


class Net(nn.Module):
    """Reads numbers from everywhere."""

    scale_of_class = 1.0

    def __init__(self, num_obs: int = 4, num_actions: int = 2) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(num_obs, 8), nn.LeakyReLU(0.1), nn.LayerNorm(8), nn.Linear(8, 8)
        )
        self.actor, self.critic = nn.Linear(8, num_actions), nn.Linear(8, 1)
        self.temperature = 1.0
        self.config: dict[str, Any] = {"inner": {"scale": 1.0}}
        self.listed = [[1.0]]
        self.slotted = Slotted()
        self.simple = types.SimpleNamespace(scale=1.0)
        self.mean = torch.zeros(num_obs)
        self.array = np.ones(num_obs, np.float32)
        self.factor = [1.0]
        self.partial = functools.partial(times, by=self.factor)
        self.uses_tanh = False
        kept = 1.0

        def closed(x: Tensor) -> Tensor:
            return x * kept

        def keep(value: float) -> None:
            nonlocal kept
            kept = value

        self.closed, self.keep = closed, keep
        self.calls = 0

    @property
    def squared(self) -> float:
        return self.temperature**2

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        self.calls += 1
        self.last = obs
        x = (obs - self.mean) * torch.from_numpy(self.array) * self.scale_of_class
        x = scaled(self.closed(self.partial(x))) * self.config["inner"]["scale"]
        x = x * self.listed[0][0] * self.slotted.scale * self.simple.scale * settings.scale
        features = self.body(x * GLOBAL["scale"])
        features = torch.tanh(features) if self.uses_tanh else features
        return self.actor(features) / self.squared, self.critic(features) / self.temperature


def set_data(net: Net) -> None:
    net.mean.data = torch.full((4,), 0.5)


CHANGES: dict[str, Callable[[Net], Any]] = {
    "an attribute": lambda net: setattr(net, "temperature", 0.25),
    "a truth value that chooses": lambda net: setattr(net, "uses_tanh", True),
    "an entry of a dict in a dict": lambda net: net.config["inner"].update(scale=3.0),
    "a dict": lambda net: setattr(net, "config", {"inner": {"scale": 3.0}}),
    "an entry of a list in a list": lambda net: net.listed[0].__setitem__(0, 3.0),
    "an object with slots": lambda net: setattr(net.slotted, "scale", 3.0),
    "an object with attributes": lambda net: setattr(net.simple, "scale", 3.0),
    "a tensor in place": lambda net: net.mean.add_(1.0),
    "a tensor by its data": set_data,
    "another tensor": lambda net: setattr(net, "mean", torch.ones(4)),
    "an array in place": lambda net: net.array.fill(2.0),
    "what a partial holds": lambda net: net.factor.__setitem__(0, 2.0),
    "a variable of a function around": lambda net: net.keep(3.0),
    "a slope of an activation": lambda net: setattr(net.body[1], "negative_slope", 0.9),
    "an epsilon of a layer with weights": lambda net: setattr(net.body[2], "eps", 10.0),
    "a layer": lambda net: net.body.__setitem__(1, nn.Tanh()),
    "a layer of the same kind": lambda net: net.body.__setitem__(1, nn.LeakyReLU(0.9)),
}


def outputs_of(net: nn.Module, obs: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    with torch.no_grad():
        return [each.numpy().reshape(len(obs), -1) for each in net(torch.from_numpy(obs))]


def assert_followed(policy: NativePolicy, net: nn.Module) -> None:
    for ours, theirs in zip(policy.module_outputs(OBS), outputs_of(net, OBS), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("change", list(CHANGES))
def test_what_a_forward_reads_is_followed(change: str) -> None:
    net = Net()
    policy = NativePolicy.from_torch(net, ACTIONS, 4)
    before = policy.module_outputs(OBS)
    CHANGES[change](net)
    assert_followed(policy, net)
    assert not np.allclose(policy.module_outputs(OBS)[1], before[1], atol=1e-4)


@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [
        (Net, "scale_of_class", 3.0),
        (settings, "scale", 3.0),
        (GLOBAL, "scale", 3.0),
        (globals(), "SCALE", 3.0),
    ],
    ids=["a class", "a file that is imported", "a dict of the file", "a variable of the file"],
)
def test_what_lies_around_a_module_is_followed(
    owner: Any, name: str, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = Net()
    policy = NativePolicy.from_torch(net, ACTIONS, 4)
    setter = monkeypatch.setitem if isinstance(owner, dict) else monkeypatch.setattr
    setter(owner, name, value)
    assert_followed(policy, net)


def test_what_a_forward_writes_itself_is_no_change() -> None:
    net = Net()
    policy = NativePolicy.from_torch(net, ACTIONS, 4)
    program = policy._reading
    assert program is not None and program.is_as_read()
    outputs_of(net, OBS)
    assert program.is_as_read()


def test_a_change_that_cannot_be_read_is_refused() -> None:
    net = Net()
    policy = NativePolicy.from_torch(net, ACTIONS, 4)
    net.body[1] = nn.Dropout(0.5)
    with pytest.raises(SpecError, match=r"call module\.eval\(\) first"):
        policy.value(OBS)


def test_a_head_that_is_replaced_is_taken_over() -> None:
    from rollouts.policies.native import Head

    policy = NativePolicy.from_torch(Net(), ACTIONS, 4)
    policy.head = Head("categorical", deterministic=True)
    best = policy.module_outputs(OBS)[0].argmax(1)
    for _ in range(20):
        np.testing.assert_array_equal(policy.act(OBS).action, best)


def make_env(env_id: str = "CartPole-v1") -> Any:
    return rollouts.make_vec(env_id, 4, seed=1, autoreset_mode="same_step")


@pytest.mark.parametrize("timeout_s", [None, 60.0])
def test_a_collector_follows_a_temperature(timeout_s: float | None) -> None:
    net, env = Net(), make_env()
    collector = Collector(env, TorchPolicy(net, env.single_action_space), 8, engine="native")
    for temperature in (1.0, 0.1, 5.0):
        net.temperature = temperature
        batch = collector.collect(timeout_s)
        logits, value = outputs_of(net, batch.obs.reshape(-1, 4))
        chosen = torch.from_numpy(logits).log_softmax(-1).numpy()
        log_prob = np.take_along_axis(chosen, batch.action.reshape(-1, 1), 1)
        np.testing.assert_allclose(batch.value.reshape(-1), value[:, 0], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(batch.log_prob.reshape(-1), log_prob[:, 0], atol=1e-4)
    env.close()


def test_a_collector_of_agents_follows_a_temperature() -> None:
    env = make_env("simple_spread_v3")
    ((name, group),) = env.groups.items()
    size = int(np.prod(group.single_observation_space.shape))
    net = Net(size, int(group.single_action_space.n))
    collector = Collector(env, TorchPolicy(net, group.single_action_space), 8, engine="native")
    for temperature in (1.0, 0.1):
        net.temperature = temperature
        batch = collector.collect()[name]
        value = outputs_of(net, batch.obs.reshape(-1, size))[1]
        np.testing.assert_allclose(batch.value.reshape(-1), value[:, 0], rtol=1e-4, atol=1e-5)
    env.close()


class Remembering(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.actor = nn.GRUCell(4, 8), nn.Linear(8, 2)
        self.critic, self.bonus = nn.Linear(8, 1), 0.0

    def initial_state(self) -> tuple[Tensor]:
        return (torch.zeros(8),)

    def forward(self, obs: Tensor, state: tuple[Tensor]) -> Any:
        hidden = self.cell(obs, state[0])
        return self.actor(hidden), self.critic(hidden) + self.bonus, (hidden,)


def test_a_policy_with_memory_is_followed() -> None:
    net, env = Remembering(), make_env()
    policy = RecurrentTorchPolicy(net, env.single_action_space)
    collector = Collector(env, policy, 8, engine="native")
    low = collector.collect().value.max()
    net.bonus = 1000.0
    assert collector.collect().value.min() > low + 900
    env.close()


@pytest.mark.parametrize("options", [{"engine": "native"}, {"engine": "torch"}, {"prefetch": 1}])
@pytest.mark.parametrize("cuda_graph", [False, True])
def test_a_collector_of_a_device_follows_a_temperature(
    options: dict[str, Any], cuda_graph: bool
) -> None:
    env = rollouts.make_vec(
        "CartPole-v1", 4, device="cpu-emulation", seed=1, autoreset_mode="same_step"
    )
    net = Net()
    policy = TorchPolicy(net, env.single_action_space)
    collector = rollouts.Collector(env, policy, 8, cuda_graph=cuda_graph, **options)
    for temperature in (1.0, 0.1, 5.0):
        net.temperature = temperature
        batch = collector.collect()
        if options.get("prefetch"):
            batch = collector.collect()
        value = outputs_of(net, batch.obs.numpy().reshape(-1, 4))[1]
        np.testing.assert_allclose(
            batch.value.numpy().reshape(-1), value[:, 0], rtol=1e-4, atol=1e-5
        )
    env.close()


class Hidden(nn.Module):
    """Reads a number where nobody sees it."""

    def __init__(self) -> None:
        super().__init__()
        self.actor, self.critic = nn.Linear(4, 2), nn.Linear(4, 1)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        scale = float(os.environ["ROLLOUTS_TEST_SCALE"])
        return self.actor(obs) * scale, self.critic(obs)


def test_a_row_that_the_module_computes_finds_what_nothing_else_sees(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ROLLOUTS_TEST_SCALE", "1")
    net, env = Hidden(), make_env()
    collector = Collector(env, TorchPolicy(net, env.single_action_space), 8)
    collector.collect()
    assert collector.engine == "native"
    monkeypatch.setenv("ROLLOUTS_TEST_SCALE", "9")
    with pytest.warns(RuntimeWarning, match="is not what Hidden computes now"):
        while collector.engine == "native":
            collector.collect()
    assert "forward reads something that changes" in collector.why_not_native
    with pytest.raises(SpecError, match="is not what Hidden computes now"):
        Collector(env, TorchPolicy(net, env.single_action_space), 8, engine="native")
    env.close()


def test_a_native_policy_of_another_answer_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLOUTS_TEST_SCALE", "1")
    policy = NativePolicy.from_torch(Hidden(), ACTIONS, 4)
    policy.value(OBS)
    monkeypatch.setenv("ROLLOUTS_TEST_SCALE", "9")
    with pytest.warns(RuntimeWarning), pytest.raises(SpecError, match="Make it a buffer"):
        while True:
            policy.value(OBS)
    with pytest.raises(SpecError, match="Make it a buffer"):
        policy.value(OBS)


def test_a_policy_is_read_within_a_profile() -> None:
    profile = cProfile.Profile()
    module = Net()
    profile.enable()
    try:
        NativePolicy.from_torch(module, ACTIONS)
        # the profile goes on
        np.cumsum([1])
    finally:
        profile.disable()
    names = {entry.code for entry in profile.getstats() if isinstance(entry.code, str)}
    assert any("cumsum" in name for name in names)
