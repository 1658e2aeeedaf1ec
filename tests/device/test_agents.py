# SPDX-License-Identifier: Apache-2.0
"""Kernels of worlds of agents, run as loops on the host, against the C++ pool: bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from own_envs import has_compiler, register_herd

import rollouts
from rollouts import (
    EnvError,
    MultiAgentVectorEnv,
    ProtocolError,
    SpecError,
)
from rollouts.envs.kernel import agent_teams, kernel
from rollouts.envs.kernel.emulation import HostKernel
from rollouts.envs.kernel.team_shape import TeamShape

pytestmark = pytest.mark.system

EMULATION = "cpu-emulation"
NUM_ENVS = 6
CROWD = {
    "num_taggers": 5,
    "num_runners": 100,
    "use_full_observation": False,
    "num_other_agents_observed": 10,
    "grid_length": 20.0,
    "tagging_distance": 0.02,
    "edge_hit_penalty": -0.1,
    "randomize_starts": True,
}
# so many that they are sorted into cells
MANY = CROWD | {"num_runners": 160, "num_other_agents_observed": 20}
# a limit that random actions reach, and options
CASES: dict[str, tuple[str, int, dict[str, Any]]] = {
    **{env_id: (env_id, 25, {}) for env_id in rollouts.multi_agent_ids() if "/" not in env_id},
    "crowd": ("TagContinuous-v0", 40, CROWD),
    "crowd, most seen": ("TagContinuous-v0", 8, CROWD | {"num_other_agents_observed": 70}),
    "crowd, all seen": ("TagContinuous-v0", 8, CROWD | {"use_full_observation": True}),
    "cells": ("TagContinuous-v0", 8, MANY),
    "cells, walls": ("TagContinuous-v0", 8, MANY | {"grid_length": 1.5, "max_acceleration": 0.5}),
    "cells, many taggers": ("TagContinuous-v0", 8, MANY | {"num_taggers": 90, "num_runners": 90}),
    "cells, few left": (
        "TagContinuous-v0",
        8,
        MANY | {"num_taggers": 17, "tagging_distance": 0.12},
    ),
    "one step": ("TagGridWorld-v0", 1, {"num_taggers": 40}),
    # a thread steps each alone
    "few": ("TagGridWorld-v0", 25, {"num_taggers": 4, "grid_length": 5, "randomize_starts": True}),
    "few, part seen": ("TagGridWorld-v0", 9, {"num_taggers": 7, "use_full_observation": False}),
}
if has_compiler():
    CASES["own"] = ("Herd-v0", 30, {"panic": 0.2})


@pytest.fixture(autouse=True, scope="module")
def own_env() -> None:
    # not when tests are collected: others list what is registered
    if has_compiler():
        register_herd()


def groups_of(arrays: Any) -> dict[str, Any]:
    return arrays if isinstance(arrays, dict) else {"": arrays}


def make_both(case: str, mode: str = "next_step", **kwargs: Any) -> tuple[Any, Any]:
    env_id, limit, options = CASES[case]
    arguments = {"seed": 7, "autoreset_mode": mode, "max_episode_steps": limit, **options, **kwargs}
    cpu = rollouts.make_vec(env_id, NUM_ENVS, num_threads=1, **arguments)
    device = rollouts.make_vec(env_id, NUM_ENVS, device=EMULATION, **arguments)
    assert isinstance(cpu, MultiAgentVectorEnv)
    assert isinstance(device, MultiAgentVectorEnv)
    cpu.action_space.seed(0)
    return cpu, device


def assert_equal(theirs: tuple[Any, ...], mine: tuple[Any, ...], step: int = -1) -> None:
    """All of a batch; rewards are 32-bit on a GPU."""
    names = ("obs", "reward", "terminated", "truncated")
    expected = dict(zip(names, theirs[:-1], strict=False)) | theirs[-1]
    found = dict(zip(names, mine[:-1], strict=False)) | mine[-1]
    final = expected.pop("final_obs", None)
    final_found = found.pop("final_obs", None)
    for name in found:
        if name not in expected:
            continue
        for group, array in groups_of(expected[name]).items():
            one = groups_of(found[name])[group]
            dtype = np.float32 if name == "reward" else array.dtype
            np.testing.assert_array_equal(
                one.numpy(), array.astype(dtype), err_msg=f"{step} {name} {group}"
            )
    ended = expected["ended"]
    if final is not None and ended.any():
        for group, array in groups_of(final).items():
            np.testing.assert_array_equal(
                groups_of(final_found)[group].numpy()[ended], np.stack([*array[ended]])
            )


def play(cpu: Any, device: Any, steps: int, mode: str) -> int:
    """Steps both with the same actions, and compares everything; returns ends of agents."""
    assert_equal((cpu.reset()[0], {"ended": np.zeros(1, bool)}), (device.reset()[0], {}))
    ends = 0
    for step in range(steps):
        actions = cpu.action_space.sample()
        theirs, mine = cpu.step(actions), device.step(actions)
        assert_equal(theirs, mine, step)
        ends += sum(int(one.sum()) for one in groups_of(theirs[2]).values())
        ended = theirs[4]["ended"]
        ends += int(ended.sum())
        if mode == "disabled" and ended.any():
            options = {"reset_mask": ended}
            both = cpu.reset(options=options), device.reset(options=options)
            assert_equal(*both)
    device.synchronize()
    assert device.get_state() == cpu.get_state()
    return ends


@pytest.mark.parametrize("mode", ("next_step", "same_step", "disabled"))
@pytest.mark.parametrize("case", CASES)
def test_kernels_are_the_pools_to_the_bit(case: str, mode: str) -> None:
    steps = min(4 * CASES[case][1] + 5, 120)
    assert play(*make_both(case, mode), steps, mode) >= 4 * NUM_ENVS - NUM_ENVS


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_they_are_for_two_hundred_episodes(case: str) -> None:
    env_id, limit, _ = CASES[case]
    full = rollouts.env_spec(env_id).max_episode_steps or limit
    if "seen" in case:
        full = limit
    cpu, device = make_both(case, "same_step", max_episode_steps=full)
    play(cpu, device, full * (200 // NUM_ENVS + 1), "same_step")


def change_shape(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[TeamShape], TeamShape], **arguments: Any
) -> None:
    """Makes teams step all worlds, as `change` says."""
    choose = agent_teams.choose_team
    monkeypatch.setattr(agent_teams, "choose_alone", lambda *given: None)

    def changed(**given: Any) -> TeamShape:
        return change(choose(**{**given, **arguments}))

    monkeypatch.setattr(agent_teams, "choose_team", changed)


@pytest.mark.parametrize("case", ("crowd", "simple_world_comm_v3", "TagGridWorld-v0", "few"))
@pytest.mark.parametrize("room", (227 * 1024, 20_000, 4_000, 700))
@pytest.mark.parametrize("keep_worlds", (True, False))
def test_nothing_depends_on_what_fits_into_shared_memory(
    case: str, room: int, keep_worlds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = []

    def see(shape: TeamShape) -> TeamShape:
        shapes.append(shape)
        return shape

    change_shape(monkeypatch, see, most_shared_bytes=room, keep_worlds=keep_worlds)
    play(*make_both(case, "same_step"), 50, "same_step")
    (shape,) = shapes
    assert bool(shape.memory.world) <= keep_worlds
    if case == "crowd":
        assert bool(shape.memory.obs_rows) == (room > 20_000)


@pytest.mark.parametrize("size", (1, 4, 32, 256))
def test_nothing_depends_on_the_size_of_teams(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    change_shape(monkeypatch, lambda shape: TeamShape(size, 2 if size <= 32 else 1, shape.memory))
    play(*make_both("crowd", "same_step"), 30, "same_step")


@pytest.mark.parametrize("case", CASES)
def test_agents_may_go_in_any_order(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        agent_teams,
        "make_kernel",
        lambda source, device, emulated: HostKernel(source, backwards=True),
    )
    assert kernel.make_kernel is not agent_teams.make_kernel
    play(*make_both(case, "same_step"), 2 * min(CASES[case][1], 30), "same_step")


@pytest.mark.parametrize("mode", ("next_step", "same_step"))
@pytest.mark.parametrize("case", CASES)
def test_many_steps_of_one_launch_are_those_of_many(case: str, mode: str) -> None:
    cpu, device = make_both(case, mode)
    cpu.reset(), device.reset()
    launches = device.stats().num_launches
    *rows, info = device.rollout(30, record=True, action_seed=4)
    assert device.stats().num_launches == launches + 1
    taken = groups_of(info["action"])
    for step in range(30):
        actions = {name: one[step].numpy() for name, one in taken.items()}
        theirs = cpu.step(actions.get("", actions))
        mine = [{name: one[step] for name, one in groups_of(each).items()} for each in rows]
        told = {
            name: {group: one[step] for group, one in groups_of(info[name]).items()}
            for name in ("active", "episode_return")
        }
        told["episode_length"] = info["episode_length"][step]
        expected = [groups_of(one) for one in theirs[:4]]
        assert_equal((*expected, theirs[4] | {"final_obs": None}), (*mine, told), step)
    assert device.get_state() == cpu.get_state()
    first = {name: one[0] for name, one in taken.items()}
    on_host = {name: one.numpy() for name, one in first.items()}
    last = device.rollout(3, first.get("", first))
    for _ in range(3):
        theirs = cpu.step(on_host.get("", on_host))
    assert_equal(theirs, last)


def test_a_step_is_one_launch_and_many_are_one() -> None:
    env = make_both("crowd")[1]
    env.reset()
    before = env.stats().num_launches
    for _ in range(7):
        env.step(env.action_space.sample())
    assert env.stats().num_launches == before + 7
    env.rollout(50)
    stats = env.stats()
    assert (stats.num_launches, stats.env_steps) == (before + 8, NUM_ENVS * 57)
    assert int(stats.num_episodes) == NUM_ENVS
    assert float(stats.episode_length) == CASES["crowd"][1]


def test_random_actions_are_uniform_for_each_element() -> None:
    env = rollouts.make_vec("TagContinuous-v0", 50, device=EMULATION, **CROWD)
    env.reset()
    assert isinstance(env, MultiAgentVectorEnv)
    taken = env.rollout(40, record=True)[4]["action"]
    for actions in taken.values():
        for element in range(2):
            counts = np.bincount(actions[..., element].flatten(), minlength=11)
            expected = actions[..., element].numel() / 11
            # chi-square with ten degrees of freedom, one in ten thousand
            assert ((counts - expected) ** 2 / expected).sum() < 35.6
    # agents draw for themselves
    assert not torch.equal(taken["runner"][..., 0, :], taken["runner"][..., 1, :])


@pytest.mark.parametrize("case", ("crowd", "simple_reference_v3", "TagGridWorld-v0", "few"))
def test_states_move_between_pools(case: str) -> None:
    cpu, device = make_both(case, "same_step")
    other_cpu, other_device = make_both(case, "same_step", seed=8)
    for env in (cpu, device, other_cpu, other_device):
        env.reset()
    for _ in range(9):
        actions = cpu.action_space.sample()
        cpu.step(actions), device.step(actions)
    other_device.set_state([1, 4], cpu.get_state([3, 0]))
    other_cpu.set_state([1, 4], device.get_state([3, 0]))
    assert other_device.get_state([1, 4]) == device.get_state([3, 0])
    for _ in range(60):
        actions = cpu.action_space.sample()
        assert_equal(other_cpu.step(actions), other_device.step(actions))
    with pytest.raises(SpecError, match="state 0 for environment 2"):
        device.set_state([2], [b"rollouts" * 50])
    assert device.get_state() == cpu.get_state()


def test_options_may_differ_and_change() -> None:
    own = {"max_speed": [1.0, 0.5, 1.0, 1.0, 0.1, 1.0], "start_seed": [1, 2, 3, 4, 5, 6]}
    cpu, device = make_both("crowd", **own, randomize_starts=False)
    play(cpu, device, 50, "next_step")
    options = {"tag_reward_for_tagger": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "max_speed": 0.7}
    assert_equal(cpu.reset(options=options), device.reset(options=options))
    for step in range(50):
        actions = cpu.action_space.sample()
        assert_equal(cpu.step(actions), device.step(actions), step)
    # options of some environments alone: the others go on
    mask = np.array([True, False, True, False, False, False])
    options = {"max_speed": [0.2, 0.3, 0.4, 0.5, 0.6, 0.7], "edge_hit_penalty": -5.0}
    both = (one.reset(options={**options, "reset_mask": mask}) for one in (cpu, device))
    assert_equal(*both)
    for step in range(50):
        actions = cpu.action_space.sample()
        assert_equal(cpu.step(actions), device.step(actions), step)
    before = device.get_state()
    with pytest.raises(SpecError, match=r"change the number of agents or the spaces of \['runner'"):
        device.reset(options={"num_runners": 50})
    grid = rollouts.make_vec("TagGridWorld-v0", 2, device=EMULATION)
    with pytest.raises(SpecError, match=r"the spaces of \['tagger', 'runner'\]"):
        grid.reset(options={"use_full_observation": False})
    with pytest.raises(SpecError, match="state of an environment another size"):
        # as many numbers are seen, in another way
        every = rollouts.make_vec("TagContinuous-v0", 2, device=EMULATION)
        every.reset(options={"use_full_observation": False, "num_other_agents_observed": 10})
    with pytest.raises(SpecError, match="these options change the"):
        rollouts.make_vec("TagContinuous-v0", 2, device=EMULATION, num_runners=[3, 4])
    assert device.get_state() == before


def test_seeds_are_the_pools() -> None:
    cpu, device = make_both("crowd")
    seeds = [5, None, 7, 8, None, 9]
    for _ in range(2):
        assert_equal(cpu.reset(seed=seeds), device.reset(seed=seeds))
    cpu, device = make_both("crowd", env_id_offset=100)
    assert_equal(cpu.reset(seed=3), device.reset(seed=3))
    assert device.reset()[1]["env_id"].tolist() == [100, 101, 102, 103, 104, 105]


@pytest.mark.parametrize("dtype", ("float16", "bfloat16"))
@pytest.mark.parametrize("case", ("crowd", "crowd, all seen", "simple_spread_v3"))
def test_observations_may_be_narrower(case: str, dtype: str) -> None:
    env_id, limit, options = CASES[case]
    arguments: dict[str, Any] = {"device": EMULATION, "seed": 1, "max_episode_steps": limit}
    wide = rollouts.make_vec(env_id, NUM_ENVS, **arguments, **options)
    narrow = rollouts.make_vec(env_id, NUM_ENVS, obs_dtype=dtype, **arguments, **options)
    wide.reset(), narrow.reset()
    wide.action_space.seed(0)
    for _ in range(20):
        actions = wide.action_space.sample()
        theirs, mine = groups_of(wide.step(actions)[0]), groups_of(narrow.step(actions)[0])
        for name, one in theirs.items():
            assert torch.equal(mine[name], one.to(getattr(torch, dtype)))


def test_what_goes_wrong_is_told_at_the_next_wait() -> None:
    cpu, device = make_both("crowd")
    cpu.reset(), device.reset()
    actions = cpu.action_space.sample()
    wrong = {name: one.copy() for name, one in actions.items()}
    wrong["runner"][2, 99] = [0, 11]
    device.step(wrong)
    with pytest.raises(EnvError, match="environment 2 got an action that is not in its space"):
        device.synchronize()
    device.synchronize()


def test_a_reward_that_is_not_finite_ends_its_own_world() -> None:
    huge = {"tag_reward_for_tagger": [1.0, 3e38, 1.0], "tagging_distance": 1.0, "max_speed": 1e-3}
    env = rollouts.make_vec("TagContinuous-v0", 3, device=EMULATION, **huge)
    env.reset()
    actions = {name: np.zeros(space.shape, np.int64) for name, space in env.action_space.items()}
    obs, reward, terminated, truncated, info = env.step(actions)
    assert truncated["runner"].all(1).tolist() == [False, True, False]
    assert info["ended"].tolist() == [True, True, True]
    for name in ("tagger", "runner"):
        assert not obs[name][1].any()
        assert not reward[name][1].any()
        assert not terminated[name][1].any()
    with pytest.raises(EnvError, match="environment 1 its state was not finite"):
        env.get_state()
    obs, *_ = env.step(actions)
    assert obs["tagger"][1].any()


def test_without_autoreset_an_ended_episode_stays() -> None:
    env = make_both("one step", "disabled")[1]
    env.reset()
    actions = env.action_space.sample()
    obs = env.step(actions)[0]
    again = env.step(actions)[0]
    assert all(torch.equal(obs[name], again[name]) for name in obs)
    with pytest.raises(EnvError, match="environment 0 was stepped after its episode had ended"):
        env.synchronize()


def test_tensors_that_somebody_holds_stay_as_they_are() -> None:
    env = make_both("simple_tag_v3")[1]
    env.reset()
    kept, copies = [], []
    for _ in range(6):
        obs = env.step(env.action_space.sample())[0]
        kept.append(obs["agent"][1:2])
        copies.append(obs["agent"][1:2].clone())
        del obs
    for view, then in zip(kept, copies, strict=True):
        assert torch.equal(view, then)
    del kept, view
    places = {env.step(env.action_space.sample())[0]["agent"].data_ptr() for _ in range(30)}
    assert len(places) <= 8


def test_nonsense_is_refused() -> None:
    env = make_both("crowd")[1]
    with pytest.raises(ProtocolError, match="call reset first"):
        env.step(env.action_space.sample())
    env.reset()
    good = env.action_space.sample()
    with pytest.raises(SpecError, match="actions has no group 'runner'"):
        env.step({"tagger": good["tagger"]})
    with pytest.raises(SpecError, match=r"actions of 'runner' are torch.float32 \(6, 100, 2\)"):
        env.step(good | {"runner": torch.zeros((6, 100, 2))})
    with pytest.raises(SpecError, match="unlike numbers of steps"):
        env.rollout(2, good | {"runner": torch.zeros((2, 6, 100, 2), dtype=torch.int64)})
    with pytest.raises(SpecError, match="num_threads cannot be had of a pool on a d"):
        rollouts.make_vec("simple_spread_v3", 2, device=EMULATION, num_threads=2)
    with pytest.raises(SpecError, match="environments are of one id"):
        rollouts.make_vec(["simple_spread_v3", "simple_v3"], device=EMULATION)
