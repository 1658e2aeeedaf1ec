# SPDX-License-Identifier: Apache-2.0
"""Policies with memory: whose state an observation meets, and running a rollout again."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from test_collector import CounterEnv, Order, shuffled, slow_first
from torch import Tensor, nn

import rollouts
from rollouts.batch import RolloutBatch
from rollouts.collecting.collector import Collector
from rollouts.errors import ProtocolError, SpecError
from rollouts.recurrent import RecurrentTorchPolicy, State, unroll

Array = NDArray[Any]
DISCRETE = gymnasium.spaces.Discrete(3)
LEAK = 1_000.0


class Counting(nn.Module):
    """Remembers its episode's steps, environment and number; its value is the steps.

    Observations of CounterEnv say the same, so a state that met a foreign observation shows: the
    value is then not t, but more than LEAK.
    """

    def initial_state(self) -> State:
        return torch.zeros((), dtype=torch.int64), torch.full((2,), -1.0, dtype=torch.float64)

    def forward(self, obs: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
        count, owner = state
        owner = torch.where(owner == -1, obs[:, :2], owner)
        leaked = (owner != obs[:, :2]).any(1)
        value = count.float() + LEAK * leaked
        return torch.zeros(len(obs), 3), value, (count + 1, owner)


class Gru(nn.Module):
    """CartPole's observations, a GRU cell, two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.heads = nn.GRUCell(4, 8), nn.Linear(8, 3)
        self.start = nn.Parameter(torch.full((8,), 0.5))

    def initial_state(self) -> State:
        return (self.start,)

    def forward(self, obs: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
        hidden = self.cell(obs, state[0])
        out = self.heads(hidden)
        return out[:, :2], out[:, 2], (hidden,)


class Lstm(Gru):
    """The same with an LSTM cell, whose state is two tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(4, 8)  # type: ignore[assignment]

    def initial_state(self) -> State:
        return self.start, torch.zeros(8)

    def forward(self, obs: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
        hidden, memory = self.cell(obs, state)
        out = self.heads(hidden)
        return out[:, :2], out[:, 2], (hidden, memory)


def assert_no_leak(batch: RolloutBatch) -> None:
    """Every value is the number of steps since the episode began, by the observation's own word."""
    t_before_last = batch.obs[..., 2]
    np.testing.assert_array_equal(batch.value, t_before_last)
    np.testing.assert_array_equal(batch.last_value, batch.last_obs[:, 2])
    np.testing.assert_array_equal(batch.policy_state[0], t_before_last[0])
    # a final observation is valued under the state of the episode that it ends
    cut = batch.truncated & ~batch.terminated
    np.testing.assert_array_equal(batch.bootstrap_value[cut], t_before_last[cut] + 1)
    assert (batch.bootstrap_value[~cut] == 0).all()


@pytest.mark.parametrize(("num_envs", "steps"), [(1, 1), (1, 7), (5, 1), (6, 11)])
def test_no_state_leaks_in_a_synchronous_pool(num_envs: int, steps: int) -> None:
    policy = RecurrentTorchPolicy(Counting(), DISCRETE)
    collector = Collector(CounterEnv(num_envs, env_id_offset=3), policy, steps)
    batches = [collector.collect() for _ in range(40 // steps + 4)]
    for batch in batches:
        assert_no_leak(batch)
    assert any((batch.bootstrap_value > 0).any() for batch in batches)
    assert any((batch.policy_state[0] > 0).any() for batch in batches)


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_no_state_leaks_in_an_asynchronous_pool_in_any_order(data: st.DataObject) -> None:
    num_envs = data.draw(st.integers(2, 7), "num_envs")
    batch_size = data.draw(st.integers(1, num_envs - 1), "batch_size")
    steps = data.draw(st.integers(1, 6), "steps")
    orders: list[Order] = [slow_first, list, *map(shuffled, range(20))]
    env = CounterEnv(num_envs, batch_size, order=data.draw(st.sampled_from(orders), "order"))
    collector = Collector(env, RecurrentTorchPolicy(Counting(), DISCRETE), steps)
    for _ in range(12):
        assert_no_leak(collector.collect())


@pytest.mark.parametrize("batch_size", [3, 2])
def test_after_an_error_every_episode_begins_with_a_new_state(batch_size: int) -> None:
    env = CounterEnv(3, batch_size)
    collector = Collector(env, RecurrentTorchPolicy(Counting(), DISCRETE), 4)
    collector.collect()
    env.fail_at_recv = env._recvs + 3
    with pytest.raises(RuntimeError, match="environment broke"):
        collector.collect()
    for _ in range(5):
        assert_no_leak(collector.collect())


@pytest.mark.parametrize("batch_size", [4, 3])
def test_later_rollouts_do_not_change_the_state_of_earlier_ones(batch_size: int) -> None:
    policy = RecurrentTorchPolicy(Counting(), DISCRETE)
    collector = Collector(CounterEnv(4, batch_size), policy, 3)
    batches = [collector.collect() for _ in range(4)]
    for batch in batches:
        assert_no_leak(batch)


@pytest.mark.parametrize("batch_size", [None, 5])
@pytest.mark.parametrize("module_type", [Gru, Lstm])
def test_the_learner_sees_what_the_policy_saw(
    module_type: type[Gru], batch_size: int | None
) -> None:
    torch.manual_seed(0)
    module = module_type()
    options: dict[str, Any] = {"autoreset_mode": "same_step", "max_episode_steps": 15}
    with rollouts.make_vec("CartPole-v1", 8, batch_size=batch_size, seed=1, **options) as env:
        policy = RecurrentTorchPolicy(module, env.single_action_space)
        collector = Collector(env, policy, 20)
        for _ in range(3):
            batch = collector.collect()
            ended = torch.from_numpy(batch.terminated | batch.truncated)
            assert ended.any() and not ended.all(0).any()
            logits, value, state = unroll(
                module,
                torch.from_numpy(batch.obs),
                tuple(map(torch.from_numpy, batch.policy_state)),
                ended=ended,
                initial_state=module.initial_state(),
            )
            actions = torch.from_numpy(batch.action)
            log_prob, _ = policy.head.evaluate([logits.flatten(0, 1)], actions.flatten())
            last_value = module(torch.from_numpy(batch.last_obs), state)[1]
            # matrix products of 5 rows and of 8 round differently in float32
            close: dict[str, float] = {"rtol": 1e-5, "atol": 1e-6}
            np.testing.assert_allclose(value.detach(), batch.value, **close)
            np.testing.assert_allclose(last_value.detach(), batch.last_value, **close)
            np.testing.assert_allclose(log_prob.detach(), batch.log_prob.ravel(), **close)


def test_gradients_flow_through_time_but_not_across_the_end_of_an_episode() -> None:
    module = Gru()
    obs = torch.randn(5, 2, 4, requires_grad=True)
    ended = torch.zeros(5, 2, dtype=torch.bool)
    ended[2, 0] = True
    start = (torch.zeros(2, 8),)
    _, value, _ = unroll(module, obs, start, ended=ended, initial_state=module.initial_state())
    value[4].sum().backward()
    assert obs.grad is not None
    reached = obs.grad.abs().sum(-1) > 0
    assert reached[:, 0].tolist() == [False, False, False, True, True]
    assert reached[:, 1].all()
    assert module.start.grad is not None and module.start.grad.any()


def test_rows_are_independent_of_the_order_and_the_company_they_come_in() -> None:
    policy = RecurrentTorchPolicy(Counting(), DISCRETE)
    obs = CounterEnvObs(7)
    no, yes = np.zeros(2, np.bool_), np.ones(2, np.bool_)
    policy.act_rows(obs([5, 1]), np.array([5, 1]), yes)
    policy.act_rows(obs([1, 5]), np.array([1, 5]), no)
    policy.act_rows(obs([5, 0]), np.array([5, 0]), np.array([False, True]))
    value = policy.value_rows(obs([0, 1, 5]), np.array([0, 1, 5]), np.zeros(3, np.bool_))
    assert value.tolist() == [1.0, 2.0, 3.0]
    # valuing leaves the states as they are
    assert policy.states(np.array([5, 1]), no)[0].tolist() == [3, 2]
    assert policy.states(np.array([5, 1]), np.array([True, False]))[0].tolist() == [0, 2]


class CounterEnvObs:
    """Observations of episode 0; t is not looked at."""

    def __init__(self, num_envs: int) -> None:
        self._rows = np.zeros((num_envs, 3))
        self._rows[:, 0] = np.arange(num_envs)

    def __call__(self, rows: list[int]) -> Array:
        return self._rows[rows]


def test_a_call_without_rows_is_refused_with_advice() -> None:
    policy = RecurrentTorchPolicy(Counting(), DISCRETE)
    with pytest.raises(ProtocolError, match=r"act\(\) of a recurrent policy.*call act_rows\(\)"):
        policy.act(np.zeros((2, 3)))
    with pytest.raises(ProtocolError, match=r"call value_rows\(\)"):
        policy.value(np.zeros((2, 3)))


def test_a_state_of_another_shape_than_the_initial_one_is_named() -> None:
    class Widening(Counting):
        def forward(self, obs: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
            logits, value, (count, owner) = super().forward(obs, state)
            return logits, value, (count, owner.repeat(1, 2))

    policy = RecurrentTorchPolicy(Widening(), DISCRETE)
    with pytest.raises(SpecError, match=r"returned a state of .*as in its initial_state"):
        policy.act_rows(np.zeros((2, 3)), None, np.ones(2, np.bool_))


@pytest.mark.parametrize(
    "states",
    [
        (),
        (np.zeros((2, 7), np.float32),),
        (np.zeros((2, 8), np.float64),),
        (np.float32(1),),
        (np.zeros((2, 8), np.float32),) * 2,
    ],
    ids=["none", "another size", "another dtype", "a number", "one too many"],
)
def test_states_to_go_on_from_that_are_none_of_the_modules_are_named(states: Any) -> None:
    policy = RecurrentTorchPolicy(Gru(), DISCRETE)
    policy.take_over((np.ones((2, 8), np.float32),))
    with pytest.raises(SpecError, match=r"expected \(N, \.\.\.\) of \[\(\(8,\), torch.float32\)\]"):
        policy.take_over(states)
    # those of before are there still
    (kept,) = policy.states(None, np.zeros(2, np.bool_))
    np.testing.assert_array_equal(kept, np.ones((2, 8), np.float32))


def test_unroll_names_shapes_that_do_not_fit() -> None:
    module, obs = Gru(), torch.zeros(5, 2, 4)
    ended, state = torch.zeros(5, 2, dtype=torch.bool), (torch.zeros(2, 8),)
    initial = module.initial_state()
    with pytest.raises(SpecError, match=r"ended has shape \(4, 2\), expected \(5, 2\)"):
        unroll(module, obs, state, ended=ended[1:], initial_state=initial)
    with pytest.raises(SpecError, match=r"state has shapes \[\(3, 8\)\], expected 1 .* 2 rows"):
        unroll(module, obs, (torch.zeros(3, 8),), ended=ended, initial_state=initial)


def test_joined_batches_keep_the_states_of_their_columns() -> None:
    def collect(num_envs: int) -> RolloutBatch:
        policy = RecurrentTorchPolicy(Counting(), DISCRETE)
        collector = Collector(CounterEnv(num_envs), policy, 3)
        collector.collect()
        return collector.collect()

    batches = [collect(2), collect(4)]
    joined = RolloutBatch.concatenate(batches)
    assert_no_leak(joined)
    assert [s.shape for s in joined.policy_state] == [(6,), (6, 2)]
    without = RolloutBatch(
        **{
            name: getattr(batches[0], name)
            for name in RolloutBatch.__dataclass_fields__
            if name != "policy_state"
        }
    )
    states_nbytes = sum(s.nbytes for s in batches[0].policy_state)
    assert batches[0].nbytes - without.nbytes == states_nbytes > 0
    with pytest.raises(SpecError, match="batch 1 has 0 arrays of policy_state, expected 2"):
        RolloutBatch.concatenate([batches[0], without])


def test_a_coordinator_delivers_the_states_with_the_fragments() -> None:
    def make_policy(spec: Any) -> RecurrentTorchPolicy:
        return RecurrentTorchPolicy(Gru(), spec.single_action_space)

    with rollouts.RolloutCoordinator(
        "CartPole-v1", make_policy, num_workers=0, num_envs_per_worker=4, rollout_length=6
    ) as coordinator:
        weights = Gru().state_dict()
        coordinator.publish_weights({name: array.numpy() for name, array in weights.items()})
        first, second = coordinator.get(), coordinator.get()
    np.testing.assert_array_equal(first.policy_state[0], np.full((4, 8), 0.5))
    assert (second.policy_state[0] != 0.5).any()
