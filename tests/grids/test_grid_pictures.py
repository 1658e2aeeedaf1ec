# SPDX-License-Identifier: Apache-2.0
"""Observations in pixels are those of minigrid's RGBImgObsWrapper and RGBImgPartialObsWrapper."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np
import pytest

wrappers = pytest.importorskip(
    "minigrid.wrappers", reason="needs minigrid, which has no wheel of pygame for 3.14"
)
from babyai_oracle import BABY_STATE, copy_task  # noqa: E402
from minigrid.core.grid import Grid  # noqa: E402
from minigrid_oracle import (  # noqa: E402
    EMPTY,
    STATE,
    copy_grid,
    copy_targets,
    make_object,
    reference,
    stand_before_something,
    step,
)

import rollouts  # noqa: E402
from rollouts.errors import SpecError  # noqa: E402

MODES = {"rgb": wrappers.RGBImgObsWrapper, "rgb_partial": wrappers.RGBImgPartialObsWrapper}
# rooms behind doors, lava, keys in boxes, balls that move or are carried, no walls in the way
IDS = (
    "MiniGrid-DoorKey-8x8-v0",
    "MiniGrid-LavaCrossingS9N2-v0",
    "MiniGrid-ObstructedMaze-Full-v1",
    "MiniGrid-KeyCorridorS4R3-v0",
    "MiniGrid-Dynamic-Obstacles-6x6-v0",
    "MiniGrid-Fetch-8x8-N3-v0",
    "BabyAI-GoToLocal-v0",
    "BabyAI-KeyInBox-v0",
    "BabyAI-BossLevel-v0",
)
ALL_IDS = [one for one in rollouts.env_ids() if one.startswith(("MiniGrid-", "BabyAI-"))]
# left, right, forward, pick up, drop, toggle, done
ACTIONS = np.array([0.17, 0.17, 0.34, 0.12, 0.08, 0.1, 0.02])
# whatever a cell may hold
CELLS = [
    EMPTY,
    2 | 5 << 8,
    8 | 1 << 8,
    9,
    *(4 | color << 8 | state << 16 for color in range(6) for state in range(3)),
    *(kind | color << 8 for color in range(6) for kind in (5, 6, 7)),
]


def copy_episode(env: rollouts.VectorEnv, theirs: Any, generator: np.random.Generator) -> None:
    """Puts our agent before something, and lets minigrid's environment begin as ours does."""
    baby = env.env_spec.id.startswith("BabyAI")
    state = np.frombuffer(env.engine.pool.get_state(0), BABY_STATE if baby else STATE)[0].copy()
    grid = state["grid"] if baby else state
    if baby:
        copy_task(state, theirs)
    stand_before_something(grid, generator)
    env.engine.pool.set_state(0, state.tobytes())
    theirs.max_steps = int(grid["max_steps"])
    copy_grid(grid, theirs)
    if not baby:
        copy_targets(state, theirs)


def play(
    env_id: str, mode: str, episodes: int, most_steps: int, *, tile_size: int, highlight: bool
) -> None:
    """Compares every picture of some episodes, to their ends or for `most_steps`."""
    generator = np.random.default_rng(7)
    # minigrid prints the levels that it rejects
    with contextlib.redirect_stdout(io.StringIO()):
        theirs = reference(env_id, highlight=highlight)
        theirs.reset(seed=0)
    wrapper = MODES[mode](theirs, tile_size=tile_size)
    options: dict[str, Any] = {"tile_size": tile_size, "highlight": highlight}
    if env_id.startswith("MiniGrid"):
        options["max_steps"] = most_steps
    with rollouts.make_vec(
        env_id,
        1,
        seed=6,
        observation=mode,
        autoreset_mode="disabled",
        flatten_observation=False,
        **options,
    ) as env:
        assert env.single_observation_space["image"] == wrapper.observation_space["image"]
        weights = ACTIONS[: env.single_action_space.n]
        for _ in range(episodes):
            env.reset(options={"reset_mask": np.array([True])})
            copy_episode(env, theirs, generator)
            for _ in range(most_steps):
                action = generator.choice(len(weights), p=weights / weights.sum())
                obs, _, terminated, truncated, _ = env.step(np.array([action]))
                state = np.frombuffer(env.engine.pool.get_state(0)[: STATE.itemsize], STATE)[0]
                shown = wrapper.observation(step(theirs, int(action), state)[0])
                np.testing.assert_array_equal(obs["image"][0], shown["image"])
                assert obs["direction"][0] == shown["direction"]
                assert rollouts.decode_mission(obs["mission"][0]) == shown["mission"]
                if terminated[0] or truncated[0]:
                    break


