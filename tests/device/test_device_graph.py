# SPDX-License-Identifier: Apache-2.0
"""Rollouts recorded once and started as one, and those that are collected ahead: the same rows."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch import nn

import rollouts
from rollouts import Collector, RolloutBatch, SpecError, TorchPolicy
from rollouts.envs.kernel.graph import CudaGraph
from rollouts.returns import Gae

GAE = Gae(gamma=0.99, gae_lambda=0.95)
ENGINES = ("native", "torch")
CUDA = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
DEVICES = ("cpu-emulation", pytest.param("cuda", marks=CUDA))


class Net(nn.Module):
    """Two layers of an actor, one of a critic."""

    def __init__(self, num_inputs: int, num_outputs: int) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(num_inputs, 16), nn.Tanh(), nn.Linear(16, num_outputs))
        self.critic = nn.Linear(num_inputs, 1)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.actor(obs), self.critic(obs)


def make(engine: str, device: str = "cpu-emulation", **options: Any) -> Collector:
    env = rollouts.make_vec(
        "CartPole-v1",
        40,
        device=device,
        seed=3,
        autoreset_mode="same_step",
        max_episode_steps=23,
    )
    torch.manual_seed(0)
    policy = TorchPolicy(Net(4, 2), env.single_action_space, seed=5, device=env.device)
    return Collector(env, policy, 12, engine=engine, returns=GAE, **options)


def learn(collector: Collector) -> None:
    """Changes the weights where they lie, as an optimiser does."""
    policy = collector.policies[""]
    with torch.no_grad():
        for one in policy.module.parameters():
            one.mul_(0.9).add_(0.01)
    policy.policy_version += 1


def assert_same(found: RolloutBatch[torch.Tensor], expected: RolloutBatch[torch.Tensor]) -> None:
    for name in (*found.__slots__,):
        one, other = getattr(found, name), getattr(expected, name)
        if isinstance(one, torch.Tensor):
            assert torch.equal(one, other), name
    for name, tensor in found.extras.items():
        assert torch.equal(tensor, expected.extras[name]), name


def rollouts_of(collector: Collector, count: int) -> Iterator[RolloutBatch[torch.Tensor]]:
    for _ in range(count):
        yield collector.collect().copied()
        learn(collector)
    collector.synchronize()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_graph_gives_the_rollouts_of_its_launches(engine: str, device: str) -> None:
    expected = rollouts_of(make(engine, device), 8)
    graphs = make(engine, device, cuda_graph=True)
    truncated = 0
    for found, other in zip(rollouts_of(graphs, 8), expected, strict=True):
        assert_same(found, other)
        truncated += int(found.truncated.sum())
    assert truncated > 30
    recorded = [one.graph.is_recorded for one in graphs._strategy._ring.sets.owners]
    assert recorded and all(recorded)


def test_a_graph_is_recorded_anew_where_what_it_was_told_has_changed() -> None:
    once, graphs = make("native"), make("native", cuda_graph=True)
    for step in range(12):
        if step == 5:
            for one in (once, graphs):
                # an option for each environment lies elsewhere than one for all
                one.env.reset(options={"gravity": [9.0 + 0.1 * i for i in range(40)]})
                one.reset()
        if step == 9:
            for one in (once, graphs):
                module = one.policies[""].module
                module.actor[0].weight.data = module.actor[0].weight.data.clone() * 2
        assert_same(graphs.collect().copied(), once.collect().copied())


def test_held_rollouts_are_not_written_by_a_graph() -> None:
    collector = make("torch", cuda_graph=True)
    held = [collector.collect() for _ in range(5)]
    copies = [one.copied() for one in held]
    for _ in range(6):
        collector.collect()
    for one, copy in zip(held, copies, strict=True):
        assert_same(one, copy)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("cuda_graph", (False, True))
@pytest.mark.parametrize("engine", ENGINES)
def test_rollouts_ahead_are_of_the_weights_before(
    engine: str, cuda_graph: bool, device: str
) -> None:
    expected = make(engine, device)
    ahead = make(engine, device, prefetch=1, cuda_graph=cuda_graph)
    for step, found in enumerate(rollouts_of(ahead, 7)):
        if step > 1:
            learn(expected)
        assert_same(found, expected.collect().copied())
        assert expected.policies[""].policy_version == max(0, step - 1)
        assert (found.policy_version == max(0, step - 1)).all()
    ahead.synchronize()


def test_a_reset_drops_what_was_begun() -> None:
    collector = make("native", prefetch=1)
    collector.collect()
    collector.reset()
    rollout = collector.collect()
    assert (rollout.episode_length[0] == 1).all()
    assert collector.collect().episode_length[0].max() == 13


def test_weights_that_cannot_be_read_cost_no_rollout() -> None:
    expected, collector = make("native"), make("native", prefetch=1)
    assert_same(collector.collect().copied(), expected.collect().copied())
    module = collector.policies[""].module
    before, module.actor[1] = module.actor[1], nn.Conv1d(1, 1, 1)
    assert_same(collector.collect().copied(), expected.collect().copied())
    with pytest.raises(SpecError, match="cannot act on the device"):
        collector.collect()
    module.actor[1] = before
    assert_same(collector.collect().copied(), expected.collect().copied())


def test_after_a_rollout_that_failed_episodes_begin_anew() -> None:
    collector = make("torch")
    collector.collect()
    module, calls = collector.policies[""].module, []

    def fail_in_the_middle(*args: Any) -> None:
        calls.append(args)
        if len(calls) == 5:
            raise RuntimeError("a layer of the user's own")

    hook = module.register_forward_pre_hook(fail_in_the_middle)
    with pytest.raises(RuntimeError, match="of the user's own"):
        collector.collect()
    hook.remove()
    rollout = collector.collect()
    assert (rollout.episode_length[0] == 1).all()
    assert torch.isfinite(rollout.obs).all() and (rollout.obs[0].abs() <= 0.05).all()


def test_only_one_rollout_is_ahead() -> None:
    with pytest.raises(SpecError, match="prefetch"):
        make("native", prefetch=2)


@pytest.mark.parametrize("engine", [pytest.param("torch", marks=CUDA)])
def test_a_recording_that_fails_leaves_stream_and_memory_as_they_were(engine: str) -> None:
    collector = make(engine, "cuda", cuda_graph=True)

    def wait_for_a_number(module: nn.Module, args: Any, outputs: Any) -> None:
        outputs[0].sum().item()

    hook = collector.policies[""].module.register_forward_hook(wait_for_a_number)
    collector.collect()
    before = torch.cuda.current_stream()
    with pytest.raises(SpecError, match="leave cuda_graph out"):
        collector.collect()
    assert torch.cuda.current_stream() == before
    # the generator is not in a recording any more
    assert torch.rand(3, device="cuda").isfinite().all()
    hook.remove()
    other = make(engine, "cuda", cuda_graph=True)
    expected = rollouts_of(make(engine, "cuda"), 4)
    for found, one in zip(rollouts_of(other, 4), expected, strict=True):
        assert_same(found, one)


class StandIn:
    """CUDA graphs in place of torch's: random numbers are in a recording until one succeeds."""

    def __init__(self) -> None:
        self.draws_fail = False
        self.num_recorded = 0

    @contextmanager
    def graph(self, graph: Any, **options: Any) -> Iterator[None]:
        assert options["capture_error_mode"] == "thread_local"
        self.draws_fail = True
        yield
        self.draws_fail = False
        self.num_recorded += 1


