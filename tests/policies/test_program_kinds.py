# SPDX-License-Identifier: Apache-2.0
"""Each operation of a `Program` by numbers worked out by hand, and its parameters' edges."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rollouts.errors import SpecError
from rollouts.policies.program import KINDS, Op, Param, Program, parameters_of

E = math.e
X = [-2.0, 0.0, 3.0]
# the table of the module's docstring, for one row of X
BY_HAND: dict[str, tuple[tuple[float, ...], list[float]]] = {
    "relu": ((), [0, 0, 3]),
    "detach": ((), X),
    "square": ((), [4, 0, 9]),
    "exp": ((), [E**-2, 1, E**3]),
    "tanh": ((), [math.tanh(-2), 0, math.tanh(3)]),
    "sigmoid": ((), [1 / (1 + E**2), 0.5, 1 / (1 + E**-3)]),
    "silu": ((), [-2 / (1 + E**2), 0, 3 / (1 + E**-3)]),
    "softplus": ((), [math.log(1 + E**-2), math.log(2), math.log(1 + E**3)]),
    "gelu": ((), [-(1 + math.erf(-2 / 2**0.5)), 0, 1.5 * (1 + math.erf(3 / 2**0.5))]),
    "gelu_tanh": ((), [-0.0454023, 0, 2.9963627]),
    "elu": ((2.0,), [2 * (E**-2 - 1), 0, 3]),
    "leaky_relu": ((0.5,), [-1, 0, 3]),
    "clamp": ((-1.0, 2.0), [-1, 0, 2]),
    "scale": ((2.0, 1.0), [-3, 1, 7]),
    "layer_norm": (
        (1.0,),
        [-7 / 3 / (47 / 9) ** 0.5, -1 / 3 / (47 / 9) ** 0.5, 8 / 3 / (47 / 9) ** 0.5],
    ),
}
OF_TWO: dict[str, list[float]] = {
    "add": [-1.5, 0.5, 3.5],
    "sub": [-2.5, -0.5, 2.5],
    "mul": [-1, 0, 1.5],
    "div": [-4, 0, 6],
    "minimum": [-2, 0, 0.5],
    "maximum": [0.5, 0.5, 3],
    "greater": [0, 0, 1],
    "greater_equal": [0, 0, 1],
    "equal": [0, 0, 0],
}


def evaluated(*ops: Op, obs: Any = (X,), params: Any = (), **options: Any) -> np.ndarray[Any, Any]:
    obs = np.array(obs, np.float64)
    program = Program(obs.shape[1], ops, (), (len(ops),))
    (out,) = program.evaluate(params, obs, **options)
    return out


@pytest.mark.parametrize("kind", sorted(BY_HAND))
def test_an_operation_of_one_register_is_its_formula(kind: str) -> None:
    numbers, expected = BY_HAND[kind]
    found = evaluated(Op(kind, (0,), (), numbers, 3))
    np.testing.assert_allclose(found, [expected], rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("kind", sorted(OF_TWO))
def test_one_feature_meets_all_of_another_register(kind: str) -> None:
    half = Op("literal", (), (), (0.5,), 1)
    assert evaluated(half, Op(kind, (0, 1), (), (), 3)).tolist() == [OF_TWO[kind]]


def test_one_of_two_is_chosen_where_a_number_is_not_zero() -> None:
    low = Op("literal", (), (), (-math.inf,), 1)
    found = evaluated(low, Op("where", (0, 0, 1), (), (), 3))
    assert found.tolist() == [[-2, -math.inf, 3]]
    for kind, holds in {"equal": 1, "greater_equal": 1, "greater": 0}.items():
        assert evaluated(Op(kind, (0, 0), (), (), 3)).tolist() == [[holds] * 3]


def test_roots_and_logarithms_are_of_positive_numbers() -> None:
    obs = [[1.0, 4.0, 0.0, -1.0]]
    roots = evaluated(Op("sqrt", (0,), (), (), 4), obs=obs)[0]
    assert roots[:3].tolist() == [1, 2, 0] and np.isnan(roots[3])
    logs = evaluated(Op("log", (0,), (), (), 4), obs=obs)[0]
    np.testing.assert_allclose(logs[:3], [0, 2 * math.log(2), -math.inf], rtol=1e-6)
    assert np.isnan(logs[3])


def test_every_kind_has_its_numbers_here_or_beside() -> None:
    others = {"linear", "embedding", "constant", "literal", "concat", "slice", "log", "sqrt"}
    others |= {"where"}
    assert set(BY_HAND) | set(OF_TWO) | others == KINDS


def test_a_table_is_read_by_rows() -> None:
    table = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    op = Op("embedding", (0,), (0,), (), 2)
    assert evaluated(op, obs=[[2.0], [0.0]], params=[table]).tolist() == [[5, 6], [1, 2]]


def test_constants_stand_in_every_row() -> None:
    op = Op("constant", (), (0,), (), 2)
    found = evaluated(op, obs=[[0.0]] * 3, params=[np.array([7, 8], np.float32)])
    assert found.tolist() == [[7, 8]] * 3


def test_gain_and_bias_follow_the_normalisation() -> None:
    params = [np.array([1, 2], np.float32), np.array([10, 20], np.float32)]
    # mean 3 and variance 1, and an eps of 0
    op = Op("layer_norm", (0,), (0, 1), (0.0,), 2)
    assert evaluated(op, obs=[[2.0, 4.0]], params=params).tolist() == [[9, 22]]


def test_rounding_is_that_of_the_dtype() -> None:
    op = Op("scale", (0,), (), (1.0, 1e-9), 1)
    assert evaluated(op, obs=[[1.0]]).tolist() == [[1]]
    assert evaluated(op, obs=[[1.0]], dtype=np.float64).tolist() == [[1 + 1e-9]]


def test_observations_of_any_shape_are_flattened() -> None:
    program = Program(6, (Op("slice", (0,), (), (2.0,), 3),), (), (1,))
    obs = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    (out,) = program.evaluate([], obs)
    assert out.tolist() == [[2, 3, 4], [8, 9, 10]] and out.dtype == np.float32


def test_no_rows_give_no_rows() -> None:
    program = Program(2, (Op("tanh", (0,), (), (), 2),), (), (1, 0))
    assert [out.shape for out in program.evaluate([], np.zeros((0, 2)))] == [(0, 2), (0, 2)]


def param(**changes: Any) -> Program:
    given: dict[str, Any] = {
        "name": "w",
        "shape": (2, 3),
        "source_shape": (2, 3),
        "start": 0,
        "strides": (3, 1),
    }
    return Program(1, (), (Param(**(given | changes)),), (0,))


def test_a_parameter_that_is_right_is_not_copied() -> None:
    weight = np.arange(6, dtype=np.float32).reshape(2, 3)
    (found,) = parameters_of(param(), {"w": weight})
    assert np.shares_memory(found, weight)


def test_a_part_of_a_parameter_is_copied_together() -> None:
    weight = np.arange(12, dtype=np.float32).reshape(3, 4)
    columns = param(shape=(3, 2), source_shape=(3, 4), start=1, strides=(4, 2))
    (found,) = parameters_of(columns, {"w": weight})
    assert found.tolist() == [[1, 3], [5, 7], [9, 11]] and found.flags.c_contiguous


def test_one_number_may_stand_for_a_vector() -> None:
    repeated = param(shape=(3,), source_shape=(2,), start=1, strides=(0,))
    (found,) = parameters_of(repeated, {"w": np.array([4.0, 5.0])})
    assert found.tolist() == [5, 5, 5]


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({}, r"parameter 'w' is missing.*got an empty one"),
        ({"v": np.zeros(1), "u": np.zeros(1)}, r"parameter 'w' is missing.*got v, u$"),
        ({"w": np.zeros((3, 2))}, r"shape \(3, 2\), expected \(2, 3\)"),
        ({"w": np.full((2, 3), 1e39)}, "nan or infinite"),
    ],
)
def test_other_weights_are_refused(state: dict[str, Any], message: str) -> None:
    # the last is finite in float64, and not as it is computed with
    with np.errstate(over="ignore"), pytest.raises(SpecError, match=message):
        parameters_of(param(), state)


def test_only_eight_of_many_names_are_listed() -> None:
    state = {f"n{i}": np.zeros(1) for i in range(20)}
    with pytest.raises(SpecError) as caught:
        parameters_of(param(), state)
    assert "n7" in str(caught.value) and "n8" not in str(caught.value)


def test_a_program_without_detach_reads_what_was_detached() -> None:
    ops = (
        Op("tanh", (0,), (), (), 3),
        Op("detach", (1,), (), (), 3),
        Op("exp", (2,), (), (), 3),
        Op("detach", (3,), (), (), 3),
        Op("sub", (4, 1), (), (), 3),
    )
    program = Program(3, ops, (), (5, 4, 2, 0))
    shorter = program.without_detach()
    assert [(op.kind, op.inputs) for op in shorter.ops] == [
        ("tanh", (0,)),
        ("exp", (1,)),
        ("sub", (2, 1)),
    ]
    assert shorter.outputs == (3, 2, 1, 0)
    obs = np.array([X])
    pairs = zip(program.evaluate((), obs), shorter.evaluate((), obs), strict=True)
    assert all(np.array_equal(*pair) for pair in pairs)