# all ids have each mode, and the first one each with both sizes of tiles
@pytest.mark.parametrize(
    ("env_id", "mode", "tile_size", "highlight"),
    [
        pytest.param(
            env_id,
            mode,
            tile_size,
            tile_size == 8,
            marks=[pytest.mark.slow]
            * (env_id != IDS[0] and (mode, tile_size) not in (("rgb", 8), ("rgb_partial", 5))),
        )
        for env_id in IDS
        for mode in MODES
        for tile_size in (8, 5)
    ],
)
def test_episodes_are_minigrids_pixel_by_pixel(
    env_id: str, mode: str, tile_size: int, highlight: bool
) -> None:
    play(env_id, mode, 2, 50, tile_size=tile_size, highlight=highlight)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("env_id", ALL_IDS)
def test_episodes_of_every_id_are_minigrids_pixel_by_pixel(env_id: str, mode: str) -> None:
    play(env_id, mode, 20, 200, tile_size=8, highlight=True)


@pytest.mark.parametrize("tile_size", [1, 8, 13])
def test_every_tile_is_minigrids(tile_size: int) -> None:
    """Two rows of all that a cell may hold, one of them seen, and the agent in a cell."""
    with rollouts.make_vec(
        "MiniGrid-Empty-8x8-v0",
        1,
        observation="rgb",
        size=25,
        tile_size=tile_size,
        agent_view_size=15,
        flatten_observation=False,
    ) as env:
        env.reset()
        state = np.frombuffer(env.engine.pool.get_state(0), STATE)[0].copy()
        cells = np.full((25, 25), EMPTY, np.uint32)
        places = [(row, 6 + column) for row in range(4) for column in range(12)]
        for (row, column), cell in zip(places, CELLS, strict=False):
            cells[row + 1, column] = cells[row + 12, column] = cell
        # in front of the agent, which looks up, are 15 x 15 cells
        state["x"], state["y"] = 12, 20
        # minigrid takes long for large tiles
        agents = [(facing, cell) for facing in range(4) for cell in CELLS]
        for facing, cell in agents if tile_size == 8 else agents[:: len(CELLS)]:
            cells[20, 12] = cell
            state["dir"], state["cells"] = facing, cells.ravel()
            env.engine.pool.set_state(0, state.tobytes())
            image = env.step(np.array([6]))[0]["image"][0]
            tiles = image.reshape(25, tile_size, 25, tile_size, 3).swapaxes(1, 2)
            agent = Grid.render_tile(make_object(cell), facing, True, tile_size)
            np.testing.assert_array_equal(tiles[20, 12], agent.astype(np.uint8))
        for (row, column), cell in zip(places, CELLS, strict=False):
            for down, lit in ((1, False), (12, True)):
                theirs = Grid.render_tile(make_object(cell), None, lit, tile_size)
                np.testing.assert_array_equal(
                    tiles[row + down, column], theirs.astype(np.uint8), f"{cell:x} {lit}"
                )


