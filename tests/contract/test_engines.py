# SPDX-License-Identifier: Apache-2.0
"""Promises of both faces, whichever engine steps their environments."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Iterator
from contextlib import closing
from dataclasses import fields
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import ParallelEnv

import rollouts
from rollouts import ClosedError, ProtocolError, SpecError
from rollouts.features import cannot

pytestmark = pytest.mark.system

NUM_ENVS = 4
# engine and agents: id, arguments of make_vec, and an option with two values
KERNEL = {"device": "cpu-emulation"}
CELLS: dict[str, tuple[str, dict[str, Any], tuple[str, Any, Any]]] = {
    "native, one agent": ("CartPole-v1", {}, ("gravity", 9.8, 3.0)),
    "native, agents": ("TagGridWorld-v0", {}, ("wall_hit_penalty", 0.1, 2.0)),
    "kernel, one agent": ("CartPole-v1", KERNEL, ("gravity", 9.8, 3.0)),
    "kernel, agents": ("TagGridWorld-v0", KERNEL, ("wall_hit_penalty", 0.1, 2.0)),
    "physics, one agent": ("HalfCheetah-v5", KERNEL, ("forward_reward_weight", 1.0, 2.0)),
}


# those whose environments are in Python
HOSTED = ("hosted, one agent", "hosted, agents")
ALL = (*CELLS, *HOSTED)


class Walk(ParallelEnv[str, Any, Any]):
    """Two walkers of PettingZoo's interface, whose places say what they did and their luck."""

    possible_agents = ("walker_0", "walker_1")
    metadata: dict[str, Any] = {}  # noqa: RUF012 (PettingZoo declares it so)

    def __init__(self, limit: int) -> None:
        self.agents: list[str] = []
        self._limit, self._rng = limit, np.random.default_rng(0)

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(-99, 99, (2,), np.float32)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self.agents, self._steps = [*self.possible_agents], 0
        self._places = {name: self._rng.random(2, np.float32) for name in self.agents}
        return dict(self._places), {}

    def step(self, actions: Any) -> Any:
        self._steps += 1
        present = self.agents
        self._places = {name: self._places[name] + actions[name] for name in present}
        over = dict.fromkeys(present, self._steps == self._limit)
        self.agents = [] if self._steps == self._limit else present
        rewards, stays = dict.fromkeys(present, 1.0), dict.fromkeys(present, False)
        return dict(self._places), rewards, stays, over, {name: {} for name in present}


@pytest.fixture(params=ALL, ids=[name.replace(", ", "_").replace(" ", "_") for name in ALL])
def cell(request: pytest.FixtureRequest) -> str:
    if "physics" in request.param:
        pytest.importorskip("mujoco_warp")
    if "native" not in request.param:
        pytest.importorskip("torch")
    return request.param


def make(cell: str, *, max_episode_steps: int = 500, **arguments: Any) -> Any:
    if cell in HOSTED:
        arguments = {"seed": 3, "num_processes": 0, **arguments}
        if cell == "hosted, agents":
            walks: Any = [functools.partial(Walk, max_episode_steps)] * NUM_ENVS
            return rollouts.from_parallel_env_fns(walks, **arguments)
        one = functools.partial(gymnasium.make, "CartPole-v1", max_episode_steps=max_episode_steps)
        return rollouts.from_env_fns([one] * NUM_ENVS, **arguments)
    arguments["max_episode_steps"] = max_episode_steps
    env_id, where, _ = CELLS[cell]
    return rollouts.make_vec(env_id, NUM_ENVS, **{"seed": 3, **where, **arguments})


@pytest.fixture
def env(cell: str) -> Iterator[Any]:
    with make(cell, max_episode_steps=5, autoreset_mode="same_step") as made:
        made.reset()
        yield made


@pytest.fixture
def twin(cell: str) -> Iterator[Any]:
    with make(cell, max_episode_steps=5, autoreset_mode="same_step") as made:
        made.reset()
        yield made


def needs(env: Any, feature: str) -> None:
    """Ends the test where the engine lacks it, as `test_what_an_engine_lacks...` checks."""
    if feature not in env.engine.can:
        pytest.skip(cannot(env.engine.name, feature))


def actions_of(env: Any, step: int = 0) -> Any:
    env.action_space.seed(step)
    return env.action_space.sample()


