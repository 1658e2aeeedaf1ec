# SPDX-License-Identifier: Apache-2.0
"""Parts that adapters share: infos by row, games' records, environments reached alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rollouts.integrations.shared.hosted_env import HostedEnv, MakeHosted, Missing
from rollouts.integrations.shared.info_rows import info_rows
from rollouts.integrations.shared.missing import needs
from rollouts.integrations.shared.whole_games import EpisodeStatistics

from rollouts.envs.hosted.merged_infos import merge_infos
from rollouts.errors import EngineError

values = st.one_of(
    st.booleans(), st.integers(-9, 9), st.floats(-9, 9), st.text(max_size=2), st.none()
)
infos = st.dictionaries(
    st.sampled_from(["a", "b"]),
    values | st.dictionaries(st.sampled_from(["x", "y"]), values, max_size=2),
    max_size=2,
)


@settings(max_examples=60)
@given(st.lists(infos, max_size=4))
def test_merged_infos_are_taken_apart_again(reported: list[dict[str, Any]]) -> None:
    merged = merge_infos(len(reported), range(len(reported)), reported)
    assert info_rows(merged, len(reported)) == reported


def test_a_column_without_a_mask_is_everybody_s() -> None:
    rows = info_rows({"a": np.array([1, 2]), "b": np.array([[3], [4]])}, 2)
    assert [row["a"] for row in rows] == [1, 2] and type(rows[0]["a"]) is int
    assert rows[1]["b"].tolist() == [4]


def test_rows_without_a_report_have_no_key() -> None:
    columns = {"a": np.array([1, 2, 3]), "_a": np.array([False, True, False])}
    assert info_rows(columns, 3) == [{}, {"a": 2}, {}]


def test_a_mask_is_no_key_but_an_underscored_column_alone_is() -> None:
    columns = {"a": np.array([1.5]), "_a": np.array([True]), "_b": np.array([2])}
    assert info_rows(columns, 1) == [{"a": 1.5, "_b": 2}]


def test_objects_stay_the_objects_that_they_are() -> None:
    column = np.full(2, None, object)
    column[0] = marker = object()
    rows = info_rows({"a": column, "_a": np.array([True, True])}, 2)
    assert rows[0]["a"] is marker and rows[1]["a"] is None


def test_nested_columns_become_nested_dicts() -> None:
    inner = {"x": np.array([1, 0]), "_x": np.array([True, False])}
    rows = info_rows({"d": inner, "_d": np.array([True, True])}, 2)
    assert rows == [{"d": {"x": 1}}, {"d": {}}]


def test_keys_that_are_no_text_are_kept() -> None:
    assert info_rows({7: np.array([1, 2]), "_7": np.array([True, False])}, 2)[0] == {
        7: 1,
        "_7": True,
    }


def test_no_rows_have_no_infos() -> None:
    assert info_rows({"a": np.empty(0)}, 0) == []


def statistics(num_envs: int = 3, **options: Any) -> EpisodeStatistics:
    env: Any = SimpleNamespace(num_envs=num_envs, env_options=options)
    return EpisodeStatistics(env)


def ended(
    made: EpisodeStatistics,
    rows: list[int],
    returns: list[float],
    lengths: list[int],
    lives: list[int] | None = None,
    truncated: list[int] | None = None,
) -> dict[int, tuple[float, float]]:
    cut = np.array(truncated or [0] * len(returns), np.bool_)
    info = {} if lives is None else {"lives": np.array(lives)}
    found = made.ended(
        np.array(rows, np.intp), np.array(returns, np.float64), np.array(lengths), cut, info
    )
    assert all(record.keys() == {"r", "l", "t"} for record in found.values())
    return {row: (record["r"], record["l"]) for row, record in found.items()}


def test_an_episode_is_a_game_where_there_are_no_lives() -> None:
    made = statistics()
    assert ended(made, [2, 0], [1.23456789, 5, 3], [7, 8, 9]) == {2: (3.0, 9), 0: (1.234568, 7)}
    assert ended(made, [], [0, 0, 0], [0, 0, 0]) == {}


@pytest.mark.parametrize("value", [True, "continue"])
def test_lives_of_a_game_are_added_up(value: Any) -> None:
    made = statistics(episodic_life=value)
    assert ended(made, [0, 1], [1, 2, 0], [3, 4, 0], lives=[2, 0, 5]) == {1: (2.0, 4)}
    assert ended(made, [0], [10, 0, 0], [30, 0, 0], lives=[1, 5, 5]) == {}
    assert ended(made, [0], [100, 0, 0], [300, 0, 0], lives=[0, 5, 5]) == {0: (111.0, 333)}
    # the next game begins at nothing
    assert ended(made, [0], [5, 0, 0], [6, 0, 0], lives=[0, 5, 5]) == {0: (5.0, 6)}


def test_a_truncated_game_is_over_whatever_lives_are_left() -> None:
    made = statistics(episodic_life=True)
    ended(made, [0], [1, 0, 0], [1, 0, 0], lives=[3, 5, 5])
    found = ended(made, [0], [2, 0, 0], [2, 0, 0], lives=[2, 5, 5], truncated=[1, 0, 0])
    assert found == {0: (3.0, 3)}


def test_a_marked_life_is_no_end_and_its_counts_go_on() -> None:
    made = statistics(life_loss_info=True)
    assert ended(made, [0, 1], [1, 2, 0], [3, 4, 0], lives=[2, 0, 5]) == {1: (2.0, 4)}
    # returns and lengths are the pool's, of the whole game
    assert ended(made, [0], [9, 0, 0], [12, 0, 0], lives=[0, 5, 5]) == {0: (9.0, 12)}


@pytest.mark.parametrize("value", [True, "continue", "restart"])
def test_marks_do_not_count_where_lives_are_episodes(value: Any) -> None:
    made = statistics(life_loss_info=True, episodic_life=value)
    found = ended(made, [0], [1, 0, 0], [3, 0, 0], lives=[2, 5, 5])
    assert found == ({0: (1.0, 3)} if value == "restart" else {})


def test_options_may_differ_by_environment() -> None:
    made = statistics(episodic_life=np.array([True, False, None], dtype=object))
    found = ended(made, [0, 1, 2], [1, 2, 3], [1, 2, 3], lives=[2, 2, 2])
    assert found == {1: (2.0, 2), 2: (3.0, 3)}


def test_a_reset_forgets_the_lives_before() -> None:
    made = statistics(episodic_life=True)
    ended(made, [0], [1, 0, 0], [1, 0, 0], lives=[3, 5, 5])
    made.reset()
    assert ended(made, [0], [2, 0, 0], [2, 0, 0], lives=[0, 5, 5]) == {0: (2.0, 2)}


def test_seconds_go_on() -> None:
    made = statistics()
    assert 0 <= made.seconds() <= made.seconds()


class Plain(gymnasium.Env[Any, Any]):
    """An environment that tells what it was reset with."""

    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)
    level = 1

    def reset(self, *, seed: int | None = None, **given_options: Any) -> tuple[Any, Any]:
        self.given = (seed, given_options)
        return 0, {}

    def times(self, factor: int, *, plus: int = 0) -> int:
        return self.level * factor + plus


class Layer(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper with an attribute of its own."""

    colour = "red"