def rows_of(num_threads: int, **options: Any) -> list[np.ndarray]:
    """Pictures of 32 environments, by env_id, in 40 calls of 3 episodes and more."""
    kwargs = {"observation": "rgb", "tile_size": 6, "max_steps": 12, "seed": 9} | options
    found = []
    with rollouts.make_vec("MiniGrid-DoorKey-6x6-v0", 32, num_threads=num_threads, **kwargs) as env:
        actions = np.random.default_rng(1).integers(7, size=(40, 32))
        found.append(env.reset()[0].copy())
        for row in actions:
            obs, _, _, _, info = env.step(row)
            found.append(obs.copy())
            if "final_obs" in info:
                found += [one.copy() for one in info["final_obs"] if one is not None]
    return found


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
def test_threads_draw_the_same_pictures(mode: str, autoreset: str) -> None:
    """Draws at a tile size that nobody has drawn before: threads meet at the first picture."""
    options = {"observation": mode, "autoreset_mode": autoreset}
    tile_size = 20 + 2 * list(MODES).index(mode) + (autoreset == "same_step")
    first = rows_of(4, tile_size=tile_size, **options)
    for one, other in zip(first, rows_of(1, tile_size=tile_size, **options), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("mode", MODES)
def test_batches_of_some_show_what_batches_of_all_show(mode: str) -> None:
    kwargs = {"observation": mode, "seed": 4, "max_steps": 9, "num_threads": 2}
    shown: dict[int, list[np.ndarray]] = {one: [] for one in range(8)}
    with rollouts.make_vec("BabyAI-GoToLocal-v0", 8, batch_size=4, **kwargs) as env:
        env.async_reset()
        while min(len(rows) for rows in shown.values()) < 25:
            obs, _, _, _, info = env.recv()
            for row, one in zip(obs, info["env_id"], strict=True):
                shown[int(one)].append(row.copy())
            env.send(np.full(4, 2), info["env_id"])
    with rollouts.make_vec("BabyAI-GoToLocal-v0", 8, **kwargs) as env:
        obs, _ = env.reset()
        for time in range(25):
            for one in range(8):
                np.testing.assert_array_equal(shown[one][time], obs[one])
            obs, *_ = env.step(np.full(8, 2))


@pytest.mark.parametrize("mode", MODES)
def test_saved_states_show_the_same_pictures(mode: str) -> None:
    generator = np.random.default_rng(2)
    with (
        rollouts.make_vec("MiniGrid-MultiRoom-N6-v0", 3, seed=1, observation=mode) as env,
        rollouts.make_vec("MiniGrid-MultiRoom-N6-v0", 3, seed=8, observation=mode) as other,
    ):
        env.reset()
        other.reset()
        for _ in range(20):
            env.step(generator.integers(7, size=3))
        other.set_state(None, env.get_state())
        for _ in range(20):
            actions = generator.integers(7, size=3)
            np.testing.assert_array_equal(env.step(actions)[0], other.step(actions)[0])


def test_the_view_is_lighter_where_an_environment_has_it_so() -> None:
    options = {"observation": "rgb", "highlight": [True, False], "flatten_observation": False}
    with rollouts.make_vec("MiniGrid-Empty-8x8-v0", 2, **options) as env:
        image = env.reset()[0]["image"]
        assert (image[0] >= image[1]).all()
        assert (image[0] > image[1]).any()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"observation": "rgb_full"}, "'rgb' or 'rgb_partial', got 'rgb_full'"),
        ({"tile_size": 0}, "'tile_size' must be between 1 and 64, got 0"),
        ({"tile_size": 65}, "'tile_size' must be between 1 and 64, got 65"),
        ({"tile_size": 7.5}, "'tile_size' must be an int"),
        ({"tile_size": [8, 16]}, "would change the observation space"),
        ({"highlight": 1}, "'highlight' must be a bool, got an int"),
    ],
)
def test_other_values_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        rollouts.make_vec("MiniGrid-Empty-5x5-v0", 2, **{"observation": "rgb", **options})


@pytest.mark.parametrize("mode", MODES)
def test_a_device_refuses_pictures(mode: str) -> None:
    # a view of 7 x 7 pixels would fit the arrays of one of 7 x 7 cells
    options = {"observation": mode, "tile_size": 1, "device": "cpu-emulation"}
    with pytest.raises(SpecError, match=f"observation='{mode}' is not for a GPU's pool: leave it"):
        rollouts.make_vec("MiniGrid-Empty-5x5-v0", 2, **options)
