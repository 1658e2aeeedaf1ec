# SPDX-License-Identifier: Apache-2.0
"""Infos of environments: names that the library uses too, values that fit no array, errors."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from host_envs import Counter

import rollouts

pytestmark = pytest.mark.system

MODES = ["next_step", "same_step", "disabled"]
LENGTH = 3
# the library's own names, masks included
RESERVED = [
    "env_id", "episode_return", "episode_length", "env_error", "final_obs", "final_info",
    "final_score", "_env_id", "_env_error", "_final_obs", "_final_score",
]  # fmt: skip


class Reporter(Counter):
    """Reports what a function of its steps returns."""

    def __init__(self, info_of: Callable[[int], Any], first: Any = None) -> None:
        super().__init__(length=LENGTH)
        self.info_of, self.first = info_of, first

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        return super().reset(seed=seed)[0], {} if self.first is None else self.first

    def awkward(self) -> Any:
        return Awkward()

    def step(self, action: Any):
        return *super().step(action)[:-1], self.info_of(self.steps)


def reporters(*info_ofs: Callable[[int], Any], **options: Any) -> Any:
    functions = [functools.partial(Reporter, info_of) for info_of in info_ofs]
    return rollouts.from_env_fns(functions, **{"num_processes": 2, **options})


# -- names -----------------------------------------------------------------------------


def own(number: int, steps: int) -> dict[str, Any]:
    return {name: 1000 * number + steps for name in RESERVED} | {"score": steps}


@pytest.mark.parametrize("statistics", [None, True])
@pytest.mark.parametrize("mode", MODES)
def test_the_librarys_names_in_an_info_are_the_librarys(mode: str, statistics: Any) -> None:
    functions = [functools.partial(own, number) for number in range(1, 5)]
    with reporters(*functions, autoreset_mode=mode, episode_statistics=statistics) as envs:
        envs.reset()
        for step in range(1, LENGTH + 1):
            _, _, terminated, _, info = envs.step([1] * 4)
            told = info if mode != "same_step" or step < LENGTH else info["final_info"]
            for name in RESERVED:
                expected = [1000 * number + step for number in range(1, 5)]
                assert told[f"env_info:{name}"].tolist() == expected
                assert told[f"_env_info:{name}"].all()
            assert told["score"].tolist() == [step] * 4
            if statistics:
                assert info["env_id"].tolist() == [0, 1, 2, 3]
                assert told["episode_length"].tolist() == [step] * 4
            else:
                assert not {"env_id", "episode_return", "env_error"} & set(info)
        assert terminated.all()
        if mode == "same_step":
            assert info["final_obs"][2].tolist() == [LENGTH, 0] and info["_final_obs"].all()
        else:
            assert "final_obs" not in info and "final_info" not in info


def test_sending_to_env_id_reaches_the_environments_that_reported() -> None:
    functions = [functools.partial(lambda n, steps: {"env_id": n}, 7 - n) for n in range(8)]
    with reporters(*functions, batch_size=4, episode_statistics=True) as envs:
        envs.async_reset()
        steps = np.zeros(8, int)
        info = envs.recv()[4]
        for _ in range(40):
            ids = info["env_id"]
            envs.send(ids + 1, ids)
            _, reward, _, _, info = envs.recv()
            begun = info["episode_length"] == 0
            assert reward[~begun].tolist() == (info["env_id"] + 1)[~begun].tolist()
            told = info.get("env_info:env_id", np.zeros(4, int))
            assert told[~begun].tolist() == (7 - info["env_id"])[~begun].tolist()
            steps[info["env_id"]] += 1
        assert (steps > 0).all()


def test_recv_batch_keeps_the_environments_own_env_id_beside_ours() -> None:
    with reporters(lambda _: {"env_id": 5}, lambda _: {"env_id": 6}) as envs:
        envs.reset()
        envs.send([0, 0])
        batch = envs.recv_batch()
        assert batch.env_id.tolist() == [0, 1]
        assert batch.info["env_info:env_id"].tolist() == [5, 6]


def test_failure_is_told_beside_an_environments_own_env_error() -> None:
    def failing(steps: int) -> Any:
        raise ValueError("no info today")

    made = reporters(lambda _: {"env_error": "mine"}, failing, on_env_error="reset")
    with made as envs:
        envs.reset()
        info = envs.step([0, 0])[4]
        assert info["_env_error"].tolist() == [False, True]
        assert "no info today" in info["env_error"][1]
        assert info["env_info:env_error"].tolist() == ["mine", None]


def test_key_that_is_named_like_a_mask_replaces_no_mask() -> None:
    with reporters(lambda _: {"x": 1, "_x": 2}, lambda _: {"x": 3}) as envs:
        envs.reset()
        info = envs.step([0, 0])[4]
        assert info["x"].tolist() == [1, 3] and info["_x"].tolist() == [True, True]
        assert info["env_info:_x"].tolist() == [2, 0]


# -- values ----------------------------------------------------------------------------

HUGE = 2**64


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1, HUGE], object),
        ([HUGE, 1], object),
        ([-HUGE - 1, 0.5], object),
        ([[1, 2], [3]], object),
        (["text", "longer text"], object),
        ([1, "text"], object),
        (["text", 1], object),
        ([1, None], object),
        ([1, [2, 3]], object),
        ([{"a": 1}, 2], object),
        ([2, {"a": 1}], object),
        ([{1, 2}, (3,)], object),
        ([1, np.zeros(2)], object),
        ([np.zeros(2), 1], object),
        ([np.zeros(2), np.zeros(3)], object),
        ([np.zeros(2, np.int8), np.full(2, 0.5)], object),
        ([np.array(["a"]), np.array(["longer"])], object),
        ([2**53 + 1, 0.5], object),
        ([np.int64(2**53 + 1), 0.5], object),
        ([1, 0.5], np.float64),
        ([0.5, 1], np.float64),
        ([True, 7], np.int64),
        ([np.float32(0.5), 3], np.float64),
        ([float("nan"), 1], np.float64),
    ],
    ids=repr,
)
def test_values_of_any_kind_keep_what_they_are(mode: str, values: list[Any], dtype: Any) -> None:
    functions = [functools.partial(lambda one, _: {"key": one, "sure": 1}, one) for one in values]
    with reporters(*functions, autoreset_mode=mode) as envs:
        envs.reset()
        for step in range(1, LENGTH + 1):
            _, reward, _, _, info = envs.step([2, 3])
            told = info if mode != "same_step" or step < LENGTH else info["final_info"]
            assert told["key"].dtype == dtype and told["_key"].all()
            for found, expected in zip(told["key"], values, strict=True):
                np.testing.assert_array_equal(found, expected)
            assert reward.tolist() == [2, 3] and told["sure"].tolist() == [1, 1]


def test_values_may_change_their_kind_from_step_to_step() -> None:
    kinds = [None, 1, HUGE, [1], "text", np.zeros(3), {"a": {"b": HUGE}}, 0.5]
    made = rollouts.from_env_fns(
        [functools.partial(Reporter, lambda steps: {"key": kinds[steps]})] * 3, num_processes=1
    )
    with made as envs:
        envs.set_attr("length", 100)
        envs.reset()
        for kind in kinds[1:]:
            told = envs.step([0] * 3)[4]["key"]
            if isinstance(kind, dict):
                assert told["a"]["b"].tolist() == [HUGE] * 3
            else:
                for one in told:
                    np.testing.assert_array_equal(one, kind)


class Awkward:
    """Travels to the host and cannot be made again there."""

    def __reduce__(self) -> Any:
        return _refuse, ()


def _refuse() -> Any:
    raise LookupError("not on this side")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("info", "message"),
    [
        # made where the environment is: the function itself has to travel
        (lambda _: {"key": Awkward()}, "cannot be unpickled on the way between processes: Look"),
        (lambda _: {"key": threading.Lock()}, "its info or observation cannot be pickled"),
        (lambda _: [("key", 1)], "the info is of type list, expected a dict"),
        (lambda _: "text", "the info is of type str, expected a dict"),
    ],
)
def test_info_that_cannot_travel_is_its_environments_failure(
    mode: str, info: Any, message: str
) -> None:
    made = reporters(lambda steps: {"key": steps}, info, autoreset_mode=mode, on_env_error="reset")
    with made as envs:
        envs.reset()
        _, reward, _, _, told = envs.step([4, 5])
        assert told["_env_error"].tolist() == [False, True]
        assert message in told["env_error"][1]
        assert told["key"][0] == 1 and reward[0] == 4


def test_no_info_at_all_is_an_empty_one() -> None:
    with reporters(lambda _: None, lambda steps: {"key": steps}) as envs:
        envs.reset()
        assert envs.step([0, 0])[4]["_key"].tolist() == [False, True]


def test_answer_that_cannot_be_made_again_is_an_error_and_no_hang() -> None:
    with reporters(lambda _: {}, lambda _: {}) as envs:
        pids = envs.call("pid_of")
        envs.reset()
        with pytest.raises(rollouts.EnvError, match="not on this side"):
            envs.call("awkward")
        with pytest.raises(rollouts.EnvError, match="not on this side"):
            envs.set_attr("first", [{}, Awkward()])
        assert envs.step([1, 1])[1].tolist() == [1, 1]
        assert envs.call("pid_of") == pids


# -- errors ----------------------------------------------------------------------------


class Unspeakable(Exception):
    """An error that cannot be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no words")

    __str__ = __repr__