def plain(value: Any) -> Any:
    """Copies of arrays and tensors, by their names and places."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, tuple):
        return tuple(plain(one) for one in value)
    if hasattr(value, "numpy"):
        return value.clone().numpy()
    if isinstance(value, np.ndarray) and value.dtype == object:
        # Gymnasium's layout of final observations
        return [None if one is None else plain(one) for one in value]
    return np.array(value)


def assert_same(one: Any, other: Any) -> None:
    np.testing.assert_equal(plain(one), plain(other))


def ended(five: Any) -> Any:
    info = five[4]
    return plain(info["ended"] if "ended" in info else five[2] | five[3])


def test_a_step_is_send_and_recv(env: Any, twin: Any) -> None:
    for step in range(12):
        actions = actions_of(env, step)
        one = plain(env.step(actions))
        twin.send(actions)
        assert twin.num_in_flight == NUM_ENVS
        assert_same(one, twin.recv())
        assert twin.num_in_flight == 0


def test_a_batch_has_the_arrays_of_a_step(env: Any, twin: Any) -> None:
    for step in range(7):
        actions = actions_of(env, step)
        obs, reward, terminated, truncated, info = plain(env.step(actions))
        twin.send(actions)
        batch = twin.recv_batch()
        assert_same((batch.obs, batch.reward), (obs, reward))
        assert_same((batch.terminated, batch.truncated), (terminated, truncated))
        for name in ("env_id", "episode_return", "episode_length"):
            # environments in Python with one agent have Gymnasium's infos, and no others
            if name in info or env.engine.kind != "hosted":
                assert_same(getattr(batch, name), info[name])
        assert batch.final_obs is not None
        assert type(batch.env_id) is type(batch.episode_length)


def test_drain_returns_what_is_in_flight_and_then_no_rows(env: Any, twin: Any) -> None:
    actions = actions_of(env)
    env.send(actions)
    assert_same(twin.step(actions), env.drain())
    ends = env.drain()[2]
    assert not any(map(len, ends.values() if isinstance(ends, dict) else [ends]))
    assert_same(twin.step(actions), env.step(actions))


def test_async_reset_begins_what_reset_does(env: Any, twin: Any) -> None:
    obs, _ = plain(twin.reset())
    env.async_reset()
    batch = env.recv_batch()
    assert_same(obs, batch.obs)
    assert plain(batch.episode_length).tolist() == [0] * NUM_ENVS


def test_a_masked_reset_leaves_the_others_alone(env: Any) -> None:
    env.step(actions_of(env))
    mask = np.arange(NUM_ENVS) % 2 == 0
    env.reset(options={"reset_mask": mask})
    env.send(actions_of(env))
    assert plain(env.recv_batch().episode_length).tolist() == np.where(mask, 1, 2).tolist()
    with pytest.raises((SpecError, rollouts.DTypeError), match="reset_mask"):
        env.reset(options={"reset_mask": mask[1:]})


def test_states_go_on_in_another_environment(env: Any, twin: Any) -> None:
    needs(env, "states")
    for step in range(3):
        env.step(actions_of(env, step))
    twin.set_state(None, env.get_state())
    assert twin.get_state() == env.get_state()
    for step in range(12):
        assert_same(plain(env.step(actions_of(env, step))), twin.step(actions_of(env, step)))
    some = env.get_state([1, 3])
    twin.set_state([2, 0], some)
    assert twin.get_state([2, 0]) == some


def test_what_is_in_flight_has_no_state(env: Any) -> None:
    needs(env, "states")
    states = env.get_state()
    env.send(actions_of(env))
    with pytest.raises(ProtocolError):
        env.get_state()
    with pytest.raises(ProtocolError):
        env.set_state(None, states)
    with pytest.raises(ProtocolError):
        env.send(actions_of(env))
    env.drain()
    env.set_state(None, states)


def test_options_that_a_reset_changes_are_in_force(cell: str, env: Any) -> None:
    needs(env, "options")
    name, before, after = CELLS[cell][2]
    assert env.env_options[name] == pytest.approx(before)
    mask = np.array([True, False, False, True])
    env.reset(options={name: after, "reset_mask": mask})
    np.testing.assert_array_equal(env.env_options[name], np.where(mask, after, before))
    env.reset(options={name: after})
    assert env.env_options[name] == after
    with pytest.raises(SpecError, match="gravitee"):
        env.reset(options={"gravitee": 1})


def test_options_on_a_device_are_those_of_the_native_pool(cell: str, env: Any) -> None:
    needs(env, "options")
    with rollouts.make_vec(CELLS[cell][0], NUM_ENVS) as native:
        expected = native.env_options
    # mujoco_warp computes and shows 32 bits
    expected |= {"obs_dtype": "float32"} if "obs_dtype" in expected and env.device else {}
    assert_same(expected, env.env_options)


def test_every_call_counts(env: Any) -> None:
    calls = [
        lambda: env.step(actions_of(env)),
        lambda: env.send(actions_of(env)),
        lambda: env.recv(),
        lambda: env.reset(),
        lambda: env.async_reset(),
        lambda: env.drain(),
    ]
    if "states" in env.engine.can:
        calls.append(lambda: env.set_state(None, env.get_state()))
    for call in calls:
        before = env.num_calls
        call()
        assert env.num_calls > before


def test_counts_begin_anew(env: Any) -> None:
    env.step(actions_of(env))
    assert env.stats().env_steps == NUM_ENVS
    env.reset_stats()
    assert env.stats().env_steps == 0
    for step in range(6):
        env.step(actions_of(env, step))
    assert env.stats().env_steps == 6 * NUM_ENVS


def test_what_an_episode_ended_with_comes_with_its_end(env: Any) -> None:
    seen_end = False
    for step in range(6):
        five = env.step(actions_of(env, step))
        now = ended(five)
        if now.any():
            seen_end = True
            assert "final_obs" in five[4]
    assert seen_end


def test_a_pickle_makes_fresh_environments_of_the_same_seed(env: Any, twin: Any) -> None:
    env.step(actions_of(env))
    copied = pickle.loads(pickle.dumps(env))
    with closing(copied):
        assert repr(copied) == repr(env)
        assert type(copied) is type(env) and type(copied.engine) is type(env.engine)
        copied.reset()
        assert_same(twin.step(actions_of(env)), copied.step(actions_of(env)))


def test_seeds_begin_streams_anew(env: Any, twin: Any) -> None:
    first = plain(env.reset(seed=11)[0])
    env.step(actions_of(env))
    assert_same(first, env.reset(seed=11)[0])
    # a number is each native environment's seed, whose stream is its own; Gymnasium counts on
    counts_on = env.engine.kind == "hosted"
    assert_same(first, twin.reset(seed=[11 + counts_on * one for one in range(NUM_ENVS)])[0])
    for bad in ([1], -1, "one"):
        with pytest.raises((SpecError, rollouts.DTypeError)):
            env.reset(seed=bad)


TRIED = {
    "out": lambda env: env.send(
        actions_of(env), out={"episode_length": np.zeros(NUM_ENVS, np.int32)}
    ),
    "async": lambda env: env.recv(min_envs=1),
    "render": lambda env: env.render(),
    "rollout": lambda env: env.rollout(3),
    "model": lambda env: env.engine.model_fields(),
    "masks": lambda env: env.engine.action_masks(),
    "xla": lambda env: env.engine.xla_handle(),
    "states": lambda env: env.get_state(),
    "options": lambda env: env.env_options,
    "agent_rows": lambda env: env.as_single_agent(),
    "statistics": lambda env: env.engine.statistics.read("observation"),
    "collect": lambda env: env.engine.collect([], [], False, None, None, None),
}


def test_what_an_engine_lacks_is_refused_and_changes_nothing(env: Any, twin: Any) -> None:
    # the same environments for all: to make those of a device takes longer than to try
    for step, (feature, use) in enumerate(TRIED.items()):
        if feature in env.engine.can or (feature == "agent_rows" and not env.engine.groups):
            continue
        with pytest.raises((SpecError, ProtocolError)) as error:
            use(env)
        if env.device is not None:
            assert str(error.value) == cannot(env.engine.name, feature)
        assert_same(plain(env.step(actions_of(env, step))), twin.step(actions_of(env, step)))


def test_calls_in_the_wrong_order_say_so(cell: str, env: Any) -> None:
    with pytest.raises(ProtocolError):
        env.recv()
    with make(cell) as fresh, pytest.raises(ProtocolError):
        fresh.step(actions_of(env))


def test_after_close_calls_are_refused(env: Any) -> None:
    env.close()
    env.close()
    calls = [env.reset, env.async_reset, env.recv]
    if "states" in env.engine.can:
        calls += [env.get_state, lambda: env.env_options]
    for call in calls:
        with pytest.raises(ClosedError):
            call()
    with pytest.raises(ClosedError):
        env.step(actions_of(env))


def test_counts_stay_readable_after_close(env: Any) -> None:
    for step in range(7):
        env.step(actions_of(env, step))
    before = env.stats()
    env.close()
    after = env.stats()
    assert type(after) is type(before) and after.env_steps == before.env_steps == 7 * NUM_ENVS
    if env.device is not None:
        assert_same(vars_of(after), vars_of(before))
        assert after.num_episodes >= NUM_ENVS
    assert env.num_in_flight == 0
    assert len(env.env_specs) == NUM_ENVS
    env.reset_stats()
    assert env.stats().env_steps == 0


def vars_of(stats: Any) -> dict[str, Any]:
    return {one.name: getattr(stats, one.name) for one in fields(stats)}
