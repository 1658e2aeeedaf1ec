# SPDX-License-Identifier: Apache-2.0
"""Promises of every environment with several agents, whatever its rules."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from own_envs import has_compiler

import rollouts
from rollouts import MultiAgentVectorEnv
from rollouts.envs.native import NativeEngine

# the last is a user's own, which conftest.py registers
IDS = rollouts.multi_agent_ids() + (["Herd-v0"] if has_compiler() else [])
NUM_ENVS = 5

every_id = pytest.mark.parametrize("env_id", IDS)


def make(env_id: str, num_envs: int = NUM_ENVS, **arguments: Any) -> MultiAgentVectorEnv:
    env = rollouts.make_vec(env_id, num_envs, **{"seed": 3, "num_threads": 2, **arguments})
    assert isinstance(env, MultiAgentVectorEnv)
    return env


def by_group(env: MultiAgentVectorEnv, arrays: Any) -> dict[str, Any]:
    """{group: array}, also where one group's array comes alone."""
    return arrays if isinstance(arrays, dict) else {next(iter(env.groups)): arrays}


def actions_of(env: MultiAgentVectorEnv, step: int, rows: int | None = None) -> dict[str, Any]:
    """The same actions for the same step, whatever else."""
    space = env.action_space
    space.seed(step)
    return {
        name: array[: rows or len(array)] for name, array in by_group(env, space.sample()).items()
    }