def hosted(index: int = 1) -> tuple[Plain, HostedEnv]:
    plain = Plain()
    made = MakeHosted(lambda: Layer(plain), index)()
    assert isinstance(made, HostedEnv)
    return plain, made


def test_options_are_those_of_the_environment_and_for_one_reset() -> None:
    plain = Plain()
    env: Any = MakeHosted(lambda: plain, 1)()
    env.set_next_options([{"a": 1}, {"b": 2}])
    env.reset(seed=5)
    assert plain.given == (5, {"options": {"b": 2}})
    env.reset(seed=6)
    # one of which none were given need not take any
    assert plain.given == (6, {})
    env.set_next_options([{"a": 1}, {}])
    env.reset()
    assert plain.given == (None, {})


def test_attributes_of_any_layer_are_read_of_those_meant() -> None:
    _, env = hosted()
    assert env.get_of([1], "level") == 1 and env.get_of([0, 1], "colour") == "red"
    assert env.get_of([0], "level") is None
    missing = env.get_of([1], "size")
    assert isinstance(missing, Missing) and "size" in missing.message


def test_attributes_are_set_on_the_outermost_layer_that_came() -> None:
    plain, env = hosted()
    env.set_of([1], "level", 7)
    assert env.env.level == 7 and plain.level == 1  # type: ignore[attr-defined]
    env.set_of([0], "level", 9)
    assert env.env.level == 7  # type: ignore[attr-defined]


def test_methods_of_any_layer_are_called_of_those_meant() -> None:
    _, env = hosted()
    assert env.call_of([1], "times", (3,), {"plus": 4}) == 7
    assert env.call_of([0], "times", (3,), {}) is None
    assert isinstance(env.call_of([1], "fly", (), {}), Missing)


def test_wrappers_that_it_came_with_are_found_and_ours_is_not_one() -> None:
    _, env = hosted()
    assert env.is_wrapped_in(Layer)
    assert not env.is_wrapped_in(HostedEnv)
    assert not env.is_wrapped_in(gymnasium.wrappers.TimeLimit)


def test_one_environment_for_two_is_refused_by_both_names() -> None:
    shared = Plain()
    MakeHosted(lambda: shared, 0)()
    with pytest.raises(ValueError, match=r"env_fns\[2\] returned the environment of env_fns\[0\]"):
        MakeHosted(lambda: shared, 2)()


def test_what_is_missing_names_the_extra() -> None:
    error = needs("sb3", ImportError("No module named 'stable_baselines3'"))
    assert isinstance(error, EngineError)
    assert str(error) == (
        "this adapter needs a library that cannot be imported: No module named "
        "'stable_baselines3'. Install it: pip install 'rollouts[sb3]'"
    )
