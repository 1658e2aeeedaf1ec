# SPDX-License-Identifier: Apache-2.0
"""Frames of environments with several agents: what Tag's show, and how a pool is drawn."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import rollouts
from rollouts.errors import EngineError, ProtocolError, SpecError
from rollouts.rendering import canvas, tag

TAGGER, RUNNER, GONE = (np.array(color) for color in (tag._TAGGER, tag._RUNNER, tag._GONE))
# a tagger that catches one of three runners without a move
CAUGHT = {"num_runners": 3, "tagging_distance": 0.3, "start_seed": 3}


def make(env_id: str, num_envs: int = 1, **arguments: Any) -> rollouts.MultiAgentVectorEnv:
    return rollouts.make_multi_agent_vec(env_id, num_envs, seed=1, **arguments)


def still(env: rollouts.MultiAgentVectorEnv) -> Any:
    """Actions that change nothing."""
    actions = env.action_space.sample()
    return {name: np.zeros_like(each) for name, each in actions.items()}


def blobs(frame: Any, color: Any) -> int:
    """Areas of a colour, but for specks at the edges of others."""
    mask = (frame == color).all(axis=2)
    count = 0
    while mask.any():
        grown = np.zeros_like(mask)
        grown[tuple(np.argwhere(mask)[0])] = True
        size = 0
        while size < grown.sum():
            size = int(grown.sum())
            for axis in (0, 1):
                grown |= np.roll(grown, 1, axis) | np.roll(grown, -1, axis)
            grown &= mask
        count += size >= 8
        mask &= ~grown
    return count


def floor(frame: Any) -> tuple[int, int, int]:
    """The world's left and upper edge, and its side, in pixels."""
    edge = (frame == tag._FRAME).all(axis=2)
    rows, columns = np.flatnonzero(edge.sum(axis=1) > 20), np.flatnonzero(edge.sum(axis=0) > 20)
    return int(columns[0]), int(rows[0]), int(columns[-1] - columns[0] + 1)


def center(frame: Any, color: Any) -> tuple[float, float]:
    """The middle of all pixels of a colour, as parts of the world's side, y upwards."""
    left, top, side = floor(frame)
    y, x = np.argwhere((frame == color).all(axis=2)).mean(axis=0) + 0.5
    return (x - left) / side, 1 - (y - top) / side


def test_agents_are_where_the_state_has_them() -> None:
    with make("TagContinuous-v0", num_runners=1, grid_length=10.0) as env:
        env.reset()
        for _ in range(3):
            (frame,) = env.render()
            (world,) = env.engine.pool.read_worlds([0], False)
            for row, color in enumerate((TAGGER, RUNNER)):
                place = world["x"][row] / 10, world["y"][row] / 10
                # a dart's middle is not the middle of its area
                assert np.abs(np.array(center(frame, color)) - place).max() < 0.012
            env.step(env.action_space.sample())


def test_environments_are_drawn_by_options_of_their_own() -> None:
    sides = np.array([5.0, 20.0])
    with make("TagContinuous-v0", 2, num_runners=1, grid_length=sides, max_episode_steps=0) as env:
        env.reset()
        # rows that are 20 wide from now on are drawn so
        for _ in range(2):
            frames = env.render()
            for row, world in enumerate(env.engine.pool.read_worlds([0, 1], False)):
                place = world["x"][1] / sides[row], world["y"][1] / sides[row]
                assert np.abs(np.array(center(frames[row], RUNNER)) - place).max() < 0.012
            sides = sides[::-1].copy()
            env.reset(options={"grid_length": sides})


def test_darts_point_to_where_agents_go() -> None:
    with make("TagContinuous-v0", num_runners=1) as env:
        env.reset()
        env.action_space.seed(5)
        headings = set()
        for _ in range(12):
            env.step(env.action_space.sample())
            (frame,) = env.render()
            (world,) = env.engine.pool.read_worlds([0], False)
            heading = float(world["heading"][1])
            headings.add(heading)
            left, top, side = floor(frame)
            pixels = np.argwhere(frame[..., 2] > frame[..., 0] + 60.0) + 0.5
            x = (pixels[:, 1] - left) / side - world["x"][1] / 10
            y = 1 - (pixels[:, 0] - top) / side - world["y"][1] / 10
            # the tip is the furthest corner
            furthest = np.argmax(np.hypot(x, y))
            turn = np.angle(np.exp(1j * (np.arctan2(y[furthest], x[furthest]) - heading)))
            assert abs(turn) < 0.25
        assert len(headings) > 5


