# SPDX-License-Identifier: Apache-2.0
"""Wrong results of a policy or a module are named, with their shape, and never kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

import rollouts
from rollouts.collecting.collector import Collector
from rollouts.errors import SpecError

torch = pytest.importorskip("torch")
nn = torch.nn

from rollouts.policy import PolicyOutput, TorchPolicy  # noqa: E402
from rollouts.recurrent import RecurrentTorchPolicy  # noqa: E402

NUM_ENVS = 4
DISCRETE = gymnasium.spaces.Discrete(2)
BOX = gymnasium.spaces.Box(-1, 1, (3,), np.float32)


def right_output(num_rows: int) -> dict[str, Any]:
    zeros = np.zeros(num_rows, np.float32)
    return {"action": np.zeros(num_rows, np.int64), "log_prob": zeros, "value": zeros}


class ChangedPolicy:
    """Right but for what `change` replaces in the output, and for what `value` returns."""

    policy_version = 0

    def __init__(
        self,
        change: Callable[[int], dict[str, Any]] = lambda num_rows: {},
        value: Callable[[int], Any] = np.zeros,
    ) -> None:
        self._change, self._value = change, value

    def act(self, obs: Any) -> PolicyOutput:
        return PolicyOutput(**{**right_output(len(obs)), **self._change(len(obs))})

    def value(self, obs: Any) -> Any:
        return self._value(len(obs))


def collect(policy: Any, batch_size: int | None = None) -> Any:
    with rollouts.make_vec(
        "CartPole-v1", NUM_ENVS, batch_size=batch_size, autoreset_mode="same_step", seed=0
    ) as env:
        return Collector(env, policy, 30).collect()


def test_a_right_policy_is_collected() -> None:
    assert collect(ChangedPolicy()).reward.shape == (30, NUM_ENVS)


@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize("name", ["log_prob", "value"])
def test_a_column_in_place_of_a_vector_is_refused(name: str, batch_size: int | None) -> None:
    rows = batch_size or NUM_ENVS
    policy = ChangedPolicy(lambda num_rows: {name: np.zeros((num_rows, 1), np.float32)})
    with pytest.raises(SpecError, match=rf"{name} of shape \({rows}, 1\), expected \({rows},\)"):
        collect(policy, batch_size)


def test_extras_that_have_other_rows_are_refused() -> None:
    policy = ChangedPolicy(lambda num_rows: {"extras": {"logits": np.zeros((2, num_rows))}})
    with pytest.raises(SpecError, match=r"logits of shape \(2, 4\), expected \(4, ...\)"):
        collect(policy)


def test_a_column_of_last_values_is_refused() -> None:
    policy = ChangedPolicy(value=lambda num_rows: np.zeros((num_rows, 1), np.float32))
    with pytest.raises(SpecError, match=r"value\(\) returned shape \(4, 1\), expected \(4,\)"):
        collect(policy)


@pytest.mark.parametrize("name", ["log_prob", "value"])
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_refused_with_their_place(name: str, number: float) -> None:
    calls = []

    def change(num_rows: int) -> dict[str, Any]:
        calls.append(1)
        array = np.zeros(num_rows, np.float32)
        array[2] = number if len(calls) == 8 else 0
        return {name: array}

    with pytest.raises(SpecError, match=f"{name} {number} for environment 2 of step 7, 1 of 120"):
        collect(ChangedPolicy(change))


def test_last_values_that_are_not_finite_are_refused() -> None:
    policy = ChangedPolicy(value=lambda num_rows: np.full(num_rows, np.nan))
    with pytest.raises(SpecError, match="last_value nan for environment 0 after the last step"):
        collect(policy)


class Returning(nn.Module):
    def __init__(self, *outputs: Any) -> None:
        super().__init__()
        self._outputs = outputs

    def forward(self, *_: Any) -> Any:
        return self._outputs if len(self._outputs) != 1 else self._outputs[0]


def test_a_module_without_a_value_is_told_to_return_one() -> None:
    expected = (
        r"a single tensor of shape \(3, 2\) for 3 observations, expected a tuple \(logits, value\)"
    )
    policy = TorchPolicy(nn.Linear(4, 2), DISCRETE)
    for call in (policy.act, policy.value):
        with pytest.raises(SpecError, match=expected):
            call(np.zeros((3, 4), np.float32))


@pytest.mark.parametrize(
    ("space", "shapes", "message"),
    [
        (DISCRETE, [(3, 2), (3,), (3,)], r"3 outputs .* expected a tuple \(logits, value\)"),
        (BOX, [(3, 3), (3,)], r"2 outputs .* expected a tuple \(mean, log_std, value\)"),
        (DISCRETE, [(3, 2), (3, 2)], r"a value of shape \(3, 2\) for 3 .* expected \(3,\) or"),
        (DISCRETE, [(3, 2), (1,)], r"a value of shape \(1,\) for 3"),
        (DISCRETE, [(2,), (3,)], r"logits of shape \(2,\) for 3"),
        (BOX, [(3,), (3,), (1, 1)], r"a value of shape \(1, 1\) for 3"),
    ],
)
def test_outputs_of_wrong_number_or_shape_are_named(
    space: Any, shapes: list[tuple[int, ...]], message: str
) -> None:
    policy = TorchPolicy(Returning(*map(torch.zeros, shapes)), space)
    with pytest.raises(SpecError, match=message):
        policy.act(np.zeros((3, 4), np.float32))


def test_a_recurrent_module_without_a_value_is_told_to_return_one() -> None:
    module = Returning(torch.zeros(3, 2), (torch.zeros(3, 5),))
    module.initial_state = lambda: (torch.zeros(5),)
    policy = RecurrentTorchPolicy(module, DISCRETE)
    with pytest.raises(
        SpecError, match=r"2 outputs, expected a tuple \(logits, value, new_state\)"
    ):
        policy.act_rows(np.zeros((3, 4), np.float32), None, np.ones(3, np.bool_))


def test_a_head_of_ones_own_needs_no_names_of_outputs() -> None:
    class Greedy:
        dtype = np.int64

        def sample(self, params: Any, generator: Any) -> Any:
            action = params[0].argmax(-1)
            return action, torch.zeros(len(action))

    class Module(nn.Module):
        def forward(self, obs: Any) -> Any:
            return obs[:, :2], obs[:, 0]

    policy = TorchPolicy(Module(), DISCRETE)
    policy.head = Greedy()
    assert policy.act(np.eye(4, dtype=np.float32)).action.tolist() == [0, 1, 0, 0]
    policy.module = nn.Identity()
    with pytest.raises(SpecError, match="a single tensor of shape"):
        policy.act(np.eye(4, dtype=np.float32))
