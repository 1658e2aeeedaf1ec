# SPDX-License-Identifier: Apache-2.0
"""Pools on a card against their emulation; what only a card has: streams and graphs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from dense_oracle import HALF_ULP, DenseAgent, bounds_of
from kernel_ids import light_kernel_ids

import rollouts
from rollouts import EnvError, MultiAgentVectorEnv, VectorEnv
from rollouts.returns import Gae

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

LIGHT = light_kernel_ids()
REAL = [one for one in LIGHT if rollouts.env_spec(one).header.startswith("envs/classic/")]


def make(
    env_id: str, num_envs: int, device: str = "cuda", **kwargs: Any
) -> VectorEnv[torch.Tensor]:
    env = rollouts.make_vec(env_id, num_envs, device=device, **{"seed": 1, **kwargs})
    assert isinstance(env, VectorEnv)
    return env


@pytest.mark.parametrize("mode", ("next_step", "same_step"))
@pytest.mark.parametrize("env_id", LIGHT)
def test_a_card_computes_what_the_host_does(env_id: str, mode: str) -> None:
    arguments: dict[str, Any] = {"autoreset_mode": mode, "max_episode_steps": 60}
    card, host = (make(env_id, 300, device, **arguments) for device in ("cuda", "cpu-emulation"))
    tolerance = {"rtol": 2e-5, "atol": 2e-5} if env_id in REAL else {"rtol": 0.0, "atol": 0.0}
    torch.testing.assert_close(card.reset()[0].cpu(), host.reset()[0], **tolerance)
    all_actions = make(env_id, 300, "cpu-emulation")
    all_actions.reset()
    for actions in all_actions.rollout(200, record=True)[4]["action"]:
        if env_id in REAL:
            card.set_state(None, host.get_state())
        theirs, mine = host.step(actions), card.step(actions.cuda())
        same = torch.ones(300, dtype=torch.bool)
        for one, other in zip(mine[2:4], theirs[2:4], strict=True):
            same &= one.cpu() == other
        assert same.double().mean() > (0.98 if env_id in REAL else 0.999)
        for one, other in zip(mine[:4], theirs[:4], strict=True):
            torch.testing.assert_close(one.cpu()[same], other[same], **tolerance)
    card.synchronize()


@pytest.mark.parametrize("env_id", LIGHT)
def test_many_steps_of_one_launch_are_those_of_many_launches(env_id: str) -> None:
    one, many = make(env_id, 1000), make(env_id, 1000)
    one.reset(), many.reset()
    *rows, info = one.rollout(100, record=True)
    for step, actions in enumerate(info["action"]):
        for mine, theirs in zip(rows, many.step(actions)[:4], strict=True):
            assert torch.equal(mine[step], theirs)
    assert one.get_state() == many.get_state()


def test_steps_are_captured_in_a_graph() -> None:
    captured, launched = make("CartPole-v1", 1000), make("CartPole-v1", 1000)
    captured.reset(), launched.reset()
    actions = torch.zeros(1000, dtype=torch.int64, device="cuda")
    for env in (captured, launched):
        env.step(actions)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        obs, reward, *_ = captured.step(actions)
    for step in range(50):
        actions.copy_(torch.randint(0, 2, (1000,), device="cuda"))
        graph.replay()
        theirs = launched.step(actions)
        assert torch.equal(obs, theirs[0]), step
        assert torch.equal(reward, theirs[1])
    captured.synchronize()


def test_a_thread_of_its_own_may_step() -> None:
    env, other = make("CartPole-v1", 100), make("CartPole-v1", 100)
    env.reset(), other.reset()
    actions = torch.ones(100, dtype=torch.int64, device="cuda")
    with ThreadPoolExecutor(1) as thread:
        mine = thread.submit(env.step, actions).result()
    assert torch.equal(mine[0], other.step(actions)[0])


def test_replays_write_nothing_that_others_hold() -> None:
    env = make("CartPole-v1", 100)
    env.reset()
    actions = torch.zeros(100, dtype=torch.int64, device="cuda")
    env.step(actions)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        env.step(actions)
    held = [env.step(actions)[0] for _ in range(3)]
    copies = [one.clone() for one in held]
    for _ in range(5):
        graph.replay()
    env.synchronize()
    assert all(torch.equal(one, then) for one, then in zip(held, copies, strict=True))


def test_launches_go_on_the_current_stream() -> None:
    env, other = make("CartPole-v1", 1000), make("CartPole-v1", 1000)
    env.reset(), other.reset()
    actions = torch.ones(1000, dtype=torch.int64, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(30):
            obs = env.step(actions)[0]
    torch.cuda.current_stream().wait_stream(stream)
    for _ in range(30):
        theirs = other.step(actions)[0]
    assert torch.equal(obs, theirs)


def test_what_goes_wrong_is_told_at_the_next_wait() -> None:
    env = make("CartPole-v1", 1000)
    env.reset()
    actions = torch.zeros(1000, dtype=torch.int64, device="cuda")
    actions[[700, 300]] = 9
    env.step(actions)
    with pytest.raises(EnvError, match="environment 300 got an action"):
        env.synchronize()


AGENTS = [one for one in rollouts.multi_agent_ids() if "/" not in one]
CROWD = {
    "num_taggers": 5,
    "num_runners": 100,
    "use_full_observation": False,
    "num_other_agents_observed": 10,
    "tagging_distance": 0.02,
    "randomize_starts": True,
}
# dynamics in whole numbers
EXACT = ("TagGridWorld-v0", "simple_crypto_v3")


def make_agents(env_id: str, num_envs: int, device: str, **kwargs: Any) -> Any:
    options = CROWD if env_id == "TagContinuous-v0" else {}
    arguments = {"seed": 1, "max_episode_steps": 25, **options, **kwargs}
    env = rollouts.make_vec(env_id, num_envs, device=device, **arguments)
    assert isinstance(env, MultiAgentVectorEnv)
    return env


def by_group(one: Any) -> dict[str, torch.Tensor]:
    return {
        name: each.cpu() for name, each in (one if isinstance(one, dict) else {"": one}).items()
    }


@pytest.mark.parametrize("mode", ("next_step", "same_step"))
@pytest.mark.parametrize("env_id", AGENTS)
def test_a_card_steps_worlds_as_the_host_does(env_id: str, mode: str) -> None:
    card, host = (
        make_agents(env_id, 100, device, autoreset_mode=mode)
        for device in ("cuda", "cpu-emulation")
    )
    card.reset(), host.reset()
    exact = env_id in EXACT
    tolerance = {"rtol": 0.0, "atol": 0.0} if exact else {"rtol": 1e-5, "atol": 1e-5}
    host.action_space.seed(0)
    num_same = num_all = 0
    for _ in range(60):
        if not exact:
            card.set_state(None, host.get_state())
        actions = host.action_space.sample()
        theirs, mine = host.step(actions), card.step(actions)
        # sine and cosine are others on a card, in their last bit: an agent may be just tagged, and
        # a neighbour just nearer
        same = torch.ones(100, dtype=torch.bool)
        for one, other in zip(mine[2:4], theirs[2:4], strict=True):
            for name, ends in by_group(one).items():
                same &= (ends == by_group(other)[name]).all(1)
        for one, other in zip(mine[:2], theirs[:2], strict=True):
            for name, array in by_group(one).items():
                close = torch.isclose(array, by_group(other)[name], **tolerance)
                same &= close.flatten(1).all(1)
        num_same, num_all = num_same + int(same.sum()), num_all + 100
    assert num_same >= (num_all if exact else 0.98 * num_all)
    card.synchronize()


@pytest.mark.parametrize("env_id", AGENTS)
def test_many_steps_of_worlds_in_one_launch_are_those_of_many(env_id: str) -> None:
    one, many = (make_agents(env_id, 300, "cuda") for _ in range(2))
    one.reset(), many.reset()
    *rows, info = one.rollout(60, record=True)
    taken = info["action"]
    for step in range(60):
        actions = (
            {name: each[step] for name, each in taken.items()}
            if isinstance(taken, dict)
            else taken[step]
        )
        for mine, theirs in zip(rows, many.step(actions)[:4], strict=True):
            for name, array in by_group(theirs).items():
                assert torch.equal(by_group(mine)[name][step], array)
    assert one.get_state() == many.get_state()


def test_steps_of_worlds_are_captured_in_a_graph() -> None:
    captured, launched = (make_agents("TagContinuous-v0", 200, "cuda") for _ in range(2))
    captured.reset(), launched.reset()
    actions = captured.rollout(1, record=True)[4]["action"]
    launched.rollout(1)
    actions = {name: one[0].clone() for name, one in actions.items()}
    for env in (captured, launched):
        env.step(actions)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        obs, *_ = captured.step(actions)
    for step in range(40):
        for one in actions.values():
            one.copy_(torch.randint(0, 11, one.shape, device="cuda"))
        graph.replay()
        theirs = launched.step(actions)[0]
        assert all(torch.equal(obs[name], theirs[name]) for name in obs), step
    captured.synchronize()


@pytest.mark.parametrize("env_id", ("FrozenLake-v1", "simple_tag_v3"))
def test_a_card_collects_what_the_host_does(env_id: str) -> None:
    torch.manual_seed(0)
    found = []
    for device in ("cuda", "cpu-emulation"):
        env: Any = rollouts.make_vec(
            env_id, 300, device=device, seed=1, autoreset_mode="same_step", max_episode_steps=11
        )
        groups = getattr(env, "groups", {"": env})
        policies = {}
        for name, group in groups.items():
            space = group.single_observation_space
            size = int(space.n) if hasattr(space, "n") else int(space.shape[0])
            torch.manual_seed(size)
            first = torch.nn.Embedding(size, 8) if hasattr(space, "n") else torch.nn.Linear(size, 8)
            count = int(group.single_action_space.n)
            policies[name] = rollouts.TorchPolicy(
                TwoHeads(first, count), group.single_action_space, device=env.device
            )
        collector = rollouts.Collector(env, policies, 30, returns=Gae(gamma=0.99, gae_lambda=0.95))
        rollout = collector.collect()
        collector.synchronize()
        found.append(rollout if isinstance(rollout, dict) else {"": rollout})
    for name, theirs in found[1].items():
        for field in ("obs", "action", "log_prob", "value", "bootstrap_value"):
            assert torch.equal(getattr(found[0][name], field).cpu(), getattr(theirs, field)), field
        advantage = found[0][name].extras["advantage"].cpu()
        assert torch.equal(advantage, theirs.extras["advantage"])


class TwoHeads(torch.nn.Module):
    """Logits and a value behind a layer."""

    def __init__(self, first: torch.nn.Module, num_actions: int) -> None:
        super().__init__()
        self.first = first
        self.actor, self.critic = torch.nn.Linear(8, num_actions), torch.nn.Linear(8, 1)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = torch.tanh(self.first(obs))
        return self.actor(hidden), self.critic(hidden)


# sums of tensor cores are not rounded to the nearest, and some bits of an addition are cut off
CARD_LOST = 8 * HALF_ULP


@pytest.mark.parametrize("shared", (False, True))
def test_a_policy_on_tensor_cores_is_the_network_of_rounded_operands(shared: bool) -> None:
    # more rows than one block has
    env = make("CartPole-v1", 500, max_episode_steps=20, autoreset_mode="same_step")
    torch.manual_seed(0)
    space = env.single_action_space
    module = DenseAgent(env.single_observation_space, space, shared=shared)
    policy = rollouts.TorchPolicy(module, space, device=env.device)
    options: dict[str, Any] = {"policy_dtype": "bfloat16", "outputs": ("logits",)}
    collector = rollouts.Collector(env, policy, 30, keep_final_obs=True, **options)
    batch = collector.collect()
    env.synchronize()
    module.cpu()
    cut = (batch.truncated & ~batch.terminated).cpu()
    assert cut.any() and batch.final_obs is not None
    logits, value = bounds_of(module, batch.obs.flatten(0, 1).cpu(), CARD_LOST)
    (*_, last) = bounds_of(module, batch.final_obs.cpu()[cut], CARD_LOST)
    for found, (exact, error) in (
        (batch.extras["logits"].flatten(0, 1), logits),
        (batch.value.reshape(-1, 1), value),
        (batch.bootstrap_value.cpu()[cut].unsqueeze(-1), last),
    ):
        assert ((found.cpu().double() - exact).abs() <= error).all()
    drawn = torch.distributions.Categorical(logits=batch.extras["logits"])  # type: ignore[no-untyped-call]
    expected = drawn.log_prob(batch.action)  # type: ignore[no-untyped-call]
    torch.testing.assert_close(batch.log_prob, expected, rtol=1e-5, atol=1e-6)
    host = make(
        "CartPole-v1", 500, "cpu-emulation", max_episode_steps=20, autoreset_mode="same_step"
    )
    policy = rollouts.TorchPolicy(module, space)
    emulated = rollouts.Collector(host, policy, 1, **options).collect()
    (*_, (_, error)) = bounds_of(module, emulated.obs[0], CARD_LOST)
    assert ((emulated.value[0] - batch.value[0].cpu()).abs() <= 2 * error[:, 0]).all()
    assert (emulated.action[0] == batch.action[0].cpu()).double().mean() > 0.99