def test_those_who_left_are_drawn_faintly() -> None:
    with make("TagContinuous-v0", **CAUGHT) as env:
        env.reset()
        (before,) = env.render()
        assert blobs(before, RUNNER) == 3 and blobs(before, TAGGER) == 1
        _, _, terminated, *_ = env.step(still(env))
        (caught,) = env.render()
        count = int(terminated["runner"].sum())
        assert 0 < count < 3
        # a cross each, and the tagger itself
        assert blobs(caught, RUNNER) == 3 - count and blobs(caught, TAGGER) == 1 + count
        assert blobs(caught, GONE) == 0
        env.step(still(env))
        (after,) = env.render()
        assert blobs(after, TAGGER) == 1 and blobs(after, GONE) == count


def test_who_may_be_tagged_again_stays() -> None:
    with make("TagContinuous-v0", runner_exits_game_after_tagged=False, **CAUGHT) as env:
        env.reset()
        for _ in range(2):
            env.step(still(env))
        (frame,) = env.render()
        (world,) = env.engine.pool.read_worlds([0], False)
        assert (world["catcher"][1:] >= 0).any() and (world["active"] == 1).all()
        assert blobs(frame, GONE) == 0
        assert blobs(frame, RUNNER) >= 3  # crosses lie over them


def test_cells_of_the_grid_show_who_is_there() -> None:
    with make("TagGridWorld-v0", num_taggers=3, grid_length=4) as env:
        env.reset()
        (frame,) = env.render()
        # all taggers begin in the middle, under a number, and the runner in a corner
        assert np.abs(np.array(center(frame, TAGGER)) - 0.5).max() < 0.01
        assert np.abs(np.array(center(frame, RUNNER)) - 0.1).max() < 0.01
        env.step({"tagger": np.array([[1, 2, 3]]), "runner": np.array([[3]])})
        (frame,) = env.render()
        assert blobs(frame, TAGGER) == 3
        x, y = center(frame, RUNNER)
        assert abs(x - 0.1) < 0.01 and abs(y - 0.3) < 0.01


def test_a_caught_runner_is_seen_on_its_tagger() -> None:
    with make("TagGridWorld-v0", num_taggers=1, grid_length=2, autoreset_mode="disabled") as env:
        env.reset()
        for tagger, runner in ((2, 0), (4, 0)):
            env.step({"tagger": np.array([[tagger]]), "runner": np.array([[runner]])})
        (frame,) = env.render()
        assert np.abs(np.subtract(center(frame, TAGGER), center(frame, RUNNER))).max() < 0.01


def test_a_head_tells_the_step_and_who_is_left() -> None:
    with make("TagContinuous-v0", **CAUGHT) as env:
        env.reset()
        heads = []
        for _ in range(3):
            (frame,) = env.render()
            heads.append(frame[:28])
            env.step(still(env))
        # "step" stays, its number does not, and runners leave with the first step alone
        halves = [(head[:, :240], head[:, 240:]) for head in heads]
        assert (halves[0][0] != halves[1][0]).any() and (halves[1][0] != halves[2][0]).any()
        assert (halves[0][1] != halves[1][1]).any()
        np.testing.assert_array_equal(halves[1][1], halves[2][1])
        np.testing.assert_array_equal(heads[0][:, :60], heads[2][:, :60])


@pytest.mark.parametrize(("width", "height"), [(480, 480), (160, 120), (90, 200), (1100, 1050)])
@pytest.mark.parametrize("env_id", ["TagContinuous-v0", "TagGridWorld-v0"])
def test_frames_have_the_size_that_was_asked_for(env_id: str, width: int, height: int) -> None:
    with make(env_id, width=width, height=height) as env:
        env.reset()
        (frame,) = env.render()
        assert frame.shape == (height, width, 3) and frame.dtype == np.uint8
        assert frame.flags.c_contiguous
        assert (frame == RUNNER).all(axis=2).any()
        left, top, side = floor(frame)
        assert left >= 0 and top > 0 and left + side <= width and top + side <= height


def test_a_large_grid_is_drawn_without_lines() -> None:
    with make("TagGridWorld-v0", grid_length=1_000_000, num_taggers=2) as env:
        env.reset()
        (frame,) = env.render()
        assert blobs(frame, TAGGER) == 1 and blobs(frame, RUNNER) == 1
        assert not (frame == tag._LINES).all(axis=2).any()


