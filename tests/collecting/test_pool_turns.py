# SPDX-License-Identifier: Apache-2.0
"""A pool has one collector at a time: what others did in between is found before the next rollout,
and dict observations before the first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra torch")

from torch import Tensor, nn

import rollouts
from rollouts import Collector, ProtocolError, SpecError
from rollouts.collecting.evaluation import evaluate
from rollouts.policy import TorchPolicy

NUM_ENVS = 3


class Net(nn.Module):
    def __init__(self, num_obs: int, num_actions: int) -> None:
        super().__init__()
        self.actor, self.critic = nn.Linear(num_obs, num_actions), nn.Linear(num_obs, 1)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        return self.actor(obs), self.critic(obs)


def policy_of(env: Any) -> TorchPolicy:
    return TorchPolicy(Net(4, 2), env.single_action_space)


def native(**options: Any) -> Any:
    return rollouts.make_vec("CartPole-v1", NUM_ENVS, seed=1, autoreset_mode="same_step", **options)


def hosted(num_processes: int) -> Any:
    return rollouts.from_env_fns(
        [lambda: gymnasium.make("CartPole-v1")] * NUM_ENVS,
        num_processes=num_processes,
        autoreset_mode="same_step",
    )


def collect_with(**kwargs: Any) -> Callable[[Any], Any]:
    return lambda env: Collector(env, policy_of(env), 4, **kwargs)


KINDS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "native": (native, collect_with(engine="native")),
    "native, ahead": (native, collect_with(prefetch=1)),
    "torch": (native, collect_with(engine="torch")),
    "asynchronous": (lambda: native(batch_size=2), collect_with()),
    "Python in this process": (lambda: hosted(0), collect_with()),
    "Python in a process": (lambda: hosted(1), collect_with()),
    "a device": (lambda: native(device="cpu-emulation"), collect_with()),
    "a device, ahead": (lambda: native(device="cpu-emulation"), collect_with(prefetch=1)),
}


CALLS: dict[str, Callable[[Any], Any]] = {
    "a step": lambda env: env.step(env.action_space.sample() * 0),
    "a reset": lambda env: env.reset(),
    "another collector": lambda env: Collector(env, policy_of(env), 2).collect(),
}


@pytest.mark.parametrize("call", list(CALLS))
@pytest.mark.parametrize("kind", list(KINDS))
def test_a_collector_finds_that_others_used_its_pool(kind: str, call: str) -> None:
    make, collect = KINDS[kind]
    env = make()
    if kind == "asynchronous" and call == "a step":
        call = "a reset"
    collector = collect(env)
    collector.collect()
    collector.collect()
    try:
        CALLS[call](env)
    except ProtocolError:
        # the next rollout is under way, and goes on
        assert kind == "native, ahead"
        collector.collect()
        return
    with pytest.raises(ProtocolError, match="since this collector's last rollout"):
        collector.collect()
    # the next one begins new episodes
    first = collector.collect()
    second = collector.collect()
    np.testing.assert_array_equal(np.asarray(first.last_obs), np.asarray(second.obs[0]))
    env.close()


def test_states_that_are_set_are_found_and_stats_are_not() -> None:
    env = native()
    collector = Collector(env, policy_of(env), 4)
    collector.collect()
    states = env.get_state()
    env.stats()
    env.reset_stats()
    collector.collect()
    env.set_state(None, states)
    with pytest.raises(ProtocolError, match="last rollout"):
        collector.collect()
    collector.collect()
    env.set_state(None, states)
    collector.reset()
    collector.collect()
    env.close()


def test_a_collector_may_be_made_of_a_pool_that_was_stepped() -> None:
    env = native()
    env.reset(seed=3)
    env.step(np.zeros(NUM_ENVS, np.int64))
    collector = Collector(env, policy_of(env), 4)
    env.reset(seed=3)
    collector.collect()
    env.close()


def test_a_rollout_that_ran_out_of_time_goes_on() -> None:
    env = native()
    collector = Collector(env, policy_of(env), 50, engine="torch")
    batch = None
    while batch is None:
        try:
            batch = collector.collect(timeout_s=0)
        except TimeoutError:
            continue
    env.close()


def test_evaluation_in_the_pool_of_training_is_found() -> None:
    env = native()
    collector = Collector(env, policy_of(env), 4)
    collector.collect()
    evaluate(env, policy_of(env), NUM_ENVS)
    with pytest.raises(ProtocolError, match="evaluation"):
        collector.collect()
    env.close()


@pytest.mark.parametrize("engine", ["native", "torch"])
@pytest.mark.parametrize("as_rows", [False, True])
def test_collectors_of_agents_find_it_too(engine: Any, as_rows: bool) -> None:
    env = rollouts.make_vec("simple_spread_v3", 2, seed=1, autoreset_mode="same_step")
    group = next(iter(env.groups.values()))
    size = int(np.prod(group.single_observation_space.shape))
    policy = TorchPolicy(Net(size, int(group.single_action_space.n)), group.single_action_space)
    if as_rows:
        collector: Any = Collector(env.as_single_agent(), policy, 4)
    else:
        collector = Collector(env, policy, 4, engine=engine)
    collector.collect()
    env.reset()
    with pytest.raises(ProtocolError, match="last rollout"):
        collector.collect()
    collector.collect()
    env.close()


def dicts() -> Any:
    class Dicts(gymnasium.Env[Any, Any]):
        observation_space = gymnasium.spaces.Dict(a=gymnasium.spaces.Box(-1, 1, (2,)))
        action_space = gymnasium.spaces.Discrete(2)

    return rollouts.from_env_fns([Dicts] * 2, num_processes=0, autoreset_mode="same_step")


def parts(**options: Any) -> Any:
    return rollouts.make_vec(
        "CheetahRun-v1", 2, autoreset_mode="same_step", flatten_observation=False, **options
    )


@pytest.mark.parametrize("make", [parts, dicts])
def test_dict_observations_are_refused_in_one_sentence(make: Callable[[], Any]) -> None:
    env = make()
    policy: Any = None
    for call in (lambda: Collector(env, policy, 4), lambda: evaluate(env, policy, 4)):
        with pytest.raises(SpecError, match="expected one array: leave flatten_observation=False"):
            call()
    env.close()