class Unpicklable(Unspeakable):
    """An error that cannot be sent either."""

    def __reduce__(self) -> Any:
        raise RuntimeError("no bytes")


def _raise(kind: type[Exception], *text: str) -> Callable[[int], Any]:
    def fail(_: int) -> Any:
        raise kind(*text)

    return fail


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", [Unspeakable, Unpicklable])
def test_error_that_cannot_be_shown_is_its_environments_failure(mode: str, kind: type) -> None:
    made = reporters(
        lambda steps: {}, _raise(kind), autoreset_mode=mode, num_processes=1,
        on_env_error="reset",
    )  # fmt: skip
    with made as envs:
        pids = envs.call("pid_of")
        envs.reset()
        _, reward, _, truncated, info = envs.step([1, 1])
        assert reward.tolist() == [1, 0] and truncated.tolist() == [False, True]
        assert info["env_error"][1] == f"{kind.__name__} (its __repr__ raises an exception too)"
        assert envs.call("pid_of") == pids  # the process lives


def test_error_that_cannot_be_shown_is_raised_with_its_traceback() -> None:
    with reporters(_raise(Unspeakable), num_processes=1) as envs:
        envs.reset()
        with pytest.raises(rollouts.EnvError, match=r"env_id 0 failed: Unspeakable .*\n") as caught:
            envs.step([1])
        assert "in fail" in str(caught.value)


def test_long_error_is_cut_and_says_so() -> None:
    text = "first words " + "x" * 50_000_000 + " last words"
    with reporters(_raise(ValueError, text), num_processes=1) as envs:
        envs.reset()
        with pytest.raises(rollouts.EnvError) as caught:
            envs.step([1])
        message = str(caught.value)
        assert len(message) < 30_000
        assert "first words" in message and "last words" in message
        assert "characters left out" in message and "in fail" in message
        assert caught.value.__cause__ is None
        envs.recv()