def test_random_numbers_go_on_after_a_recording_that_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stand_in = StandIn()
    monkeypatch.setattr(torch.cuda, "graph", stand_in.graph)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
    for name in ("device", "stream"):
        monkeypatch.setattr(torch.cuda, name, lambda one: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", lambda *pool: None, raising=False)

    def wait() -> None:
        if stand_in.draws_fail:
            raise RuntimeError("operation not permitted when stream is capturing")

    graph = CudaGraph(torch.device("cuda", 0), None, None)
    graph.run("key", wait)
    with pytest.raises(SpecError, match="leave cuda_graph out"):
        graph.run("key", wait)
    assert not stand_in.draws_fail and stand_in.num_recorded == 1


@pytest.mark.parametrize("end", [pytest.param(end, marks=CUDA) for end in ("close", "drop")])
def test_memory_goes_back_once_what_was_begun_is_done(end: str) -> None:
    collector = make("torch", "cuda", prefetch=1)

    def delay(module: nn.Module, args: Any, outputs: Any) -> None:
        torch.cuda._sleep(50_000_000)  # GPU cycles

    collector.policies[""].module.register_forward_hook(delay)
    collector.collect()
    done = collector._strategy._side._done
    assert done is not None and not done.query()
    if end == "close":
        collector.close()
    del collector
    gc.collect()
    torch.cuda.current_stream().synchronize()
    assert done.query()
