# SPDX-License-Identifier: Apache-2.0
"""Checks of options' fields: whole numbers, seconds, what Ray reserves, labels."""

from __future__ import annotations

import fractions
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from rollouts.errors import SpecError
from rollouts.support.field_checks import (
    check_cpus,
    check_gpus,
    check_nodes,
    check_one_of,
    check_seconds,
    check_type,
    is_number,
)


@dataclass
class Options:
    """Options that a caller should pass."""


@dataclass
class Limits:
    """The same with a name that begins with a consonant."""


def test_an_argument_of_its_type_passes() -> None:
    check_type("given", Options(), Options, "Options()")


@pytest.mark.parametrize(("kind", "article"), [(Options, "an Options"), (Limits, "a Limits")])
def test_another_type_is_told_how_to_be_written(kind: type, article: str) -> None:
    with pytest.raises(SpecError) as caught:
        check_type("given", "PACK", kind, "X(a=1)")
    assert str(caught.value) == f"given is 'PACK', expected {article} such as given=X(a=1)"


def test_the_class_itself_is_not_one_of_its_objects() -> None:
    with pytest.raises(SpecError, match="expected an Options"):
        check_type("given", Options, Options, "Options()")


@pytest.mark.parametrize("value", [0.5, 1, math.inf, np.float64(2)])
def test_seconds_may_be_any_number_from_the_least(value: Any) -> None:
    check_seconds("t_s", value, 0.5)


@pytest.mark.parametrize("value", [0.49, -1, math.nan, True, "1", None, [1.0]])
def test_other_seconds_are_refused(value: Any) -> None:
    with pytest.raises(SpecError) as caught:
        check_seconds("t_s", value, 0.5)
    assert str(caught.value) == f"t_s is {value!r} s, expected at least 0.5 s"


def test_choices_are_words() -> None:
    check_one_of("c", "a", ("a", "b"))
    for wrong in ("ab", None, ["a"], 0):
        with pytest.raises(SpecError, match=r"c is .*, expected one of \('a', 'b'\)"):
            check_one_of("c", wrong, ("a", "b"))


@pytest.mark.parametrize("value", [0, 0.25, 3, 2.5, fractions.Fraction(1, 3)])
def test_cpus_may_be_any_share(value: Any) -> None:
    check_cpus("cpus", value)


@pytest.mark.parametrize("value", [-0.1, math.inf, math.nan, False, "1", None])
def test_other_cpus_are_refused(value: Any) -> None:
    with pytest.raises(SpecError, match=r"cpus is .*, expected at least 0"):
        check_cpus("cpus", value)


@pytest.mark.parametrize("value", [0, 0.5, 1, 1.0, 4])
def test_gpus_are_a_share_of_one_or_whole_ones(value: Any) -> None:
    check_gpus("gpus", value)


@pytest.mark.parametrize("value", [1.5, 2.0001, -1, math.inf, math.nan, True, None, "1"])
def test_other_gpus_are_refused(value: Any) -> None:
    with pytest.raises(SpecError, match="a fraction below 1 or a whole number of GPUs"):
        check_gpus("gpus", value)


@pytest.mark.parametrize("strategy", [None, "PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"])
def test_strategies_are_those_of_ray(strategy: Any) -> None:
    check_nodes("placement", strategy, {})


@pytest.mark.parametrize("strategy", ["pack", "", "LOOSE", 1, ["PACK"]])
def test_another_strategy_is_refused(strategy: Any) -> None:
    with pytest.raises(SpecError, match=r"placement\.strategy is .*, expected None or one of"):
        check_nodes("placement", strategy, {})


@pytest.mark.parametrize("labels", [None, "zone", [("zone", "b")]])
def test_labels_are_a_dict(labels: Any) -> None:
    with pytest.raises(SpecError, match=r"placement\.node_labels is .*\{'zone': 'b'\}"):
        check_nodes("placement", None, labels)


@pytest.mark.parametrize("value", [0, 1.5, np.int8(1), np.float16(1), fractions.Fraction(1, 2)])
def test_numbers_are_real(value: Any) -> None:
    assert is_number(value)


@pytest.mark.parametrize("value", [True, np.array([1.0]), "1", None, [], np.zeros((1, 1))])
def test_what_is_no_number(value: Any) -> None:
    assert not is_number(value)