def assert_equal(one: Any, other: Any) -> None:
    """Nested dicts and tuples of arrays are equal."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            assert_equal(one[name], other[name])
    elif isinstance(one, tuple):
        for each, its in zip(one, other, strict=True):
            assert_equal(each, its)
    else:
        np.testing.assert_array_equal(one, other)


def play(env: MultiAgentVectorEnv, steps: int = 8) -> list[Any]:
    """Copies of what the steps return."""
    seen = [pickle.loads(pickle.dumps(env.reset()))]
    for step in range(steps):
        seen.append(pickle.loads(pickle.dumps(env.step(actions_of(env, step)))))
    return seen


@every_id
@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_arrays_have_the_shapes_of_the_spaces(env_id: str, mode: str) -> None:
    with make(env_id, autoreset_mode=mode) as env:
        obs, info = env.reset()
        assert obs in env.observation_space
        obs, reward, terminated, truncated, info = env.step(actions_of(env, 0))
        assert obs in env.observation_space
        assert ("final_obs" in info) == (mode == "same_step")
        for arrays, dtype in (
            (reward, np.float64),
            (terminated, np.bool_),
            (truncated, np.bool_),
            (info["active"], np.bool_),
            (info["episode_return"], np.float64),
        ):
            for name, array in by_group(env, arrays).items():
                assert array.shape == (NUM_ENVS, env.groups[name].num_agents)
                assert array.dtype == dtype
        assert sum(group.num_agents for group in env.groups.values()) == len(env.agents)
        spec = rollouts.env_spec(env_id)
        assert set(spec.single_action_space) == set(env.agents)


@every_id
def test_data_do_not_depend_on_threads_batches_or_order(env_id: str) -> None:
    runs = []
    for threads in (1, 2, 4):
        with make(env_id, num_threads=threads, max_episode_steps=3) as env:
            runs.append(play(env))
    for run in runs[1:]:
        assert_equal(tuple(run), tuple(runs[0]))
    # in asynchronous mode each environment goes its own way to the same rows
    with make(env_id, batch_size=2, max_episode_steps=3) as env:
        env.async_reset()
        at = np.zeros(NUM_ENVS, np.int64)
        for _ in range(20):
            batch = env.recv_batch()
            for row, env_id_ in enumerate(batch.env_id):
                step = at[env_id_]
                if step < len(runs[0]):
                    wanted = runs[0][step]
                    for name, array in by_group(env, batch.obs).items():
                        want = by_group(env, wanted[0])[name][env_id_]
                        np.testing.assert_array_equal(array[row], want)
            actions = []
            for env_id_ in batch.env_id:
                full = actions_of_all(env, int(at[env_id_]))
                actions.append({name: array[env_id_] for name, array in full.items()})
            at[batch.env_id] += 1
            env.send({name: np.stack([one[name] for one in actions]) for name in env.groups})


def actions_of_all(env: MultiAgentVectorEnv, step: int) -> dict[str, Any]:
    """Actions of all environments, as a synchronous one of the same size samples them."""
    with make(env.env_spec.id, env.num_envs) as whole:
        return actions_of(whole, step)


@every_id
def test_next_step_mode_begins_in_the_step_after_the_end(env_id: str) -> None:
    with make(env_id, max_episode_steps=3) as env:
        env.reset()
        ended = np.zeros(NUM_ENVS, np.bool_)
        for step in range(9):
            _, reward, terminated, truncated, info = env.step(actions_of(env, step))
            for name, rewards in by_group(env, reward).items():
                over = by_group(env, terminated)[name] | by_group(env, truncated)[name]
                assert not rewards[ended].any() and not over[ended].any()
                assert by_group(env, info["active"])[name][ended].all()
                assert not by_group(env, info["episode_return"])[name][ended].any()
                # the episode's end is that of everybody who was still in it
                assert (over == by_group(env, info["active"])[name])[info["ended"]].all()
            assert not info["episode_length"][ended].any()
            ended = info["ended"].copy()


@every_id
def test_same_step_mode_shows_the_next_episode_and_keeps_the_last(env_id: str) -> None:
    with (
        make(env_id, max_episode_steps=3, autoreset_mode="same_step") as same,
        make(env_id, max_episode_steps=3) as next_step,
    ):
        same.reset()
        next_step.reset()
        for step in range(2):
            same.step(actions_of(same, step))
            next_step.step(actions_of(next_step, step))
        obs, reward, terminated, truncated, info = same.step(actions_of(same, 2))
        late = next_step.step(actions_of(next_step, 2))
        assert info["ended"].all()
        assert_equal((info["final_obs"], reward, terminated, truncated), late[:4])
        assert_equal(obs, next_step.step(actions_of(next_step, 3))[0])


@every_id
def test_disabled_mode_waits_for_a_reset(env_id: str) -> None:
    with make(env_id, max_episode_steps=1, autoreset_mode="disabled") as env:
        env.reset()
        env.step(actions_of(env, 0))
        with pytest.raises(rollouts.ProtocolError, match="autoreset is disabled"):
            env.step(actions_of(env, 1))
        mask = np.arange(NUM_ENVS) > 0
        shown, info = env.reset(options={"reset_mask": mask})
        assert info["episode_length"].tolist() == [1] + [0] * (NUM_ENVS - 1)
        assert shown in env.observation_space


@every_id
def test_a_state_goes_on_as_it_would_have(env_id: str) -> None:
    with make(env_id, max_episode_steps=6) as env:
        env.reset()
        env.step(actions_of(env, 0))
        states = env.get_state()
        ahead = [pickle.loads(pickle.dumps(env.step(actions_of(env, 1 + i)))) for i in range(9)]
        env.set_state(None, states)
        for i in range(9):
            assert_equal(env.step(actions_of(env, 1 + i)), ahead[i])
        with make(env_id, max_episode_steps=6, seed=9) as other:
            other.set_state(None, states)
            assert_equal(other.step(actions_of(other, 1)), ahead[0])


@every_id
def test_out_arrays_are_written_and_returned(env_id: str) -> None:
    with make(env_id) as env, make(env_id) as plain:
        env.reset()
        plain.reset()
        obs = {
            name: np.zeros(
                (NUM_ENVS, group.num_agents, *group.single_observation_space.shape), "f4"
            )
            for name, group in env.groups.items()
        }
        env_ids = np.zeros(NUM_ENVS, np.int32)
        got = env.step(actions_of(env, 0), out={"obs": obs, "env_id": env_ids})
        wanted = plain.step(actions_of(plain, 0))
        assert_equal(got, wanted)
        for name, array in by_group(env, got[0]).items():
            assert array is obs[name]
        assert got[4]["env_id"] is env_ids
        name = next(iter(obs))
        with pytest.raises(rollouts.SpecError, match=rf"out\['obs'\]\['{name}'\] has shape"):
            env.send(actions_of(env, 0), out={"obs": {name: obs[name][:2]}})
        assert env.num_in_flight == 0


@every_id
def test_bad_actions_are_named_and_nothing_moves(env_id: str) -> None:
    with make(env_id) as env, make(env_id) as plain:
        env.reset()
        plain.reset()
        good = actions_of(env, 0)
        name = next(iter(good))
        bad = {name: np.array(good[name]) for name in good}
        bad[name][2, -1] = 99 if bad[name].dtype.kind == "i" else np.nan
        agent = f"{name}_{env.groups[name].num_agents - 1}"
        with pytest.raises(rollouts.SpecError, match=f"agent {agent} in row 2"):
            env.step(bad)
        with pytest.raises(rollouts.SpecError, match=r"no group|must be a dict|hold an array"):
            env.step({})
        with pytest.raises(rollouts.SpecError, match="unknown group 'nobody'"):
            env.step({**good, "nobody": good[name]})
        with pytest.raises(rollouts.SpecError, match=f"group '{name}' has shape"):
            env.step({**good, name: good[name][:, :0]})
        with pytest.raises(rollouts.DTypeError, match=f"group '{name}' has dtype"):
            env.step({**good, name: np.zeros(good[name].shape, complex)})
        assert_equal(env.step(good), plain.step(good))


@every_id
def test_it_is_made_again_from_its_arguments(env_id: str) -> None:
    with make(env_id, max_episode_steps=4) as env:
        with pickle.loads(pickle.dumps(env)) as copy:
            assert repr(copy) == repr(env)
            assert_equal(tuple(play(copy)), tuple(play(env)))
        assert env.stats().env_steps > 0


def test_a_failure_ends_one_environment_and_is_told() -> None:
    # the second environment alone fails: two tags at once are above all 32-bit numbers
    rewards = np.array([1.0, 3e38])
    options: dict[str, Any] = {
        "grid_length": 1.0,
        "tagging_distance": 1.0,
        "runner_exits_game_after_tagged": False,
        "tag_reward_for_tagger": rewards,
    }
    with make("TagContinuous-v0", 2, on_env_error="reset", **options) as env:
        env.reset()
        _, reward, _, truncated, info = env.step(actions_of(env, 0))
        assert info["_env_error"].tolist() == [False, True]
        assert "the reward of agent tagger_0 is inf" in info["env_error"][1]
        assert truncated["runner"].tolist() == [[False] * 10, [True] * 10]
        assert np.isfinite(reward["tagger"]).all() and not reward["tagger"][1].any()
        assert info["ended"].tolist() == [False, True]
        obs, *_ = env.step(actions_of(env, 1))
        assert obs in env.observation_space
    with make("TagContinuous-v0", 2, **options) as env:
        env.reset()
        with pytest.raises(rollouts.EnvError, match="tagger_0 is inf"):
            env.step(actions_of(env, 0))


def test_those_who_left_are_not_active_and_their_actions_are_ignored() -> None:
    options: dict[str, Any] = {"grid_length": 3.0, "tagging_distance": 0.2, "num_taggers": 3}
    with (
        make("TagContinuous-v0", 16, **options) as env,
        make("TagContinuous-v0", 16, **options) as b,
    ):
        env.reset()
        b.reset()
        left = np.zeros((16, 10), np.bool_)
        for step in range(12):
            actions = actions_of(env, step)
            other = {name: array.copy() for name, array in actions.items()}
            other["runner"][left] = 0
            _, reward, terminated, _, info = env.step(actions)
            assert_equal((reward, terminated), b.step(other)[1:3])
            assert (info["active"]["runner"] == ~left).all()
            assert not reward["runner"][left].any()
            left |= terminated["runner"]
            left[info["ended"]] = False
            if info["ended"].any():
                break
        assert left.any()


def test_options_differ_by_environment_but_not_numbers_of_agents() -> None:
    sides = np.array([5.0, 10.0, 20.0])
    with make("TagContinuous-v0", 3, grid_length=sides) as env:
        np.testing.assert_array_equal(env.env_options["grid_length"], sides)
        env.reset(options={"grid_length": 7.0})
        assert env.env_options["grid_length"] == 7.0
        with pytest.raises(rollouts.SpecError, match="number of agents of group runner"):
            env.reset(options={"num_runners": 3})
    with pytest.raises(rollouts.SpecError, match="number of agents of group runner"):
        make("TagContinuous-v0", 3, num_runners=[1, 2, 3])
    with pytest.raises(rollouts.SpecError, match="'tagging_distance' must be between 0 and 1"):
        make("TagContinuous-v0", 3, tagging_distance=2.0)
    with pytest.raises(rollouts.SpecError, match="num_taggers"):
        make("TagContinuous-v0", 3, num_tagger=2)


def test_starts_are_the_same_for_all_unless_they_are_drawn() -> None:
    with make("TagContinuous-v0", 3) as env, make("TagContinuous-v0", 3, start_seed=5) as other:
        obs, _ = env.reset()
        assert (obs["runner"] == obs["runner"][:1]).all()
        assert not (obs["runner"] == other.reset()[0]["runner"]).all()
    for env_id in ("TagContinuous-v0", "TagGridWorld-v0"):
        with make(env_id, 3, randomize_starts=True) as env:
            obs, _ = env.reset()
            assert not (obs["tagger"][0] == obs["tagger"][1]).all()


def test_each_face_is_for_its_own_ids() -> None:
    with pytest.raises(rollouts.SpecError, match="several agents"):
        rollouts.VectorEnv(NativeEngine("TagGridWorld-v0", 2))
    with pytest.raises(rollouts.SpecError, match="one agent"):
        MultiAgentVectorEnv(NativeEngine("CartPole-v1", 2))


def test_what_expects_one_agent_is_told_what_to_use() -> None:
    with make("TagGridWorld-v0", 2, autoreset_mode="same_step") as env:
        with pytest.raises(AttributeError, match="Collector, or give"):
            _ = env.single_action_space
        with pytest.raises(rollouts.SpecError, match="environments with one agent"):
            env.xla()
        with pytest.raises(
            rollouts.SpecError, match="policies must be a dict with one for each of"
        ):
            env.collect(object(), {})  # type: ignore[arg-type]
        assert not hasattr(env, "nothing")
