# SPDX-License-Identifier: Apache-2.0
"""A collector's calls of its policy: states, rows, and the times before and after ends."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from rollouts.batch import StepBatch
from rollouts.collecting.policy_calls import make_policy_calls
from rollouts.errors import SpecError
from rollouts.policies.output_checks import (
    check_action,
    check_finite,
    check_module_outputs,
    check_output,
    check_value,
)
from rollouts.policies.protocol import PolicyOutput
from rollouts.recurrent import reset_where, unroll

Array = NDArray[Any]
N, T = 3, 4


def step(ended: list[int], truncated: bool = False) -> StepBatch:
    rows = len(ended)
    flags, none = np.array(ended, np.bool_), np.zeros(rows, np.bool_)
    return StepBatch(
        obs=np.zeros((rows, 1)),
        reward=np.zeros(rows),
        terminated=none if truncated else flags,
        truncated=flags if truncated else none,
        env_id=np.arange(rows, dtype=np.int32),
        episode_return=np.zeros(rows),
        episode_length=np.zeros(rows, np.int32),
        final_obs=None,
        info={},
    )


class Counting:
    """A recurrent policy whose state counts the observations of the episode, per environment."""

    policy_version = 0

    def __init__(self) -> None:
        self.counts = np.zeros(N, np.int64)
        self.asked: list[tuple[str, Any, list[bool]]] = []

    def _rows(self, name: str, rows: Any, begins: Array) -> Any:
        self.asked.append((name, None if rows is None else rows.tolist(), begins.tolist()))
        return np.arange(N) if rows is None else rows

    def _before(self, rows: Array, begins: Array) -> Array:
        return np.where(begins, 0, self.counts[rows])

    def act_rows(self, obs: Array, rows: Any, begins: Array) -> PolicyOutput:
        rows = self._rows("act", rows, begins)
        self.counts[rows] = self._before(rows, begins) + 1
        numbers = self.counts[rows].astype(np.float32)
        return PolicyOutput(numbers, numbers, numbers)

    def value_rows(self, obs: Array, rows: Any, begins: Array) -> Array:
        rows = self._rows("value", rows, begins)
        return self._before(rows, begins).astype(np.float32)

    def states(self, rows: Any, begins: Array) -> tuple[Array, ...]:
        rows = self._rows("states", rows, begins)
        return (self._before(rows, begins),)


def obs(rows: int = N) -> Array:
    return np.zeros((rows, 1))


def rows(*values: int) -> Any:
    return np.array(values, np.intp)


def calls_of(policy: Any) -> Any:
    return make_policy_calls(policy, num_envs=N, rollout_length=T)


def test_every_first_observation_begins_an_episode() -> None:
    policy = Counting()
    calls = calls_of(policy)
    assert calls.act(obs(), None, 0).value.tolist() == [1, 1, 1]
    assert policy.asked[-1] == ("act", None, [True] * 3)


def test_without_an_answer_of_the_environment_an_episode_still_begins() -> None:
    policy = Counting()
    calls = calls_of(policy)
    calls.act(obs(), None, 0)
    # nothing was seen of a step, so this is the first observation again
    assert calls.act(obs(), None, 1).value.tolist() == [1, 1, 1]


@pytest.mark.parametrize("truncated", [True, False])
def test_episodes_begin_where_one_has_ended(truncated: bool) -> None:
    policy = Counting()
    calls = calls_of(policy)
    calls.act(obs(), None, 0)
    calls.see_ends(step([0, 1, 0], truncated), None)
    assert calls.act(obs(), None, 1).value.tolist() == [2, 1, 2]
    calls.see_ends(step([0, 0, 0]), None)
    assert calls.act(obs(), None, 2).value.tolist() == [3, 2, 3]


def test_ends_of_some_rows_are_noted_for_these_alone() -> None:
    policy = Counting()
    calls = calls_of(policy)
    calls.act(obs(), None, 0)
    calls.see_ends(step([0, 0, 0]), None)
    calls.see_ends(step([1, 0]), rows(2, 0))
    assert calls.act(obs(2), rows(1, 2), np.array([1, 1])).value.tolist() == [2, 1]


def test_final_values_are_those_of_the_episode_that_ends() -> None:
    policy = Counting()
    calls = calls_of(policy)
    calls.act(obs(), None, 0)
    assert calls.final_value(obs(2), rows(2, 0)).tolist() == [1, 1]
    assert policy.asked[-1] == ("value", [2, 0], [False, False])


def test_last_values_of_all_begin_where_episodes_ended() -> None:
    policy = Counting()
    calls = calls_of(policy)
    calls.act(obs(), None, 0)
    calls.see_ends(step([0, 1, 0]), None)
    assert calls.last_value(obs(), None, None).tolist() == [1, 0, 1]


def test_last_values_that_are_known_are_not_asked_for() -> None:
    policy = Counting()
    calls = calls_of(policy)
    calls.act(obs(), None, 0)
    calls.see_ends(step([1, 0, 0]), None)
    known = np.array([7.0, 8.0, 9.0])
    is_known = np.array([False, True, False])
    value = calls.last_value(obs(), known, is_known)
    assert value.tolist() == [0, 8, 1] and value.dtype == np.float32
    assert policy.asked[-1] == ("value", [0, 2], [True, False])
    assert known.tolist() == [7, 8, 9]
    asked = len(policy.asked)
    assert calls.last_value(obs(), known, np.ones(N, np.bool_)).tolist() == [7, 8, 9]
    assert len(policy.asked) == asked


def test_states_are_those_before_the_rows_that_open_a_rollout() -> None:
    policy = Counting()
    calls = calls_of(policy)
    for t in range(2 * T + 1):
        calls.act(obs(), None, t % T)
        calls.see_ends(step([int(t == 1), 0, 0]), None)
        if t % T == T - 1:
            (state,) = calls.take_states()
            expected = [0, 0, 0] if t == T - 1 else [2, 4, 4]
            assert state.tolist() == expected
    # the policy is asked for states once per rollout, not at each step
    assert [name for name, _, _ in policy.asked].count("states") == 3


def test_environments_that_run_ahead_leave_their_states_for_the_next_rollouts() -> None:
    policy = Counting()
    calls = calls_of(policy)
    calls.act(obs(), None, 0)
    calls.see_ends(step([0, 0, 0]), None)
    for t in range(1, 2 * T + 1):
        calls.act(obs(1), rows(1), np.array([t]))
    assert calls.take_states()[0].tolist() == [0, 0, 0]
    # environment 1 is two rollouts ahead, the others open theirs now
    calls.act(obs(2), rows(0, 2), np.array([0, 0]))
    assert calls.take_states()[0].tolist() == [1, 4, 1]
    calls.act(obs(2), rows(2, 0), np.array([0, 0]))
    assert calls.take_states()[0].tolist() == [2, 8, 2]


def test_states_that_were_taken_are_copies() -> None:
    calls = calls_of(Counting())
    calls.act(obs(), None, 0)
    (state,) = calls.take_states()
    state[...] = 99
    calls.act(obs(), None, 0)
    assert calls.take_states()[0].tolist() == [0, 0, 0]


def test_after_a_reset_everything_begins_and_old_states_are_gone() -> None:
    policy = Counting()
    calls = calls_of(policy)
    calls.act(obs(), None, 0)
    calls.see_ends(step([0, 0, 0]), None)
    calls.reset()
    assert calls.take_states() == ()
    assert calls.act(obs(), None, 0).value.tolist() == [1, 1, 1]


class Plain:
    """A policy without memory, which returns what it is given."""

    policy_version = 0

    def __init__(self, output: Any) -> None:
        self.output = output

    def act(self, obs: Array) -> Any:
        return self.output

    def value(self, obs: Array) -> Any:
        return self.output


def test_a_plain_policy_is_asked_for_all_last_values_and_has_no_states() -> None:
    value = np.arange(N, dtype=np.float32)
    calls = calls_of(Plain(value))
    known, is_known = np.full(N, 9.0), np.ones(N, np.bool_)
    assert calls.last_value(obs(), known, is_known) is value
    assert calls.final_value(obs(), rows(0, 1, 2)) is value
    assert calls.take_states() == ()
    with pytest.raises(SpecError, match=r"value\(\) returned shape \(3,\), expected \(2,\)"):
        calls.final_value(obs(2), rows(0, 1))


class Column(Counting):
    """Returns a column in place of a vector."""

    def act_rows(self, obs: Array, rows: Any, begins: Array) -> PolicyOutput:
        found = super().act_rows(obs, rows, begins)
        return PolicyOutput(found.action, found.log_prob, found.value[:, None])

    def value_rows(self, obs: Array, rows: Any, begins: Array) -> Array:
        return super().value_rows(obs, rows, begins)[:, None]


def test_what_a_policy_returns_is_checked_at_each_call_of_either_kind() -> None:
    recurrent, plain = calls_of(Column()), calls_of(Plain(output(value=np.zeros((N, 1)))))
    for calls in (recurrent, plain):
        with pytest.raises(SpecError, match=r"value\[:, 0\] has that shape"):
            calls.act(obs(), None, 0)
    with pytest.raises(SpecError, match=r"value\(\) returned shape \(3, 1\)"):
        recurrent.last_value(obs(), None, None)
    with pytest.raises(SpecError, match=r"value\(\) returned shape \(2, 1\)"):
        recurrent.final_value(obs(2), rows(0, 2))


def output(**changes: Any) -> PolicyOutput:
    good = {"action": np.zeros(N), "log_prob": np.zeros(N), "value": np.zeros(N)}
    return PolicyOutput(**good | changes)


def test_an_output_of_one_number_per_observation_passes() -> None:
    check_output(output(action=np.zeros((N, 2, 2)), extras={"h": np.zeros((N, 0))}), N)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"value": np.zeros((N, 1))}, r"value of shape \(3, 1\), .*; value\[:, 0\] has that shape"),
        ({"log_prob": np.zeros((N, 1))}, r"log_prob\[:, 0\] has that shape"),
        ({"value": np.zeros((N, 2))}, r"value of shape \(3, 2\), expected \(3,\): one number per"),
        ({"log_prob": 0.0}, r"log_prob of shape \(\), expected \(3,\)"),
        ({"action": np.zeros(())}, r"action of shape \(\), expected \(3, ...\): one row per"),
        ({"action": np.zeros((2, 3))}, r"action of shape \(2, 3\)"),
        ({"extras": {"h": np.zeros(2)}}, r"returned h of shape \(2,\), expected \(3, ...\)"),
    ],
)
def test_an_output_of_another_shape_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        check_output(output(**changes), N)


def test_an_advice_is_given_only_where_it_helps() -> None:
    with pytest.raises(SpecError) as caught:
        check_value(np.zeros((4, 1)), N)
    assert "has that shape" not in str(caught.value)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_the_first_number_that_is_not_finite_is_placed(number: float) -> None:
    array = np.zeros((2, N))
    array[1, 2] = array[1, 0] = number
    with pytest.raises(SpecError) as caught:
        check_finite("value", array, np.array([5, 6, 7], np.int32))
    assert f"value {number} for environment 5 of step 1, 2 of 6 are not finite" in str(caught.value)
    with pytest.raises(SpecError, match="for environment 7 after the last step, 1 of 3"):
        check_finite("last_value", np.array([0, 0, number]), np.array([5, 6, 7], np.int32))


@pytest.mark.parametrize(
    ("action", "space"),
    [
        (np.array([3, 5]), spaces.Discrete(3, start=3)),
        (np.zeros((2, 4)), spaces.Box(-1, 1, (4,))),
        (np.zeros(2), spaces.Box(-1, 1, ())),
        (np.full((2, 1), 9.0), spaces.Box(-1, 1, (1,))),  # it is clipped
    ],
)
def test_actions_of_the_space_pass(action: Array, space: gymnasium.Space[Any]) -> None:
    check_action(action, space)


@pytest.mark.parametrize(
    ("action", "space", "message"),
    [
        (np.array([3, 6]), spaces.Discrete(3, start=3), r"action 6, expected one of Discrete\(3"),
        (np.array([2, 3]), spaces.Discrete(3, start=3), "action 2, expected one of"),
        (np.zeros((2, 1)), spaces.Discrete(3), r"shape \(2, 1\), expected \(2,\)"),
        (np.zeros(2), spaces.Box(-1, 1, (1,)), r"shape \(2,\), expected \(2, 1\)"),
    ],
)
def test_actions_that_there_are_not_are_named(
    action: Array, space: gymnasium.Space[Any], message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        check_action(action, space)


ones = torch.ones


@pytest.mark.parametrize(
    ("outputs", "names"),
    [
        ((ones(N, 2), ones(N)), ("logits",)),
        ([ones(N, 2), ones(N, 1)], ("logits",)),
        ((ones(N, 2), ones(2), ones(N)), ("mean", "log_std")),
        ((ones(N), ones(N)), None),
        ((ones(N), ones(1), ones(1), ones(N)), None),
    ],
)
def test_modules_that_return_a_value_last_pass(outputs: Any, names: Any) -> None:
    check_module_outputs(outputs, names, N)


@pytest.mark.parametrize(
    ("outputs", "names", "message"),
    [
        (ones(N, 2), ("logits",), r"a single tensor of shape \(3, 2\)"),
        ({"logits": 1}, ("logits",), "returned a dict for 3 observations"),
        ((ones(N, 2),), None, r"1 outputs of shapes \(3, 2\) for 3 observations"),
        ((), None, "0 outputs of shapes"),
        ((ones(N, 2), 5), ("mean", "log_std"), r"2 outputs of shapes \(3, 2\), \(\)"),
        ((ones(N, 2), ones(N, 2)), ("logits",), r"a value of shape \(3, 2\)"),
        ((ones(N, 2), ones(1)), ("logits",), r"a value of shape \(1,\)"),
        ((ones(N), ones(N)), ("logits",), r"returned logits of shape \(3,\)"),
        ((ones(2, 2), ones(N)), None, r"returned an action output of shape \(2, 2\)"),
    ],
)
def test_modules_that_return_something_else_are_told(
    outputs: Any, names: Any, message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        check_module_outputs(outputs, names, N)


def test_states_are_replaced_where_an_episode_begins_whatever_their_shape() -> None:
    initial = (torch.full((2, 2), 7.0), torch.tensor(5))
    state = (torch.zeros(N, 2, 2), torch.arange(N))
    one, other = reset_where(torch.tensor([False, True, False]), initial, state)
    assert one[:, 0, 0].tolist() == [0, 7, 0] and (one[1] == 7).all()
    assert other.tolist() == [0, 5, 2]
    # the given ones stay
    assert (state[0] == 0).all() and state[1].tolist() == [0, 1, 2]


def test_unrolling_resets_after_the_step_that_ended_and_returns_every_output() -> None:
    def count(row: Any, state: Any) -> Any:
        (before,) = state
        return before, 10 * row, (before + 1,)

    ended = torch.tensor([[0, 1], [0, 0], [1, 0]], dtype=torch.bool)
    inputs = torch.arange(6.0).reshape(3, 2)
    before, tens, state = unroll(
        count,
        inputs,
        (torch.tensor([4, 4]),),
        ended=ended,
        initial_state=(torch.tensor(0),),
    )
    assert before.tolist() == [[4, 4], [5, 0], [6, 1]]
    assert torch.equal(tens, 10 * inputs)
    assert state[0].tolist() == [0, 2]


def test_unrolling_nothing_wrong_in_shape_is_named() -> None:
    ended = torch.zeros(3, 2, dtype=torch.bool)
    with pytest.raises(SpecError, match=r"ended has shape \(3, 2\), expected \(2, 2\) as inputs"):
        unroll(lambda row, state: (row, state), ones(2, 2), (), ended=ended, initial_state=())
    with pytest.raises(SpecError, match="expected 1 tensors with 2 rows"):
        unroll(
            lambda row, state: (row, state), ones(3, 2), (), ended=ended, initial_state=(ones(()),)
        )
