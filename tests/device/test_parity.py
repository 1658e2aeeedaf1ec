# SPDX-License-Identifier: Apache-2.0
"""Kernels, run as loops on the host, against the C++ pool."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from kernel_ids import light_kernel_ids

import rollouts
from rollouts import SpecError, VectorEnv

pytestmark = pytest.mark.system

EMULATION = "cpu-emulation"
NUM_ENVS = 16
LIGHT = light_kernel_ids()
# ids whose states are Reals: 32 bits in kernels, 64 in the C++ pool
REAL = [one for one in LIGHT if rollouts.env_spec(one).header.startswith("envs/classic/")]
WHOLE = [one for one in LIGHT if one not in REAL]
MODES = ("next_step", "same_step", "disabled")


def make_both(env_id: str, mode: str = "next_step", **kwargs: Any) -> tuple[VectorEnv, Any]:
    arguments: dict[str, Any] = {"seed": 7, "autoreset_mode": mode, **kwargs}
    cpu = rollouts.make_vec(env_id, NUM_ENVS, num_threads=1, **arguments)
    return cpu, rollouts.make_vec(env_id, NUM_ENVS, device=EMULATION, **arguments)


def arrays(batch: tuple[Any, ...]) -> dict[str, Any]:
    """A batch by name, without what only some rows have."""
    named = dict(zip(("obs", "reward", "terminated", "truncated"), batch[:-1], strict=False))
    info = {name: one for name, one in batch[-1].items() if not name.startswith(("final", "_"))}
    return {name: np.asarray(one) for name, one in (named | info).items()}


def assert_equal(cpu: tuple[Any, ...], device: tuple[Any, ...], **tolerance: float) -> None:
    mine, theirs = arrays(device), arrays(cpu)
    assert mine.keys() == theirs.keys()
    for name, array in theirs.items():
        np.testing.assert_allclose(mine[name], array, err_msg=name, **(tolerance or {"rtol": 1e-7}))


def assert_final_equal(cpu: dict[str, Any], device: dict[str, Any], ended: Any, **tol: Any) -> None:
    if not ended.any():
        return
    final = np.stack([*cpu["final_obs"][ended]]) if cpu["final_obs"].dtype == object else None
    theirs = cpu["final_obs"][ended] if final is None else final
    np.testing.assert_allclose(device["final_obs"].numpy()[ended], theirs, **tol)
    for name, array in device.get("final_info", {}).items():
        np.testing.assert_array_equal(array.numpy()[ended], cpu["final_info"][name][ended])


def actions_of(env: VectorEnv, rng: np.random.Generator) -> Any:
    space = env.single_action_space
    if hasattr(space, "n"):
        return rng.integers(0, space.n, NUM_ENVS)
    return rng.uniform(space.low, space.high, (NUM_ENVS, *space.shape)).astype(np.float32)


def step_both(cpu: VectorEnv, device: Any, actions: Any, mode: str) -> tuple[Any, Any]:
    theirs, mine = cpu.step(actions), device.step(actions)
    ended = theirs[2] | theirs[3]
    if mode == "disabled" and ended.any():
        return (
            (*theirs, cpu.reset(options={"reset_mask": ended})),
            (*mine, device.reset(options={"reset_mask": ended})),
        )
    return theirs, mine


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("env_id", WHOLE)
def test_whole_numbers_are_equal_bit_for_bit(env_id: str, mode: str) -> None:
    cpu, device = make_both(env_id, mode, max_episode_steps=60)
    rng = np.random.default_rng(0)
    assert_equal(cpu.reset(), device.reset())
    num_ended = 0
    for _ in range(700):
        theirs, mine = step_both(cpu, device, actions_of(cpu, rng), mode)
        assert_equal(theirs[:5], mine[:5])
        ended = theirs[2] | theirs[3]
        num_ended += ended.sum()
        if mode == "same_step":
            assert_final_equal(theirs[4], mine[4], ended)
        if len(theirs) > 5:
            assert_equal(theirs[5], mine[5])
    assert num_ended > 10
    device.synchronize()


@pytest.mark.parametrize("mode", ("next_step", "same_step"))
@pytest.mark.parametrize("env_id", REAL)
def test_real_numbers_are_equal_to_32_bits_after_each_step(env_id: str, mode: str) -> None:
    # one step in 32 bits, from the state of the pool in 64
    tolerance = {"rtol": 2e-5, "atol": 2e-5}
    cpu, device = make_both(env_id, mode)
    rng = np.random.default_rng(0)
    assert_equal(cpu.reset(), device.reset(), rtol=1e-6, atol=1e-6)
    limit = rollouts.env_spec(env_id).max_episode_steps or 0
    for _ in range(limit + 100):
        device.set_state(None, cpu.get_state())
        actions = actions_of(cpu, rng)
        theirs, mine = cpu.step(actions), device.step(actions)
        ended = theirs[2] | theirs[3]
        # a state may lie on either side of an edge within the tolerance: such a row is none of ours
        same = (mine[2].numpy() == theirs[2]) & (mine[3].numpy() == theirs[3])
        assert same.mean() > 0.9
        for name, array in arrays(theirs).items():
            np.testing.assert_allclose(
                arrays(mine)[name][same], array[same], err_msg=name, **tolerance
            )
        if mode == "same_step":
            assert_final_equal(theirs[4], mine[4], ended & same, **tolerance)
    device.synchronize()


@pytest.mark.parametrize("env_id", REAL)
def test_statistics_do_not_drift_over_a_million_steps(env_id: str) -> None:
    num_envs, num_steps = 1000, 1000
    arguments: dict[str, Any] = {"seed": 3, "autoreset_mode": "same_step"}
    device = rollouts.make_vec(env_id, num_envs, device=EMULATION, **arguments)
    assert isinstance(device, VectorEnv)
    device.reset()
    *_, info = device.rollout(num_steps, "random", action_seed=5, record=True)
    cpu = rollouts.make_vec(env_id, num_envs, **arguments)
    cpu.reset()
    returns, lengths = [], []
    for actions in info["action"].numpy():
        *_, terminated, truncated, told = cpu.step(actions)
        ended = terminated | truncated
        returns.append(told["episode_return"][ended])
        lengths.append(told["episode_length"][ended])
    all_returns, all_lengths = np.concatenate(returns), np.concatenate(lengths)
    stats = device.stats()
    assert stats.env_steps == num_envs * num_steps
    assert int(stats.num_episodes) == pytest.approx(len(all_returns), rel=2e-3, abs=2)
    assert float(stats.episode_length) == pytest.approx(all_lengths.mean(), rel=2e-3)
    assert float(stats.episode_return) == pytest.approx(all_returns.mean(), rel=2e-3)


@pytest.mark.parametrize(
    "env_id", ("CartPole-v1", "Pendulum-v1", "Taxi-v4", "CliffWalkingSlippery-v1")
)
@pytest.mark.parametrize("mode", ("next_step", "same_step"))
def test_many_steps_of_one_launch_are_those_of_many_launches(env_id: str, mode: str) -> None:
    one, many = (
        rollouts.make_vec(env_id, 33, device=EMULATION, seed=1, autoreset_mode=mode)
        for _ in range(2)
    )
    assert isinstance(one, VectorEnv)
    one.reset()
    many.reset()
    num_steps = 250
    before = one.stats().num_launches
    *rows, info = one.rollout(num_steps, record=True, action_seed=9)
    assert one.stats().num_launches == before + 1
    for step, actions in enumerate(info.pop("action")):
        before = many.stats().num_launches
        *theirs, told = many.step(actions)
        assert many.stats().num_launches == before + 1
        for mine, row in zip(rows, theirs, strict=True):
            assert torch.equal(mine[step], row)
        for name in ("episode_return", "episode_length"):
            assert torch.equal(info[name][step], told[name])
        ended = theirs[1 + 1] | theirs[1 + 2]
        if mode == "same_step":
            assert torch.equal(info["final_obs"][step][ended], told["final_obs"][ended])
    assert one.get_state() == many.get_state()
    assert torch.equal(one.stats().num_episodes, many.stats().num_episodes)


@pytest.mark.parametrize("env_id", ("CartPole-v1", "Pendulum-v1", "Taxi-v4"))
def test_given_actions_of_many_steps_are_those_of_many_launches(env_id: str) -> None:
    one, many = (rollouts.make_vec(env_id, 9, device=EMULATION, seed=1) for _ in range(2))
    assert isinstance(one, VectorEnv)
    one.reset()
    many.reset()
    actions = one.rollout(40, record=True)[4]["action"]
    for step in range(40):
        many.step(actions[step])
    # one for each step, and the last row alone
    last = one.rollout(40, actions.flip(0))
    for step in range(39, 0, -1):
        many.step(actions[step])
    for mine, theirs in zip(last[:4], many.step(actions[0])[:4], strict=True):
        assert torch.equal(mine, theirs)
    # the same in all steps
    last = one.rollout(30, actions[3])
    for _ in range(29):
        many.step(actions[3])
    for mine, theirs in zip(last[:4], many.step(actions[3])[:4], strict=True):
        assert torch.equal(mine, theirs)
    assert one.get_state() == many.get_state()


@pytest.mark.parametrize("env_id", ("CartPole-v1", "Taxi-v3"))
def test_threads_may_run_in_any_order(env_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from rollouts.envs.kernel import emulation, one_agent

    def states(backwards: bool) -> list[bytes]:
        monkeypatch.setattr(
            one_agent,
            "make_kernel",
            lambda source, device, emulated: emulation.HostKernel(source, backwards=backwards),
        )
        env = rollouts.make_vec(env_id, 300, device=EMULATION, seed=1)
        env.reset()
        env.rollout(100)
        return env.get_state()

    assert states(False) == states(True)


@pytest.mark.parametrize("env_id", ("CartPole-v1", "FrozenLake-v1", "MountainCarContinuous-v0"))
def test_states_move_between_both_pools(env_id: str) -> None:
    cpu, device = make_both(env_id)
    cpu.reset()
    device.reset(seed=99)
    rng = np.random.default_rng(0)
    for _ in range(5):
        cpu.step(actions_of(cpu, rng))
    device.set_state(None, cpu.get_state())
    actions = actions_of(cpu, rng)
    assert_equal(cpu.step(actions), device.step(actions), rtol=2e-5, atol=2e-5)
    # what a kernel has fits the other way without a loss
    saved = device.get_state()
    cpu.set_state(None, saved)
    device.set_state(None, cpu.get_state())
    assert device.get_state() == saved
    # some environments, and by their ids
    device.set_state([3, 1], [saved[0], saved[0]])
    assert device.get_state([1]) == device.get_state([3]) == [saved[0]]
    assert device.get_state([2]) == [saved[2]]


def test_options_may_differ_by_environment_and_change() -> None:
    gravity = np.linspace(5, 15, NUM_ENVS)
    cpu, device = make_both("CartPole-v1", gravity=gravity, max_episode_steps=20)
    rng = np.random.default_rng(0)
    cpu.reset(), device.reset()
    for _ in range(5):
        actions = actions_of(cpu, rng)
        assert_equal(cpu.step(actions), device.step(actions), rtol=1e-4, atol=1e-4)
    options = {"gravity": 3.0, "force_mag": np.linspace(1, 5, NUM_ENVS)}
    assert_equal(cpu.reset(options=options), device.reset(options=options), rtol=1e-6, atol=1e-6)
    for _ in range(25):
        actions = actions_of(cpu, rng)
        assert_equal(cpu.step(actions), device.step(actions), rtol=1e-3, atol=1e-3)


def test_seeds_and_masks_are_the_pool_s() -> None:
    cpu, device = make_both("CartPole-v1", env_id_offset=100)
    mask = np.arange(NUM_ENVS) % 3 == 0
    seeds = [2**63 + 5 if i % 2 else None for i in range(NUM_ENVS)]
    rng = np.random.default_rng(0)
    tolerance = {"rtol": 1e-4, "atol": 1e-4}
    for reset in ({"seed": 2**64 - 1}, {"seed": seeds}, {}, {"options": {"reset_mask": mask}}):
        assert_equal(cpu.reset(**reset), device.reset(**reset), **tolerance)  # type: ignore[arg-type]
        actions = actions_of(cpu, rng)
        assert_equal(cpu.step(actions), device.step(actions), **tolerance)
    reset = {"seed": seeds, "options": {"reset_mask": mask}}
    assert_equal(cpu.reset(**reset), device.reset(**reset), **tolerance)  # type: ignore[arg-type]


def test_options_of_some_environments_change_as_in_the_pool() -> None:
    # rewards are whole numbers, so that all is equal
    cpu, device = make_both("FrozenLake-v1", success_rate=0.5)
    rng = np.random.default_rng(0)
    assert_equal(cpu.reset(), device.reset())
    mask = np.arange(NUM_ENVS) % 3 == 0
    rates = np.linspace(0.1, 0.9, NUM_ENVS)
    for options in (
        {"success_rate": rates, "reset_mask": mask},
        {"success_rate": 1.0, "reset_mask": ~mask},
        {"is_slippery": False, "reset_mask": mask},
    ):
        seeds = [*range(NUM_ENVS)]
        both = (env.reset(seed=seeds, options=dict(options)) for env in (cpu, device))
        assert_equal(*both)
        for _ in range(60):
            actions = actions_of(cpu, rng)
            assert_equal(cpu.step(actions), device.step(actions))
    with pytest.raises(SpecError, match="success_rate"):
        device.reset(options={"success_rate": 2.0, "reset_mask": mask})
