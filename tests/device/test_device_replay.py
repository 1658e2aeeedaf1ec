# SPDX-License-Identifier: Apache-2.0
"""Transitions of a GPU's pool equal those of ReplayBuffer, whatever the episodes."""

from __future__ import annotations

import copy
import dataclasses
import io
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from leaving_agents import LEAVING
from replay_model import ACTION_SPACE, BOTH, OBS_SPACE, TERMINATED, TRUNCATED, World
from torch import Tensor, nn

import rollouts
from rollouts import Collector, DTypeError, RolloutBatch, SpecError, TorchPolicy
from rollouts.replay import DeviceReplay, DeviceTransitions, NStep, ReplayBuffer, TableConfig

ENDS = st.sampled_from([TERMINATED, TRUNCATED, BOTH])
PLANS = st.lists(
    st.lists(st.tuples(st.integers(1, 9), ENDS), min_size=1, max_size=4), min_size=1, max_size=4
)
ROLLOUTS = st.lists(st.integers(1, 12), min_size=1, max_size=6)


def on_device(batch: RolloutBatch) -> RolloutBatch[torch.Tensor]:
    """The same rollout as a Collector gives it, on the CPU."""
    ended = batch.terminated | batch.truncated
    # rows without an end hold anything
    final_obs = np.full_like(batch.obs, np.nan)
    final_obs[ended] = batch.final_obs
    arrays = {
        name: torch.from_numpy(getattr(batch, name).copy())
        for name in (
            *("obs", "action", "reward", "terminated", "truncated", "bootstrap_value"),
            *("log_prob", "value", "last_obs", "last_value", "env_id"),
        )
    }
    return RolloutBatch(
        **arrays,
        episode_return=torch.zeros(ended.shape, dtype=torch.float64),
        episode_length=torch.zeros(ended.shape, dtype=torch.int32),
        policy_version=torch.zeros(ended.shape, dtype=torch.int64),
        final_obs=torch.from_numpy(final_obs),
    )


def listed(batch: Any) -> list[tuple[Any, ...]]:
    columns = (
        *(batch.obs, batch.action, batch.reward, batch.discount, batch.next_obs),
        *(batch.terminated, batch.truncated, batch.num_steps, batch.env_id),
    )
    return sorted(
        tuple(tuple(x) if isinstance(x, list) else x for x in row)
        for row in zip(*(np.asarray(one).tolist() for one in columns), strict=True)
    )


def all_of(replay: DeviceReplay) -> DeviceTransitions:
    return replay.gather(replay.drawable())


@settings(max_examples=150, deadline=None)
@given(
    plan=PLANS,
    lengths=ROLLOUTS,
    n=st.integers(1, 5),
    rows=st.integers(12, 30),
    lost=st.integers(-1, 5),
)
def test_transitions_are_those_of_the_cpu_replay(
    plan: list[Any], lengths: list[int], n: int, rows: int, lost: int
) -> None:
    """`lost`: a rollout that is not added, whose place no item reaches over."""
    kind, envs = NStep(n, 0.5), len(plan)
    world = World(plan, list(range(3, 3 + envs)))
    theirs = ReplayBuffer(OBS_SPACE, ACTION_SPACE, TableConfig(items=kind))
    mine = DeviceReplay(rows * envs + envs - 1, kind, device="cpu", seed=1)
    num_steps = 0
    starts: list[Any] = []  # the first observations of each row that was added
    for i, length in enumerate(lengths):
        batch = world.rollout(length)
        if i == lost:
            continue
        theirs._writer._told_of_cuts = True  # the warning is told elsewhere
        theirs.add_batch(batch)
        mine.add(on_device(batch))
        num_steps += length
        starts += list(batch.obs)
    assert len(mine) == min(rows, num_steps) * envs
    if num_steps < n:
        assert not len(mine.drawable())
        return
    # the newest steps of a window wait for the next rollout here, the older were overwritten
    drawable = starts[max(0, num_steps - rows) : max(0, num_steps - n + 1)]
    expected_starts = {tuple(obs.tolist()) for row in drawable for obs in row}
    found = listed(all_of(mine))
    assert {row[0] for row in found} == expected_starts and len(found) == len(drawable) * envs
    # there the last step of an open episode waits, and what reaches to it
    known = {row[0]: row for row in listed(theirs.gather(theirs.store.keys("replay")))}
    waiting = {tuple(obs.tolist()) for row in starts[-n:] for obs in row}
    for row in found:
        if row[0] in known:
            assert row == known[row[0]]
        else:
            assert row[0] in waiting and not (row[5] or row[6])


