# SPDX-License-Identifier: Apache-2.0
"""Words of users and of the core: ranges, bodies, frames, functions, and names that are wrong."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollouts.envs.options import first_options, read_options
from rollouts.envs.registry import close_ids, env_spec, is_env_id, resolve
from rollouts.envs.unknown_option import did_you_mean, unknown_option
from rollouts.errors import DTypeError, SpecError
from rollouts.own_model.model_options import PortableFunction, is_own_model, split_functions

HEADER = "envs/classic/cart_pole.h"


def native(given_options: dict[str, Any], num_envs: int = 2) -> dict[str, Any]:
    return dict(read_options(given_options, num_envs, own_model=False).native)


pairs = st.tuples(st.floats(-9, 9), st.floats(-9, 9)).map(sorted).map(tuple)


@given(st.lists(pairs, min_size=2, max_size=5), st.sampled_from([list, tuple, np.array]))
def test_a_range_of_each_environment_becomes_two_columns(given_pairs: Any, kind: Any) -> None:
    found = native({"x_range": kind(given_pairs)}, len(given_pairs))
    assert found["x_min"] == [low for low, _ in given_pairs]
    assert found["x_max"] == [high for _, high in given_pairs]
    assert set(found) == {"x_min", "x_max"}


def test_a_pair_is_a_range_of_all_even_of_two_environments() -> None:
    assert native({"x_range": (0, 1)}) == {"x_min": 0.0, "x_max": 1.0}
    assert native({"x_range": np.array([0, 1])}) == {"x_min": 0.0, "x_max": 1.0}
    # one pair for one environment
    assert native({"x_range": [(0, 1)]}, 1) == {"x_min": 0.0, "x_max": 1.0}


@pytest.mark.parametrize(
    "value",
    [None, 1.0, "ab", (1,), (1, 2, 3), [(0, 1)], [(0, 1)] * 3, [(0, 1, 2)] * 2, [(0,), (1, 2)]],
)
def test_what_is_no_range_is_told_how_many_there_are(value: Any) -> None:
    with pytest.raises(SpecError) as caught:
        native({"x_range": value})
    assert str(caught.value).startswith(
        "option 'x_range' must be a pair (low, high), or one pair for each of the 2 environments"
    )


def test_the_first_environment_s_range_is_read_without_their_number() -> None:
    found, _ = first_options({"x_range": [(0, 1), (2, 3), (4, 5)]}, own_model=False)
    assert found == {"x_min": 0.0, "x_max": 1.0}
    with pytest.raises(SpecError, match="one pair for each of the N environments"):
        first_options({"x_range": 1.0}, own_model=False)


@pytest.mark.parametrize("half", ["x_min", "x_max"])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_half_beside_its_range_is_refused_in_any_order(half: str, is_first: bool) -> None:
    items = [("x_range", (0, 1)), (half, 0.5)]
    given_options = dict(items if is_first else items[::-1])
    with pytest.raises(SpecError, match=f"'x_range' and '{half}' say the same: leave out one"):
        native(given_options)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "1"),
        (np.int64(2), "2"),
        ("torso", "torso"),
        ([1, "leg"], ["1", "leg"]),
        ((0, 3), ["0", "3"]),
        (np.array([4, 5]), ["4", "5"]),
        (True, True),  # the core says what it wants
        (1.5, 1.5),
    ],
)
def test_bodies_are_text(value: Any, text: Any) -> None:
    assert native({"main_body": value}) == {"main_body": text}


def test_frames_models_and_functions_are_no_options_of_the_core() -> None:
    def reward(step: Any) -> Any:
        return step

    given_options = {
        "render_height": 3,
        "camera_name": "side",
        "model": {"body_mass": 1},
        "reward": reward,
        "gravity": 1.0,
    }
    read = read_options(given_options, 2, own_model=True)
    assert read.native == {"gravity": 1.0}
    assert read.frames == {"height": 3, "camera_name": "side"}
    assert read.model == {"body_mass": 1}
    assert read.functions["reward"].function is reward
    # another environment's reward is a number
    assert native({"reward": 2.0}) == {"reward": 2.0}
    # what is given is not changed
    assert set(given_options) == {"render_height", "camera_name", "model", "reward", "gravity"}


def test_what_was_read_is_given_again() -> None:
    read = read_options({"x_range": (0, 1), "render_width": 5}, 2, own_model=False)
    assert read.as_given() == {"x_min": 0.0, "x_max": 1.0, "width": 5}
    model = read_options({"model": {}}, 2, own_model=False)
    assert model.as_given() == {"model": {}}


def double(step: Any) -> Any:
    return 2 * step


def test_functions_pickle_wherever_they_were_defined() -> None:
    factor = 3
    triple = PortableFunction(lambda step: factor * step)
    again = pickle.loads(pickle.dumps(triple))
    assert isinstance(again, PortableFunction) and again(2) == triple(2) == 6
    assert pickle.loads(pickle.dumps(PortableFunction(double)))(2) == 4


def test_functions_are_wrapped_once_and_none_is_left_out() -> None:
    wrapped = PortableFunction(double)
    plain, functions = split_functions({"reward": wrapped, "terminated": None}, True)
    assert plain == {} and functions == {"reward": wrapped}
    assert functions["reward"] is wrapped


@pytest.mark.parametrize(
    ("name", "returns"), [("reward", r"\(B,\) numbers"), ("terminated", r"\(B,\) bools")]
)
def test_what_is_no_function_is_told_what_one_returns(name: str, returns: str) -> None:
    with pytest.raises(DTypeError, match=f"{name} is 3, expected a function of .*{returns}"):
        split_functions({name: 3}, True)


def test_names_are_joined_and_files_are_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.xml").touch()
    monkeypatch.chdir(tmp_path)
    given_options = {
        "observation": ["qpos", "xpos:torso"],
        "info": ("qvel",),
        "xml_file": ["a.xml", Path("a.xml"), "gone.xml"],
    }
    plain, _ = split_functions(given_options, True)
    here = str(tmp_path / "a.xml")
    assert plain == {
        "observation": "qpos, xpos:torso",
        "info": "qvel",
        "xml_file": [here, here, "gone.xml"],
    }
    assert split_functions({"observation": "qpos"}, True)[0] == {"observation": "qpos"}


def test_a_home_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.xml").touch()
    monkeypatch.setenv("HOME", str(tmp_path))
    plain, _ = split_functions({"xml_file": os.path.join("~", "m.xml")}, True)
    assert plain["xml_file"] == str(tmp_path / "m.xml")


@pytest.mark.parametrize("value", ["", 3, None])
def test_what_is_no_path_is_left_for_the_core_to_refuse(value: Any) -> None:
    assert split_functions({"xml_file": value}, True)[0] == {"xml_file": value}


@pytest.mark.parametrize("option", ["observation", "info"])
@pytest.mark.parametrize("names", [3, [1], {"qpos"}, [b"qpos"]])
def test_names_are_a_sequence_of_text(option: str, names: Any) -> None:
    with pytest.raises(DTypeError, match=rf"option '{option}' is .*, expected names such as"):
        split_functions({option: names}, True)


def test_a_name_has_no_comma() -> None:
    with pytest.raises(SpecError, match="names 'a,b', expected a name without commas"):
        split_functions({"info": ["qpos", "a,b"]}, True)


@pytest.mark.parametrize(
    ("env_id", "expected"),
    [
        ("MuJoCo-v0", True),
        (["MuJoCo-v0"], True),
        ("Ant-v5", False),
        (["Ant-v5", "Hopper-v5"], False),
        ([], False),
        (None, False),
        (3, False),
    ],
)
def test_the_own_model_is_one_id_alone(env_id: Any, expected: bool) -> None:
    assert is_own_model(env_id) is expected


def test_the_own_model_is_in_no_mixed_pool() -> None:
    with pytest.raises(SpecError, match='pass id="MuJoCo-v0" and num_envs=2; xml_file may'):
        is_own_model(["Ant-v5", "MuJoCo-v0"])


@pytest.mark.parametrize(
    ("env_id", "expected"),
    [
        ("ALE/pong-v5", "ALE/Pong-v5"),
        ("CartPole-v9", "CartPole-v1"),
        ("cartpole-v1", "CartPole-v1"),
        ("FrozenLake-v0", "FrozenLake-v1"),
    ],
)
def test_the_likeliest_id_comes_first(env_id: str, expected: str) -> None:
    assert expected in close_ids(env_id)
    assert len(close_ids(env_id)) <= 3


def test_nothing_is_close_to_nonsense() -> None:
    assert close_ids("zzzzqqqq") == []
    with pytest.raises(SpecError) as caught:
        resolve("zzzzqqqq", None, {})
    assert str(caught.value) == (
        "unknown id 'zzzzqqqq'. `rollouts.env_ids()` or the command `rollouts envs` lists all "
        "of them."
    )


def test_ids_are_those_listed_and_the_own_model() -> None:
    assert is_env_id("CartPole-v1") and is_env_id("MuJoCo-v0")
    assert not any(map(is_env_id, ("cartpole-v1", "", None, 3)))
    with pytest.raises(SpecError, match="id must be a str such as 'CartPole-v1', got 3"):
        resolve(3, None, {})  # type: ignore[arg-type]


@pytest.mark.parametrize(("limit", "expected"), [(None, 500), (0, None), (7, 7), (np.int8(9), 9)])
def test_time_limits(limit: Any, expected: Any) -> None:
    assert env_spec("CartPole-v1", max_episode_steps=limit).max_episode_steps == expected


@pytest.mark.parametrize("limit", [-1, 2**31, 1.0, "5", [5]])
def test_other_time_limits_are_refused(limit: Any) -> None:
    with pytest.raises(SpecError, match=r"max_episode_steps must be 0 \(no limit\) or a positive"):
        env_spec("CartPole-v1", max_episode_steps=limit)


def test_a_spec_shows_options_in_force_and_help_for_each() -> None:
    spec = env_spec("CartPole-v1", gravity=3.0)
    assert spec.options["gravity"] == 3.0
    assert spec.options["mass_pole"] == env_spec("CartPole-v1").options["mass_pole"]
    assert spec.option_help.keys() == spec.options.keys()
    assert not spec.cpu_only and spec.header == HEADER


def test_an_unknown_option_is_answered_with_all_that_there_are() -> None:
    text = str(unknown_option("CartPole-v1", HEADER, "gravty", {"gravity", "a"}))
    assert text.startswith(
        "CartPole-v1 has no option 'gravty'; it takes: a, gravity. Did you mean gravity (m/s^2; "
    )
    assert text.endswith("; `rollouts envs CartPole-v1` says what each option means.")
    assert "takes: none. " in str(unknown_option("CartPole-v1", HEADER, "zzz", []))


def test_an_argument_of_make_vec_is_no_option_and_close_to_none() -> None:
    text = str(unknown_option("CartPole-v1", HEADER, "device", {"devices"}))
    assert "takes: devices. make_vec itself takes " in text
    assert ", device, and the wrappers " in text
    assert "Did you mean" not in text


@pytest.mark.parametrize(
    ("close", "meaning", "said"),
    [
        ([], None, ""),
        ([], "x", ""),
        (["a"], None, " Did you mean a?"),
        (["a"], "kg", " Did you mean a (kg)?"),
        (["a", "b"], None, " Did you mean a or b?"),
    ],
)
def test_the_question_at_the_end(close: list[str], meaning: str | None, said: str) -> None:
    assert did_you_mean(close, meaning) == said
