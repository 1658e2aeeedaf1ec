# SPDX-License-Identifier: Apache-2.0
"""States of our grids as objects of minigrid's, which then step beside them."""

from __future__ import annotations

from typing import Any
from unittest import mock

import gymnasium
import numpy as np
from minigrid.core import world_object
from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT
from minigrid.core.grid import Grid

from rollouts.families.minigrid import decode_mission

# native/include/rollouts/envs/minigrid/grid.h
STATE = np.dtype(
    [(name, "<i4") for name in ("width", "height", "x", "y", "dir")]
    + [("carrying", "<u4"), ("steps", "<i4"), ("max_steps", "<i4")]
    + [("items", "<i4", 16), ("num_items", "<i4"), ("words", "u1", 76), ("num_words", "<i4")]
    + [("cells", "<u4", 625)]
)
MARK = 1 << 24  # the bit of the object to pick up
EMPTY = 1


def make_object(cell: int) -> world_object.WorldObj | None:
    """minigrid's object of a cell's number."""
    kind, color, state = IDX_TO_OBJECT[cell & 15], IDX_TO_COLOR[cell >> 8 & 7], cell >> 16 & 3
    held = cell >> 20 & 7
    if kind == "empty":
        return None
    if kind == "door":
        return world_object.Door(color, is_open=state == 0, is_locked=state == 2)
    if kind == "box":
        return world_object.Box(color, world_object.Key(IDX_TO_COLOR[held - 1]) if held else None)
    if kind == "lava":
        return world_object.Lava()
    return {
        "wall": world_object.Wall,
        "key": world_object.Key,
        "ball": world_object.Ball,
        "goal": world_object.Goal,
    }[kind](color)


def copy_grid(state: np.void, env: Any) -> None:
    """Gives minigrid's environment our grid, agent and mission."""
    width, height = int(state["width"]), int(state["height"])
    assert (env.width, env.height, env.max_steps) == (width, height, state["max_steps"])
    env.grid = Grid(width, height)
    for at in range(width * height):
        thing = make_object(int(state["cells"][at]))
        env.grid.grid[at] = thing
        if thing is not None:
            thing.init_pos = thing.cur_pos = (at % width, at // width)
    env.agent_pos = np.array((int(state["x"]), int(state["y"])))
    env.agent_dir = int(state["dir"])
    carried = make_object(int(state["carrying"]))
    env.carrying = carried
    env.step_count = int(state["steps"])
    env.mission = decode_mission(state["words"])


def copy_targets(state: np.void, env: Any) -> None:
    """Gives it what its level looks at."""
    width, items = int(state["width"]), state["items"].tolist()
    places = [(at % width, at // width) for at in items]
    words = env.mission.split()
    name = type(env).__name__
    if name == "FetchEnv":
        env.targetColor, env.targetType = words[-2:]
    elif name in ("GoToDoorEnv", "GoToObjectEnv"):
        env.target_pos = places[0]
    elif name == "PutNearEnv":
        env.moveColor, env.move_type = words[2:4]
        env.target_pos = places[1]
    elif name == "MemoryEnv":
        env.success_pos, env.failure_pos = places[:2]
    elif name == "RedBlueDoorEnv":
        env.red_door, env.blue_door = (env.grid.grid[at] for at in items[:2])
    elif name == "UnlockEnv":
        env.door = env.grid.grid[items[0]]
    elif name == "DynamicObstaclesEnv":
        env.obstacles = [env.grid.grid[at] for at in items[: state["num_items"]]]
    marked = np.flatnonzero(state["cells"][: width * int(state["height"])] & MARK)
    if len(marked):
        env.obj = env.grid.grid[int(marked[0])]


def reference(env_id: str, **kwargs: Any) -> Any:
    """minigrid's environment, without Gymnasium's checks."""
    return gymnasium.make(env_id, disable_env_checker=True, **kwargs).unwrapped


def step(env: Any, action: int, after: np.void) -> tuple[Any, float, bool, bool]:
    """A step of minigrid's, whose obstacles move where ours did (`after` is our state)."""
    if type(env).__name__ != "DynamicObstaclesEnv":
        return env.step(action)[:4]
    width = int(after["width"])
    moves = [(at % width, at // width) for at in after["items"][: len(env.obstacles)].tolist()]
    left = iter(moves)

    def place(obstacle: Any, top: Any, size: Any, max_tries: int) -> None:
        to = next(left)
        old = tuple(obstacle.cur_pos)
        if to == old:
            raise RecursionError
        # the rule: a free cell beside it where the agent is not
        assert max(abs(to[0] - old[0]), abs(to[1] - old[1])) == 1
        assert env.grid.get(*to) is None
        assert to != tuple(env.agent_pos)
        env.grid.set(*to, obstacle)
        obstacle.cur_pos = to

    with mock.patch.object(env, "place_obj", place):
        return env.step(action)[:4]


def stand_before_something(state: np.void, generator: np.random.Generator) -> None:
    """Moves the agent to where it looks at an object, so that episodes end in every way."""
    width, height = int(state["width"]), int(state["height"])
    cells = state["cells"][: width * height].reshape(height, width)
    kinds = cells & 15
    steps = [(1, 0), (0, 1), (-1, 0), (0, -1)]
    free = (kinds == EMPTY) & ~_outside(kinds)
    found = [
        (x - dx, y - dy, direction)
        for y, x in np.argwhere(kinds > 2).tolist()
        for direction, (dx, dy) in enumerate(steps)
        if 0 <= x - dx < width and 0 <= y - dy < height and free[y - dy, x - dx]
    ]
    if found:
        state["x"], state["y"], state["dir"] = found[generator.integers(len(found))]


def _outside(kinds: np.ndarray) -> np.ndarray:
    """Empty cells outside the rooms, from where an agent would walk off minigrid's grid."""
    height, width = kinds.shape
    outside = np.zeros((height + 2, width + 2), bool)
    outside[[0, -1]] = outside[:, [0, -1]] = True
    known = 0
    while known != outside.sum():
        known = outside.sum()
        beside = outside[:-2, 1:-1] | outside[2:, 1:-1] | outside[1:-1, :-2] | outside[1:-1, 2:]
        outside[1:-1, 1:-1] |= beside & (kinds == EMPTY)
    return outside[1:-1, 1:-1]