def filled(n: int = 1, *, envs: int = 3, rows: int = 20, seed: int = 1) -> tuple[Any, World]:
    plan = [[(4, TERMINATED), (7, TRUNCATED)]] * envs
    world = World(plan, list(range(envs)))
    replay = DeviceReplay(rows * envs, NStep(n, 0.5), device="cpu", seed=seed)
    for _ in range(5):
        replay.add(on_device(world.rollout(7)))
    return replay, world


def test_arrays_are_refused_and_say_what_takes_them() -> None:
    one, flag = np.zeros((3, 2), np.float32), np.zeros((3, 2), bool)
    arrays: Any = RolloutBatch(
        **dict.fromkeys(("obs", "action", "reward", "bootstrap_value", "log_prob", "value"), one),
        **dict.fromkeys(("terminated", "truncated"), flag),
        **dict.fromkeys(("last_obs", "last_value", "env_id"), one[0]),
        **dict.fromkeys(("policy_version", "episode_return", "episode_length"), one),
        final_obs=one[:0],
    )
    with pytest.raises(DTypeError, match=r"type ndarray, expected a tensor.*ReplayBuffer"):
        DeviceReplay(8, device="cpu").add(arrays)


def test_samples_are_uniform_and_those_that_can_be_drawn() -> None:
    replay, _ = filled(2)
    known = listed(all_of(replay))
    drawn = listed(replay.sample(57_000))
    assert {*drawn} == {*known} and len(known) == 19 * 3
    # 1000 of each: five standard deviations are 158
    _, counts = np.unique([hash(row) for row in drawn], return_counts=True)
    assert len(counts) == len({*known}) and np.ptp(counts / 1000) < 0.32 * len(known)


def test_a_seed_gives_its_samples() -> None:
    (one, _), (same, _), (other, _) = filled(seed=1), filled(seed=1), filled(seed=2)
    first = one.sample(64)
    assert listed(first) == listed(same.sample(64)) != listed(other.sample(64))
    assert listed(first) != listed(one.sample(64))


def test_a_saved_replay_goes_on() -> None:
    replay, world = filled(3)
    replay.sample(10)
    file = io.BytesIO()
    torch.save(replay.state_dict(), file)
    file.seek(0)
    again = DeviceReplay(60, NStep(3, 0.5), device="cpu", seed=9)
    again.load_state_dict(torch.load(file))
    twin = copy.deepcopy(world)
    for one, its in ((replay, world), (again, twin)):
        one.add(on_device(its.rollout(7)))
    assert listed(replay.sample(50)) == listed(again.sample(50))
    assert listed(all_of(replay)) == listed(all_of(again))
    with pytest.raises(SpecError, match=r"has 20 steps of each of 3 environments and items of"):
        DeviceReplay(61, NStep(2, 0.5), device="cpu").load_state_dict(replay.state_dict())


class Agent(nn.Module):
    def __init__(self, size: int, num_outputs: int) -> None:
        super().__init__()
        self.layer, self.num_outputs = nn.Linear(size, num_outputs + 1), num_outputs

    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        out = self.layer(obs)
        return out[:, : self.num_outputs], out[:, self.num_outputs]


