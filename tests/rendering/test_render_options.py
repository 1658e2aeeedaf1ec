# SPDX-License-Identifier: Apache-2.0
"""Options of frames, and the rows that are drawn."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import rollouts
from rollouts.errors import DTypeError, SpecError
from rollouts.rendering.frame_options import (
    NAMES,
    RenderOptions,
    read_mode,
    read_options,
    split_options,
)
from rollouts.rendering.frames import FrameSource


def test_options_are_parted_by_either_name() -> None:
    given = {"width": 1, "render_height": 2, "render_fps": 3, "gravity": 4, "camera": 5}
    frames, others = split_options(given)
    assert frames == {"width": 1, "height": 2}
    assert others == {"render_fps": 3, "gravity": 4, "camera": 5}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("is_first", [True, False])
def test_one_option_by_both_names_is_refused(name: str, is_first: bool) -> None:
    items = [(name, 1), (f"render_{name}", 1)]
    with pytest.raises(SpecError, match=f"'{name}' and 'render_{name}' say the same"):
        split_options(dict(items if is_first else items[::-1]))


def test_nothing_given_is_the_default() -> None:
    assert read_options({}) == RenderOptions()
    # None is EnvPool's default of a side
    assert read_options({"width": None, "height": None}) == RenderOptions()


def test_everything_given_is_kept() -> None:
    config = {"distance": 4.0, "lookat": [0, 0, 1]}
    read = read_options(
        {
            "width": np.int64(64),
            "height": 32,
            "camera_name": "side",
            "default_camera_config": config,
            "max_geom": 5,
            "visual_options": {3: True},
        }
    )
    assert read == RenderOptions(64, 32, "side", config, 5, {3: True})
    assert read_options({"camera_id": -1}).camera == -1
    assert read_options({"camera_id": 0, "camera_name": None}).camera == 0


def test_flags_are_a_copy() -> None:
    flags = {1: True}
    read = read_options({"visual_options": flags})
    flags[1] = False
    assert read.visual_options == {1: True}


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"width": 0}, SpecError, "width is 0, expected a whole number from 1 to 16384"),
        ({"height": 16385}, SpecError, "height is 16385, expected a whole number from 1 to 16384"),
        ({"width": 1.5}, SpecError, "width is 1.5, expected a whole number"),
        ({"max_geom": 0}, SpecError, "max_geom is 0, expected a whole number"),
        ({"camera_id": -2}, SpecError, "camera_id is -2, expected a whole number"),
        ({"camera_id": "side"}, SpecError, "camera_id is 'side', expected a whole number"),
        ({"camera_name": 3}, SpecError, "camera_name must be a str, got 3"),
        ({"camera_id": 1, "camera_name": "x"}, SpecError, "camera_id 1 and camera_name 'x' are"),
        ({"visual_options": [3]}, DTypeError, "visual_options must be a dict of flag: bool"),
        ({"visual_options": None}, DTypeError, "visual_options must be a dict"),
        ({"default_camera_config": [1]}, DTypeError, "default_camera_config must be a dict"),
        (
            {"default_camera_config": {"zoom": 1, "angle": 2, "distance": 3}},
            SpecError,
            r"has the unknown fields \['angle', 'zoom'\], expected some of azimuth, distance",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused(given: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        read_options(given)


def test_a_mode_is_an_array_or_none() -> None:
    assert read_mode(None) is None and read_mode("rgb_array") == "rgb_array"
    for wrong in ("human", "", 3, ["rgb_array"]):
        with pytest.raises(SpecError, match="render_mode must be None or 'rgb_array', got"):
            read_mode(wrong)  # type: ignore[arg-type]


class Engine:
    """A pool whose frames say which environments they are of."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []

    def render(self, ids: np.ndarray) -> list[np.ndarray]:
        self.asked.append(ids.tolist())
        return [np.full((2, 2, 3), env_id) for env_id in ids]


def spec(env_id: str, header: str, **options: Any) -> Any:
    return SimpleNamespace(id=env_id, header=header, options=options)


def source(first_env_id: int = 10, **changes: Any) -> tuple[Engine, FrameSource]:
    specs = {
        "ALE/Pong-v5": spec("ALE/Pong-v5", "envs/atari/atari.h", frameskip=4),
        "FrozenLake-v1": spec("FrozenLake-v1", "envs/toy_text/frozen_lake.h"),
    }
    runs = changes.get("runs", [("ALE/Pong-v5", 3)])
    specs = {one: specs[one] for one, _ in runs}
    engine: Any = Engine()
    made = FrameSource(engine, runs, specs, first_env_id, changes.get("options", {}))
    return engine, made


def test_frames_come_in_the_order_asked_for_and_as_often() -> None:
    engine, frames = source()
    drawn = frames.draw([12, 10, 12], None)
    assert [int(frame[0, 0, 0]) for frame in drawn] == [12, 10, 12]
    assert engine.asked == [[12, 10, 12]]


@pytest.mark.parametrize(
    ("env_ids", "expected"),
    [(None, [10, 11, 12]), (11, [11]), (np.array([11], np.uint8), [11]), ([], [])],
)
def test_any_kind_of_ids_names_environments(env_ids: Any, expected: list[int]) -> None:
    _, frames = source()
    assert [int(frame[0, 0, 0]) for frame in frames.draw(env_ids, None)] == expected


@pytest.mark.parametrize("env_ids", [[10.0], "10", [[10]], [True]])
def test_ids_that_are_no_numbers_are_refused(env_ids: Any) -> None:
    _, frames = source()
    with pytest.raises(DTypeError, match="env_ids must be whole numbers of shape"):
        frames.draw(env_ids, None)


def test_all_ids_that_are_not_ours_are_named() -> None:
    _, frames = source()
    with pytest.raises(SpecError, match=r"env_ids has \[9, 13\], expected ids from 10 to 12"):
        frames.draw([9, 11, 13], None)


def test_an_environment_that_nothing_draws_is_named_before_anything_is_drawn() -> None:
    engine, frames = source(runs=[("ALE/Pong-v5", 2), ("FrozenLake-v1", 1)])
    with pytest.raises(SpecError, match=r"FrozenLake-v1 \(env_id 12\) cannot be rendered"):
        frames.draw([12], None)
    assert engine.asked == []
    assert len(frames.draw([11, 10], None)) == 2
    # there is no mode in which all can be drawn
    assert frames.metadata(None) == {"render_modes": []}
    with pytest.raises(SpecError, match="cannot be rendered"):
        frames.metadata("rgb_array")


def test_only_models_have_cameras_and_sizes() -> None:
    _, frames = source()
    with pytest.raises(SpecError, match="camera is 0, but only MuJoCo models have any"):
        frames.draw(None, 0)
    with pytest.raises(SpecError, match=r"Pong-v5 has no options height, width: only frames of"):
        source(options={"width": 3, "height": 4})


@pytest.mark.parametrize(("frameskip", "pace"), [(1, 60), (4, 15), (7, 9), (200, 1)])
def test_the_pace_of_a_game_follows_its_frameskip(frameskip: int, pace: int) -> None:
    _, frames = source()
    frames._specs[0].options["frameskip"] = frameskip  # type: ignore[index]
    assert frames.frames_per_s() == pace
    assert frames.metadata("rgb_array") == {"render_modes": ["rgb_array"], "render_fps": pace}
    assert frames.metadata(None) == {"render_modes": ["rgb_array"]}


def test_a_pool_without_a_mode_says_what_helps() -> None:
    with rollouts.make_vec("FrozenLake-v1", 1) as env:
        assert env.metadata["render_modes"] == []
