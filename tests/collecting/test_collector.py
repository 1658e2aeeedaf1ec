# SPDX-License-Identifier: Apache-2.0
"""`Collector` against an environment that can be computed by hand, synchronous and not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rollouts.batch import RolloutBatch, StepBatch
from rollouts.collecting.collector import Collector
from rollouts.errors import SpecError
from rollouts.policy import PolicyOutput

Array = NDArray[Any]
Order = Callable[[list[int]], list[int]]

NUM_ACTIONS = 3


class CounterRow:
    """One environment whose every number tells env_id, episode and t; the oracle steps it too."""

    def __init__(self, env_id: int) -> None:
        self.env_id = env_id
        self.episode = -1
        self.start_episode()

    def start_episode(self) -> None:
        self.episode += 1
        self.t = 0
        self.episode_return = 0.0

    def obs(self) -> list[float]:
        return [self.env_id, self.episode, self.t]

    def step(self, action: float) -> tuple[float, bool, bool]:
        """Returns reward, terminated, truncated; does not reset."""
        self.t += 1
        reward = 100.0 * self.env_id + 10.0 * self.episode + self.t + 0.25 * action
        self.episode_return += reward
        over = self.t == 2 + (3 * self.env_id + 5 * self.episode) % 6
        # all three ways to end: terminated, truncated, both
        kind = (self.env_id + self.episode) % 3
        return reward, over and kind != 1, over and kind != 0


class CounterEnv:
    """A vector env of counters with same-step autoreset; `order` says who arrives first."""

    autoreset_mode = AutoresetMode.SAME_STEP

    def __init__(
        self,
        num_envs: int,
        batch_size: int | None = None,
        *,
        env_id_offset: int = 0,
        order: Order = list,
        action_space: gymnasium.Space[Any] | None = None,
    ) -> None:
        self.num_envs = num_envs
        self.batch_size = batch_size or num_envs
        self.env_id_offset = env_id_offset
        self.single_observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float64)
        self.single_action_space = action_space or gymnasium.spaces.Discrete(NUM_ACTIONS)
        self.sent_actions: list[Array] = []
        self.fail_at_recv: int | None = None
        self._order = order
        self._recvs = 0

    def async_reset(self) -> None:
        ids = range(self.env_id_offset, self.env_id_offset + self.num_envs)
        self._rows = {env_id: CounterRow(env_id) for env_id in ids}
        self._in_flight: dict[int, float | None] = dict.fromkeys(ids)

    def send(self, actions: Array, env_id: NDArray[np.int32] | None = None) -> None:
        ids = list(self._rows) if env_id is None else env_id.tolist()
        assert len(ids) == len(actions)
        assert not self._in_flight.keys() & set(ids), "sent to an environment that is in flight"
        self.sent_actions.append(actions.copy())
        self._in_flight.update(zip(ids, actions.reshape(len(ids), -1)[:, 0], strict=True))

    def recv_batch(self, timeout_s: float | None = None) -> StepBatch:
        assert len(self._in_flight) >= self.batch_size, "this recv would wait for ever"
        self._recvs += 1
        if self._recvs == self.fail_at_recv:
            raise RuntimeError("environment broke")
        ids = self._order(sorted(self._in_flight))[: self.batch_size]
        answers = [self._advance(env_id, self._in_flight.pop(env_id)) for env_id in ids]
        return StepBatch(**{k: np.array([a[k] for a in answers]) for k in answers[0]}, info={})

    def close(self, **kwargs: Any) -> None:
        self.is_closed = True

    def _advance(self, env_id: int, action: float | None) -> dict[str, Any]:
        row = self._rows[env_id]
        reward, terminated, truncated = (0.0, False, False) if action is None else row.step(action)
        # rows of final_obs that mean nothing hold nan, so that reading one shows
        ended = terminated or truncated
        answer = {
            "reward": reward,
            "terminated": terminated,
            "truncated": truncated,
            "env_id": env_id,
            "episode_return": row.episode_return,
            "episode_length": row.t,
            "final_obs": row.obs() if ended else [np.nan] * 3,
        }
        if ended:
            row.start_episode()
        return answer | {"obs": row.obs()}


class HashPolicy:
    """Row-wise and without state: the same row gives the same answer in any batch."""

    def __init__(self) -> None:
        self.policy_version = 0
        self.inputs: list[Array] = []

    def act(self, obs: Array) -> PolicyOutput:
        self.inputs.append(obs)
        action = (obs @ [1.0, 2.0, 5.0]).astype(np.int64) % NUM_ACTIONS
        value = self.value(obs)
        return PolicyOutput(action, -value, value, {"doubled": 2 * obs})

    def value(self, obs: Array) -> NDArray[np.float32]:
        return (obs @ [0.5, 0.25, 0.125]).astype(np.float32)

    def weights(self) -> dict[str, Array]:
        return {}

    def load_weights(self, weights: Mapping[str, Array], version: int) -> None:
        self.policy_version = version


def slow_rollouts(env_ids: range, steps: int, rollouts: int) -> list[dict[str, Array]]:
    """The reference: one environment and one step at a time, everything in lists."""
    policy = HashPolicy()
    names = "obs action reward terminated truncated bootstrap_value log_prob value doubled"
    result = []
    rows = [CounterRow(env_id) for env_id in env_ids]
    for _ in range(rollouts):
        table: dict[str, list[list[Any]]] = {name: [] for name in names.split()}
        episodes: list[tuple[float, int, int]] = []
        for _ in range(steps):
            for cells in table.values():
                cells.append([])
            for row in rows:
                obs = row.obs()
                out = policy.act(np.array([obs]))
                reward, terminated, truncated = row.step(int(out.action[0]))
                bootstrap = 0.0
                if truncated and not terminated:
                    bootstrap = policy.value(np.array([row.obs()]))[0]
                ends = terminated, truncated, bootstrap
                cell = (obs, out.action[0], reward, *ends, out.log_prob[0], out.value[0])
                for name, item in zip(table, (*cell, out.extras["doubled"][0]), strict=True):
                    table[name][-1].append(item)
                if terminated or truncated:
                    episodes.append((row.episode_return, row.t, row.env_id))
                    row.start_episode()
        last_obs = np.array([row.obs() for row in rows])
        arrays = {name: np.array(cells) for name, cells in table.items()}
        stats = np.array(episodes).reshape(-1, 3).T
        arrays["episodes"] = stats
        result.append(arrays | {"last_obs": last_obs, "last_value": policy.value(last_obs)})
    return result


def assert_equal(batch: RolloutBatch, expected: dict[str, Array]) -> None:
    for name, array in expected.items():
        if name == "episodes":
            env_id, *others, _ = batch.episodes()
            np.testing.assert_array_equal([*others, env_id], array)
            continue
        got = batch.extras[name] if name in batch.extras else getattr(batch, name)
        np.testing.assert_array_equal(got, array, err_msg=name)


def shuffled(seed: int) -> Order:
    rng = np.random.default_rng(seed)
    return lambda ids: [ids[i] for i in rng.permutation(len(ids))]


def slow_first(ids: list[int]) -> list[int]:
    """Environment 0 arrives only when nobody else is in flight."""
    return ids[1:] + ids[:1] if ids[0] == 0 else ids


@pytest.mark.parametrize(("num_envs", "steps"), [(1, 1), (1, 7), (5, 1), (6, 11)])
def test_synchronous_rollouts_equal_the_slow_reference(num_envs: int, steps: int) -> None:
    collector = Collector(CounterEnv(num_envs, env_id_offset=3), HashPolicy(), steps)
    for expected in slow_rollouts(range(3, 3 + num_envs), steps, rollouts=4):
        assert_equal(collector.collect(), expected)


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_asynchronous_rollouts_equal_the_slow_reference_in_any_order(data: st.DataObject) -> None:
    num_envs = data.draw(st.integers(2, 7), "num_envs")
    batch_size = data.draw(st.integers(1, num_envs - 1), "batch_size")
    steps = data.draw(st.integers(1, 6), "steps")
    orders: list[Order] = [slow_first, list, *map(shuffled, range(20))]
    order = data.draw(st.sampled_from(orders), "order")
    env = CounterEnv(num_envs, batch_size, order=order)
    collector = Collector(env, HashPolicy(), steps)
    for expected in slow_rollouts(range(num_envs), steps, rollouts=5):
        assert_equal(collector.collect(), expected)


def test_arrays_have_the_documented_shapes_and_dtypes() -> None:
    batch = Collector(CounterEnv(5, 2, env_id_offset=10), HashPolicy(), 4).collect()
    expected = {
        "obs": ((4, 5, 3), np.float64),
        "action": ((4, 5), np.int64),
        "reward": ((4, 5), np.float32),
        "terminated": ((4, 5), np.bool_),
        "truncated": ((4, 5), np.bool_),
        "bootstrap_value": ((4, 5), np.float32),
        "log_prob": ((4, 5), np.float32),
        "value": ((4, 5), np.float32),
        "policy_version": ((4, 5), np.int64),
        "last_obs": ((5, 3), np.float64),
        "last_value": ((5,), np.float32),
        "env_id": ((5,), np.int32),
        "episode_return": ((4, 5), np.float64),
        "episode_length": ((4, 5), np.int32),
    }
    got = {name: getattr(batch, name) for name in expected}
    assert {name: (a.shape, a.dtype) for name, a in got.items()} == expected
    assert batch.env_id.tolist() == [10, 11, 12, 13, 14]


def test_only_truncated_steps_that_did_not_terminate_bootstrap() -> None:
    batch = Collector(CounterEnv(6), HashPolicy(), 12).collect()
    cut = batch.truncated & ~batch.terminated
    assert cut.any() and (batch.truncated & batch.terminated).any()
    assert (batch.bootstrap_value[cut] != 0).all()
    assert (batch.bootstrap_value[~cut] == 0).all()


def test_every_step_carries_the_version_of_the_weights_that_chose_it() -> None:
    policy = HashPolicy()
    collector = Collector(CounterEnv(3), policy, 4)
    for version in (0, 7, 8):
        policy.load_weights({}, version)
        assert (collector.collect().policy_version == version).all()


def test_steps_that_ran_ahead_keep_the_version_that_chose_them() -> None:
    policy = HashPolicy()
    collector = Collector(CounterEnv(4, 3, order=slow_first), policy, 5)
    batches = []
    for version in (1, 2):
        policy.load_weights({}, version)
        batches.append(collector.collect())
    # environment 0 was waited for, so the others had to run ahead to fill its batches
    assert (batches[0].policy_version == 1).all()
    assert (batches[1].policy_version[:, 0] == 2).all()
    assert (batches[1].policy_version[0, 1:] == 1).any()
    assert (np.diff(batches[1].policy_version, axis=0) >= 0).all()


@pytest.mark.parametrize("batch_size", [4, 3])
def test_later_rollouts_do_not_change_earlier_ones(batch_size: int) -> None:
    collector = Collector(CounterEnv(4, batch_size), HashPolicy(), 5)
    first = collector.collect()
    names = [f.name for f in fields(first) if f.name not in ("extras", "final_obs", "counted")]
    copies = {name: np.copy(getattr(first, name)) for name in names}
    second = collector.collect()
    for name, copy in copies.items():
        np.testing.assert_array_equal(getattr(first, name), copy)
        assert not np.shares_memory(getattr(first, name), getattr(second, name))


def test_policy_reads_observations_from_the_rollout_itself() -> None:
    policy = HashPolicy()
    batch = Collector(CounterEnv(4), policy, 3).collect()
    assert all(np.shares_memory(batch.obs[t], seen) for t, seen in enumerate(policy.inputs))


def test_box_actions_are_clipped_for_the_environment_and_kept_as_sampled() -> None:
    class Wide(HashPolicy):
        def act(self, obs: Array) -> PolicyOutput:
            value = self.value(obs)
            action = np.tile(np.array([[-5.0, 0.5]], np.float32), (len(obs), 1))
            return PolicyOutput(action, value, value)

    space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    env = CounterEnv(3, action_space=space)
    batch = Collector(env, Wide(), 2).collect()
    np.testing.assert_array_equal(env.sent_actions[0], np.array([[-1.0, 0.5]] * 3, np.float32))
    np.testing.assert_array_equal(batch.action[0], np.array([[-5.0, 0.5]] * 3, np.float32))


@pytest.mark.parametrize("batch_size", [3, 2])
def test_an_error_passes_through_and_the_next_rollout_starts_new_episodes(batch_size: int) -> None:
    env = CounterEnv(3, batch_size)
    collector = Collector(env, HashPolicy(), 4)
    collector.collect()
    env.fail_at_recv = env._recvs + 3
    with pytest.raises(RuntimeError, match="environment broke"):
        collector.collect()
    (expected,) = slow_rollouts(range(3), 4, rollouts=1)
    assert_equal(collector.collect(), expected)


def test_closing_the_collector_closes_its_environment() -> None:
    env = CounterEnv(2)
    Collector(env, HashPolicy(), 3).close()
    assert env.is_closed


def test_iteration_yields_one_rollout_after_the_other() -> None:
    expected = slow_rollouts(range(2), 3, rollouts=3)
    for batch, reference in zip(Collector(CounterEnv(2), HashPolicy(), 3), expected, strict=False):
        assert_equal(batch, reference)


def test_other_autoreset_modes_are_refused_with_advice() -> None:
    env = CounterEnv(2)
    env.autoreset_mode = AutoresetMode.NEXT_STEP
    with pytest.raises(SpecError, match='autoreset_mode="same_step"'):
        Collector(env, HashPolicy(), 4)


def test_a_rollout_needs_a_step() -> None:
    with pytest.raises(SpecError, match="expected a whole number from 1"):
        Collector(CounterEnv(2), HashPolicy(), 0)
