# SPDX-License-Identifier: Apache-2.0
"""Failures and records as they travel: cut, pickled, and made again where that can be."""

from __future__ import annotations

import math
import pickle
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollouts.envs.hosted.processes.failures import ProcessFailure, cut, env_error
from rollouts.envs.hosted.processes.records import Record
from rollouts.errors import EnvError


class Mute(ValueError):
    """An error that neither shows itself nor pickles."""

    def __repr__(self) -> str:
        raise RuntimeError("no words")

    def __reduce__(self) -> Any:
        raise RuntimeError("no bytes")


class TwoArguments(ValueError):
    """Pickles, but cannot be made again: __init__ takes more than the message."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(f"{what} at {where}")


def _no_error(text: str) -> str:
    return text


class NoError:
    """Comes back from its bytes as something that is no exception."""

    def __reduce__(self) -> Any:
        return _no_error, ("text",)


def raised(error: Exception) -> ProcessFailure:
    try:
        raise error
    except Exception as caught:
        return ProcessFailure.of(caught)


def test_a_failure_has_the_error_s_line_its_place_and_itself() -> None:
    failure = raised(KeyError("left"))
    assert failure.message == "KeyError('left')"
    assert failure.traceback.startswith("Traceback") and "in raised" in failure.traceback
    cause = failure.cause()
    assert isinstance(cause, KeyError) and cause.args == ("left",)


def test_a_failure_itself_travels() -> None:
    failure = raised(ValueError("x"))
    assert pickle.loads(pickle.dumps(failure)) == failure


def test_an_error_that_cannot_speak_is_named_by_its_type() -> None:
    failure = raised(Mute())
    assert failure.message == "Mute (its __repr__ raises an exception too)"
    assert failure.pickled is None and failure.cause() is None


def test_an_error_that_cannot_be_made_again_has_no_cause() -> None:
    failure = raised(TwoArguments("stuck", "wall"))
    assert failure.pickled is not None
    assert failure.cause() is None
    assert "TwoArguments" in failure.message and "stuck at wall" in failure.message


@pytest.mark.parametrize("data", [b"", b"no pickle", pickle.dumps(3), pickle.dumps(NoError())])
def test_bytes_that_are_no_error_are_no_cause(data: bytes) -> None:
    assert ProcessFailure("m", pickled=data).cause() is None


def test_an_error_of_more_than_a_mebibyte_travels_without_itself() -> None:
    small, large = ValueError(bytes(1 << 19)), ValueError(bytes(1 << 20))
    assert raised(small).pickled is not None
    failure = raised(large)
    assert failure.pickled is None
    assert len(failure.message) < 2_100 and "characters left out" in failure.message


@given(st.text(alphabet="abcdef", max_size=60), st.integers(2, 40).map(lambda n: 2 * n))
def test_a_cut_text_keeps_both_ends_and_says_how_much_is_gone(text: str, most: int) -> None:
    found = cut(text, most)
    if len(text) <= most:
        assert found == text
        return
    assert found.startswith(text[: most // 2]) and found.endswith(text[-(most // 2) :])
    assert f" [... {len(text) - most:,} characters left out ...] " in found


def test_large_numbers_of_characters_are_grouped() -> None:
    assert "[... 12,000 characters left out ...]" in cut("x" * 14_000, 2_000)


def test_the_error_to_raise_says_who_what_and_where() -> None:
    failure = ProcessFailure(
        "ValueError('x')", "Traceback\n  line 3\n\n", pickle.dumps(ValueError("x"))
    )
    error = env_error("env_id 3 failed", failure)
    assert isinstance(error, EnvError)
    assert str(error) == (
        "env_id 3 failed: ValueError('x')\n\nIn its process:\nTraceback\n  line 3"
    )
    assert isinstance(error.__cause__, ValueError)


def test_the_end_of_a_process_has_no_place_and_no_cause() -> None:
    error = env_error("env_id 3 failed", ProcessFailure("its process was killed"))
    assert str(error) == "env_id 3 failed: its process was killed"
    assert error.__cause__ is None


def test_a_record_travels_with_all_that_it_has() -> None:
    record = Record(
        7,
        info={"a": np.arange(3)},
        final_info={"b": math.pi},
        objects=("left",),
        final_objects=("right", None),
        final_exact=({"x": 1},),
        failure=ProcessFailure("m", "t"),
    )
    index, data = record.pickled()
    again = Record.unpickled(index, data)
    assert index == again.index == 7
    assert again.info["a"].tolist() == [0, 1, 2]
    for name in ("final_info", "objects", "final_objects", "final_exact", "failure"):
        assert getattr(again, name) == getattr(record, name)


@pytest.mark.parametrize("part", ["info", "final_info", "objects", "final_exact"])
def test_a_record_that_does_not_pickle_becomes_its_row_s_failure(part: str) -> None:
    unpicklable = threading.Lock()
    value: Any = (unpicklable,) if part in ("objects", "final_exact") else {"f": unpicklable}
    index, data = Record(4, **{part: value}).pickled()
    again = Record.unpickled(index, data)
    assert again.index == 4 and again.failure is not None
    assert "pickle" in again.failure.message
    # nothing else is told of the row
    assert again == Record(4, failure=again.failure)


@pytest.mark.parametrize("data", [b"", b"junk", pickle.dumps((1, 2, 3, 4, 5, 6, 7))])
def test_bytes_that_are_no_record_are_the_row_s_failure(data: bytes) -> None:
    again = Record.unpickled(2, data)
    assert again.index == 2 and again.failure is not None
    assert again.info == {} and again.objects == ()


def test_records_do_not_share_their_empty_infos() -> None:
    one, other = Record(0), Record(1)
    one.info["a"] = 1
    one.final_info["b"] = 2
    assert other.info == {} and other.final_info == {}