@pytest.mark.parametrize("engine", ["native", "torch"])
@pytest.mark.parametrize("n", [1, 3])
def test_agents_that_left_are_not_drawn(engine: Any, n: int) -> None:
    """The same world by C++ threads and their replay: 6 agents in 3 worlds, who leave early."""
    options: dict[str, Any] = LEAVING | {"seed": 4, "autoreset_mode": "same_step"}
    cpu = rollouts.make_multi_agent_vec("TagContinuous-v0", 3, **options)
    device: Any = rollouts.make_vec("TagContinuous-v0", 3, device="cpu-emulation", **options)
    kind = NStep(n, 0.5)
    group = cpu.groups["runner"]
    space = group.single_action_space

    def policies() -> dict[str, TorchPolicy]:
        made = {}
        for name, one in cpu.groups.items():
            torch.manual_seed(0)
            shape = one.single_observation_space.shape
            assert shape is not None
            made[name] = TorchPolicy(Agent(shape[0], 22), one.single_action_space, seed=1)
        return made

    theirs = ReplayBuffer(group.single_observation_space, space, TableConfig(items=kind))
    mine = DeviceReplay(10_000, kind, device="cpu")
    collector = Collector(device, policies(), 14, engine=engine, keep_final_obs=True)
    cpu_collector = rollouts.Collector(cpu, policies(), 14, engine="native", keep_final_obs=True)
    for _ in range(5):
        theirs.add_batch(cpu_collector.collect()["runner"])
        mine.add(collector.collect()["runner"])
    known = listed(theirs.gather(theirs.store.keys("replay")))
    found = listed(all_of(mine))
    if engine == "native":
        # what waits there and here is of the last rollout
        assert len({*found} - {*known}) <= 18 and len({*known} - {*found}) <= 18 * (n - 1)
        assert len({*found} & {*known}) > 700
    assert 0 < len(found) < 5 * 14 * 18 * 0.95
    drawn = mine.sample(2000)
    assert {*listed(drawn)} <= {*found} and (drawn.weight == 1).all()
    assert (drawn.terminated | drawn.truncated).any()


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_truncated_episodes_keep_what_they_ended_with(engine: Any) -> None:
    env: Any = rollouts.make_vec(
        *("Pendulum-v1", 5), device="cpu-emulation", seed=3, autoreset_mode="same_step",
        max_episode_steps=6,
    )  # fmt: skip
    module = Agent(3, 1)

    class Gaussian(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.agent, self.log_std = module, nn.Parameter(torch.zeros(1))

        def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
            mean, value = self.agent(obs)
            return mean, self.log_std, value

    policy = TorchPolicy(Gaussian(), env.single_action_space)
    collector = Collector(env, policy, 8, engine=engine, keep_final_obs=True)
    replay = DeviceReplay(5 * 100, device=env.device)
    for _ in range(4):
        rollout = collector.collect()
        replay.add(rollout)
        assert rollout.final_obs is not None
        cut = rollout.truncated
        assert cut.any()
        # kernels add up in another order than torch
        value = policy.module(rollout.final_obs[cut])[-1].detach()
        assert torch.allclose(rollout.bootstrap_value[cut], value, atol=1e-6)
    batch = all_of(replay)
    # the pendulum turns by its speed in 0.05 s, and nowhere else
    angle = torch.atan2(batch.obs[:, 1], batch.obs[:, 0])
    turned = torch.atan2(batch.next_obs[:, 1], batch.next_obs[:, 0]) - angle
    turned = torch.remainder(turned + torch.pi, 2 * torch.pi) - torch.pi
    assert torch.allclose(turned, 0.05 * batch.next_obs[:, 2], atol=1e-5)
    assert batch.truncated.sum() == 5 * 5 and (batch.discount == 0.99).all()


def test_each_column_keeps_the_version_of_its_own_policy() -> None:
    _, world = filled()
    batch = on_device(world.rollout(6))
    version = torch.arange(6 * 3).reshape(6, 3)
    replay = DeviceReplay(60, device="cpu")
    replay.add(dataclasses.replace(batch, policy_version=version))
    found = all_of(replay)
    assert found.policy_version.tolist() == version.flatten().tolist()
    saved = DeviceReplay(60, device="cpu")
    saved.load_state_dict(replay.state_dict())
    assert all_of(saved).policy_version.tolist() == version.flatten().tolist()


def test_a_replay_of_the_host_refuses_tensors() -> None:
    _, world = filled()
    replay = ReplayBuffer(OBS_SPACE, ACTION_SPACE, TableConfig(items=NStep(1)))
    with pytest.raises(TypeError, match="DeviceReplay takes those"):
        replay.add_batch(on_device(world.rollout(3)))  # type: ignore[arg-type]


def test_what_does_not_fit_is_refused() -> None:
    replay, world = filled()
    batch = on_device(world.rollout(3))
    with pytest.raises(SpecError, match="keep_final_obs=True"):
        replay.add(dataclasses.replace(batch, final_obs=None))
    with pytest.raises(SpecError, match="rollout has 21 steps of each environment, expected at m"):
        replay.add(on_device(world.rollout(21)))
    with pytest.raises(SpecError, match="capacity is 5, 1 steps of each of 3 environments"):
        DeviceReplay(5, NStep(2), device="cpu").add(batch)
    with pytest.raises(SpecError, match="has 0 steps of each environment, expected at least 1"):
        DeviceReplay(5, device="cpu").sample(1)
    other = World([[(3, BOTH)]], [0])
    with pytest.raises(
        SpecError, match=r"obs is torch.float32 \(3, 1, 3\), expected .*\(T, 3, 3\)"
    ):
        replay.add(on_device(other.rollout(3)))


def test_where_nobody_was_active_nothing_counts() -> None:
    world = World([[(3, BOTH)]] * 2, [0, 1])
    replay = DeviceReplay(8, device="cpu")
    for is_there in (True, False, False):
        batch = on_device(world.rollout(2))
        active = torch.full_like(batch.terminated, is_there)
        replay.add(dataclasses.replace(batch, extras={"active": active}))
        weight = replay.sample(5).weight
    # the only active steps were overwritten
    assert not weight.any() and not len(replay.drawable())
