# SPDX-License-Identifier: Apache-2.0
"""`Registers` by itself: elements, what holds them, and the program that is left at the end."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rollouts.policies.program import Op, Param
from rollouts.policies.tracing.registers import (
    ROWS,
    UNKNOWN,
    Registers,
    Unreadable,
    with_rows,
    without_rows,
)


def three() -> Registers:
    return Registers(3)


def test_elements_of_all_sources_are_different() -> None:
    registers = three()
    weight = registers.add_parameter("w", (2, 3))
    made = registers.emit("linear", (0,), (0,), size=2)
    literals = registers.literals(np.array([1.0, 2.0]))
    every = [
        *registers.elements(0),
        *range(weight, weight + 6),
        *registers.elements(made),
        *literals,
    ]
    assert len(set(map(int, every))) == 13
    assert registers.size(0) == 3 and registers.size(made) == 2


def test_equal_numbers_are_one_literal() -> None:
    registers = three()
    ids = registers.literals(np.array([[1.5, 2.0], [2.0, 1.5]]))
    assert ids.shape == (2, 2) and ids[0, 0] == ids[1, 1] != ids[0, 1]
    assert registers.literals(np.array(2.0)) == ids[0, 1]
    assert registers.literal_value(ids[:, 0]) is None
    assert registers.literal_value(ids[:1, 0]) == 1.5
    assert registers.literal_value(registers.elements(0)) is None


def test_signs_of_zero_and_numbers_that_are_none_keep_their_bits() -> None:
    registers = three()
    zeros = registers.literals(np.array([0.0, -0.0]))
    assert zeros[0] != zeros[1]
    nan = registers.literal_value(registers.literals(np.array([math.nan, math.nan])))
    assert nan is not None and math.isnan(nan)


def test_an_operation_made_twice_is_one_register() -> None:
    registers = three()
    first = registers.emit("scale", (0,), numbers=(2.0, 0.0), size=3)
    assert registers.emit("scale", (0,), numbers=(2.0, 0.0), size=3) == first
    assert registers.emit("scale", (0,), numbers=(2.0, 1.0), size=3) != first
    assert registers.op_of(first) == Op("scale", (0,), (), (2.0, 0.0), 3)
    assert registers.op_of(0) is None


def test_the_logarithm_of_a_power_is_what_it_was() -> None:
    registers = three()
    power = registers.emit("exp", (0,), size=3)
    assert registers.emit("log", (power,), size=3) == 0
    assert registers.emit("log", (0,), size=3) != 0
    tanh = registers.emit("tanh", (0,), size=3)
    assert registers.op_of(registers.emit("log", (tanh,), size=3)) == Op("log", (tanh,), (), (), 3)


def test_a_whole_register_is_itself_and_a_part_a_slice() -> None:
    registers = three()
    ids = registers.elements(0)
    assert registers.register(ids) == 0
    assert registers.op_of(registers.register(ids[1:])) == Op("slice", (0,), (), (1.0,), 2)


def test_features_in_another_order_are_joined() -> None:
    registers = three()
    x = registers.elements(0)
    joined = registers.op_of(registers.register(np.concatenate([x[1:], x[:1]])))
    assert joined is not None and joined.kind == "concat" and joined.size == 3
    parts = [registers.op_of(part) for part in joined.inputs]
    assert parts == [Op("slice", (0,), (), (1.0,), 2), Op("slice", (0,), (), (0.0,), 1)]


def test_literals_in_a_row_are_one_register() -> None:
    registers = three()
    ids = registers.literals(np.array([5.0, 1.0, 5.0]))
    assert registers.op_of(registers.register(ids)) == Op("literal", (), (), (5.0, 1.0, 5.0), 3)


def test_one_feature_that_stands_for_all_stays_one_where_it_may() -> None:
    registers = three()
    repeated = np.repeat(registers.elements(0)[1:2], 4)
    assert registers.size(registers.register(repeated, whole=False)) == 1
    whole = registers.op_of(registers.register(repeated))
    assert whole is not None and (whole.kind, whole.size) == ("add", 4)


def test_neighbours_of_two_sources_are_not_one_slice() -> None:
    registers = three()
    made = registers.emit("tanh", (0,), size=3)
    # the last of the one and the first of the other have numbers in a row
    ids = np.array([registers.elements(0)[-1], registers.elements(made)[0]])
    assert ids[1] == ids[0] + 1
    op = registers.op_of(registers.register(ids))
    assert op is not None and op.kind == "concat"


def test_a_parameter_is_read_as_it_lies_or_by_strides() -> None:
    registers = three()
    first = registers.add_parameter("w", (2, 3))
    ids = np.arange(first, first + 6).reshape(2, 3)
    assert registers.param(ids) == 0
    assert registers.param(ids.T) == 1
    assert registers.param(ids[:, 1]) == 2
    assert registers.param(ids) == 0
    register = registers.emit("linear", (0,), (1, 2), size=3)
    assert registers.program([register]).params == (
        Param("w", (3, 2), (2, 3), 0, (1, 3)),
        Param("w", (2,), (2, 3), 1, (3,)),
    )


def test_what_is_no_grid_of_one_parameter_is_no_parameter() -> None:
    registers = three()
    first = registers.add_parameter("w", (4,))
    registers.add_parameter("v", (4,))
    assert registers.param(np.array([first, first + 1, first + 3])) is None
    assert registers.param(np.array([first + 1, first])) is None
    assert registers.param(np.arange(first + 2, first + 6)) is None  # a part of two parameters
    assert registers.param(registers.elements(0)) is None
    assert registers.param(registers.literals(np.array([1.0]))) is None
    assert registers.param(np.array([UNKNOWN])) is None
    assert registers.param(np.array([], np.int64)) is None


def test_a_part_of_a_parameter_that_is_computed_with_is_a_slice_of_a_constant() -> None:
    registers = three()
    first = registers.add_parameter("w", (4,))
    op = registers.op_of(registers.register(np.arange(first + 1, first + 3)))
    assert op is not None and (op.kind, op.numbers, op.size) == ("slice", (1.0,), 2)
    assert registers.op_of(op.inputs[0]) == Op("constant", (), (0,), (), 4)


def test_a_program_has_what_its_outputs_need_and_no_more() -> None:
    registers = three()
    for name in ("unused", "w"):
        first = registers.add_parameter(name, (3, 3))
        registers.param(np.arange(first, first + 9).reshape(3, 3))
    registers.emit("linear", (0,), (0,), size=3)
    kept = registers.emit("linear", (0,), (1,), size=3)
    registers.emit("relu", (kept,), size=3)
    last = registers.emit("tanh", (kept,), size=3)
    program = registers.program([last, 0, last])
    assert program.ops == (Op("linear", (0,), (0,), (), 3), Op("tanh", (1,), (), (), 3))
    assert [param.name for param in program.params] == ["w"]
    assert program.outputs == (2, 0, 2)


def test_features_in_too_many_groups_are_refused() -> None:
    registers = Registers(4000)
    ids = registers.elements(0)
    registers.register(ids[: 2 * 1024 : 2])
    with pytest.raises(Unreadable, match="moves 1025 groups of features about"):
        registers.register(ids[: 2 * 1025 : 2])


def test_the_place_of_a_maximum_is_not_computed_with() -> None:
    with pytest.raises(Unreadable, match="where a maximum or minimum is"):
        three().register(np.array([0, UNKNOWN]))
    with pytest.raises(Unreadable, match="where a maximum or minimum is"):
        without_rows(np.array([UNKNOWN]))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_rows_lie_along_any_axis(axis: int) -> None:
    shape = [2, 3]
    shape.insert(axis, ROWS)
    ids = np.arange(6)
    tags = with_rows(ids, tuple(shape), axis)
    assert tags.shape == tuple(shape) and len(np.unique(tags)) == 6 * ROWS
    found, (back,) = without_rows(tags)
    assert found == axis and back.tolist() == ids.reshape(2, 3).tolist()


def test_what_all_rows_share_has_no_axis() -> None:
    tags = with_rows(np.arange(6), (2, 3), None)
    axis, (ids,) = without_rows(tags)
    assert axis is None and ids.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_what_all_share_may_stand_beside_what_is_each_rows_own() -> None:
    own = with_rows(np.arange(4), (ROWS, 4), 0)
    shared = np.broadcast_to(with_rows(np.arange(50, 54), (4,), None), (ROWS, 4))
    axis, (first, second) = without_rows(own, shared)
    assert axis == 0 and first.tolist() == [0, 1, 2, 3] and second.tolist() == [50, 51, 52, 53]
    # and alone, repeated for each row
    assert without_rows(shared)[0] == 0


def test_rows_that_are_mixed_are_refused() -> None:
    tags = with_rows(np.arange(2), (ROWS, 2), 0)
    for mixed in (tags[::-1], np.roll(tags, 1, 0), tags[:-1], tags.T[:, ::-1]):
        with pytest.raises(Unreadable, match="several rows of a batch together"):
            without_rows(np.ascontiguousarray(mixed))


def test_rows_that_compute_otherwise_are_refused() -> None:
    tags = with_rows(np.arange(2), (ROWS, 2), 0).copy()
    tags[5, 1] = tags[5, 0]
    with pytest.raises(Unreadable, match="several rows"):
        without_rows(tags)
