# SPDX-License-Identifier: Apache-2.0
"""`Program` by itself: its numbers by hand, without torch."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np

from rollouts.policies.program import Op, Param, Program, parameters_of

WEIGHT = Param("w", (2, 3), (2, 3), 0, (3, 1))
# the second row of the same array
BIAS = Param("w", (2,), (2, 3), 3, (1,))
PROGRAM = Program(
    3,
    (
        Op("linear", (0,), (0, 1), (), 2),
        Op("slice", (1,), (), (1.0,), 1),
        Op("maximum", (1, 2), (), (), 2),
        Op("scale", (3,), (), (2.0, -1.0), 2),
        Op("concat", (4, 2), (), (), 3),
        Op("literal", (), (), (5.0, 6.0), 2),
    ),
    (WEIGHT, BIAS),
    (5, 0, 6),
)


def test_a_program_computes_its_operations_in_order() -> None:
    state = {"w": np.arange(6, dtype=np.float64).reshape(2, 3), "other": np.zeros(1)}
    weight, bias = params = parameters_of(PROGRAM, state)
    assert np.array_equal(weight, state["w"]) and np.array_equal(bias, [3, 4])
    assert weight.dtype == bias.dtype == np.float32
    obs = np.array([[1, 0, 0], [0, 0, -1]])
    joined, same, literal = PROGRAM.evaluate(params, obs)
    # [0, 3] + [3, 4] and [-2, -5] + [3, 4]; the second of each, -1 in the second row, is a bound
    assert np.array_equal(joined, [[13, 13, 7], [1, -3, -1]])
    assert np.array_equal(same, obs)
    assert np.array_equal(literal, [[5, 6], [5, 6]])
    assert PROGRAM.sizes == (3, 2, 1, 2, 2, 3, 2)


def test_a_transposed_parameter_is_read_by_its_strides() -> None:
    param = Param("w", (3, 2), (2, 3), 0, (1, 3))
    weight = np.arange(6, dtype=np.float32).reshape(2, 3)
    (array,) = parameters_of(Program(1, (), (param,), (0,)), {"w": weight})
    assert np.array_equal(array, weight.T) and array.flags.c_contiguous


def test_a_program_can_be_sent_and_compared() -> None:
    other = pickle.loads(pickle.dumps(PROGRAM))
    assert other == PROGRAM and hash(other) == hash(PROGRAM)


def test_a_program_needs_no_torch() -> None:
    code = "import sys, rollouts.policies.program; print('torch' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/"
    )
    assert result.stdout.strip() == "False"