@pytest.mark.parametrize("env_id", ["TagContinuous-v0", "simple_world_comm_v3"])
def test_a_frame_changes_nothing(env_id: str) -> None:
    seen = []
    for draws in (False, True):
        with make(env_id, 3, num_threads=2) as env:
            env.action_space.seed(2)
            obs, _ = env.reset()
            for _ in range(12):
                if draws:
                    assert len(env.render()) == 3
                obs, *_ = env.step(env.action_space.sample())
            seen.append((obs, env.get_state()))
    assert seen[0][1] == seen[1][1]
    np.testing.assert_equal(seen[0][0], seen[1][0])


def test_environments_are_drawn_by_their_ids() -> None:
    with make("simple_spread_v3", 4, env_id_offset=10) as env:
        env.reset()
        frames = env.render()
        assert len(frames) == 4 and (frames[0] != frames[3]).any()
        np.testing.assert_array_equal(env.render([13, 10]), [frames[3], frames[0]])
        np.testing.assert_array_equal(env.render(11), [frames[1]])
        with pytest.raises(SpecError, match="ids from 10 to 13"):
            env.render([9])


def test_a_state_takes_its_episodes_first_frame_along() -> None:
    # mpe2 draws things as large as the episode's beginning had them
    with make("simple_tag_v3", 2) as env:
        env.reset()
        for _ in range(8):
            env.step(env.action_space.sample())
        env.set_state([1], env.get_state([0]))
        first, second = env.render()
        np.testing.assert_array_equal(first, second)


def test_what_is_in_flight_or_was_never_reset_is_not_drawn() -> None:
    with make("simple_spread_v3", 4, batch_size=2) as env:
        with pytest.raises(ProtocolError, match="call reset first"):
            env.render()
        env.reset()
        with pytest.raises(ProtocolError, match="in flight"):
            env.render()
        env.drain()
        assert len(env.render()) == 4
    with pytest.raises(rollouts.errors.ClosedError):
        env.render()


def test_modes_and_metadata_are_those_of_wrappers() -> None:
    with make("TagGridWorld-v0", render_mode="rgb_array") as env:
        assert env.render_mode == "rgb_array"
        assert env.metadata["render_modes"] == ["rgb_array"]
        assert env.metadata["render_fps"] == 10
    with make("simple_v3") as env:
        assert env.render_mode is None and env.metadata["render_modes"] == ["rgb_array"]
        assert "render_fps" not in env.metadata
    with pytest.raises(SpecError, match="render_mode must be"):
        make("simple_v3", render_mode="human")


def test_sizes_are_for_tag_alone() -> None:
    with pytest.raises(SpecError, match="no options camera_id"):
        make("TagGridWorld-v0", width=200, camera_id=1)
    with pytest.raises(SpecError, match="no options width"):
        make("simple_v3", width=200)


def test_agents_as_rows_are_drawn_by_environment() -> None:
    with make("TagGridWorld-v0", 2, render_mode="rgb_array", autoreset_mode="same_step") as env:
        rows = env.as_single_agent()
        rows.reset()
        # Gymnasium's wrappers ask for these
        assert rows.render_mode == "rgb_array" and rows.metadata["render_fps"] == 10
        np.testing.assert_array_equal(rows.render(), env.render())


def test_a_missing_pygame_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for function in (canvas.load_pygame, canvas._font):
        function.cache_clear()
    monkeypatch.setitem(sys.modules, "pygame", None)
    with make("simple_v3") as env:
        env.reset()
        with pytest.raises(EngineError, match=r"pip install 'rollouts\[render\]'"):
            env.render()


def test_one_agent_has_no_world() -> None:
    with rollouts.make_vec("CartPole-v1", 1) as env:
        env.reset()
        with pytest.raises(SpecError, match="no world of agents"):
            env.engine.pool.read_worlds([0], False)


@pytest.mark.parametrize("env_id", ["TagGridWorld-v0", "simple_reference_v3"])
def test_others_may_quit_pygame_between_frames(env_id: str) -> None:
    """As Gymnasium's environments do when they are closed, before the first frame and after it."""
    pygame = canvas.load_pygame()
    with make(env_id) as env:
        env.reset()
        pygame.quit()
        first = env.render()[0]
        pygame.quit()
        np.testing.assert_array_equal(env.render()[0], first)
