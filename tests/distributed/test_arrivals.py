# SPDX-License-Identifier: Apache-2.0
"""Calls whose arrays come from another node are in flight until the arrays are here."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

pytest.importorskip("ray")

from rollouts.workers.on_ray.arrivals import Destination, with_arrays


def futures(num_arrays: int) -> tuple[Future[Any], list[Future[Any]], Future[Any]]:
    answers: Future[Any] = Future()
    arrays: list[Future[Any]] = [Future() for _ in range(num_arrays)]
    return answers, arrays, with_arrays(answers, lambda _: arrays)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_a_call_is_over_once_its_answers_and_all_of_its_arrays_are_here(
    order: tuple[int, ...],
) -> None:
    answers, arrays, call = futures(2)
    parts = [answers, *arrays]
    for part in order:
        assert not call.done()
        parts[part].set_result(f"part {part}")
    assert call.result(0) == "part 0"


def test_lost_arrays_end_a_call_as_others_do() -> None:
    answers, (kept, lost), call = futures(2)
    answers.set_result("answers")
    lost.set_exception(OSError("the node is gone"))
    assert not call.done()
    kept.set_result("arrays")
    assert call.result(0) == "answers"


def test_a_dead_worker_s_call_ends_with_its_death() -> None:
    answers, (arrays,), call = futures(1)
    answers.set_exception(OSError("the worker died"))
    arrays.set_exception(OSError("the worker died"))
    with pytest.raises(OSError, match="the worker died"):
        call.result(0)


def test_arrays_come_only_from_other_nodes_to_a_learner_that_takes_them_here() -> None:
    destination = Destination("here")
    assert not destination.is_apart("there")
    destination.takes_here = True
    assert destination.is_apart("there")
    assert not destination.is_apart("here")
    # a worker that has not said where it is
    assert not destination.is_apart(None)
