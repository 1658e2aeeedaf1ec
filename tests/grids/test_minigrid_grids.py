# SPDX-License-Identifier: Apache-2.0
"""Grids that we draw: as likely as minigrid's, and solvable where those are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator

import numpy as np
import pytest

pytest.importorskip("minigrid", reason="needs minigrid, which has no wheel of pygame for 3.14")
from grid_ids import by_kind
from minigrid_oracle import MARK, STATE, copy_grid, reference

import rollouts

NUM_GRIDS = 800
# a chi-square statistic as a standard normal variable: exceeded with p = 0.00003. Seeds are fixed
MAX_Z = 4.0
WALL, DOOR, KEY, BOX, GOAL, LAVA = 2, 4, 5, 7, 8, 9


def grids(env_id: str, count: int) -> Iterator[np.void]:
    """States after reset."""
    with rollouts.make_vec(env_id, count, seed=4, num_threads=1) as env:
        env.reset()
        for index in range(count):
            yield np.frombuffer(env.engine.pool.get_state(index), STATE)[0]


def features(env: object) -> Iterator[tuple[str, Hashable]]:
    """Counted features of a grid of minigrid's."""
    yield "agent", (*(int(at) for at in env.agent_pos), int(env.agent_dir))  # type: ignore[attr-defined]
    yield "mission", env.mission  # type: ignore[attr-defined]
    things = [
        (at, one)
        for at, one in enumerate(env.grid.grid)  # type: ignore[attr-defined]
        if one is not None and one.type != "wall"
    ]
    if things:
        # the first thing and the number of all: things of one grid depend on each other
        at, first = things[0]
        yield "place", at
        yield "thing", first.encode()
        yield "last place", things[-1][0]
        yield "count", len(things)


def assert_alike(ours: Counter[Hashable], theirs: Counter[Hashable], name: str) -> None:
    """A two-sample chi-square test; values that are rare count as one."""
    rare = {one for one in ours | theirs if ours[one] + theirs[one] < 10}
    pairs = [(ours[one], theirs[one]) for one in ours | theirs if one not in rare]
    pairs.append((sum(ours[one] for one in rare), sum(theirs[one] for one in rare)))
    pairs = [pair for pair in pairs if sum(pair)]
    freedom = len(pairs) - 1
    if freedom == 0:
        return
    statistic = sum((a - b) ** 2 / (a + b) for a, b in pairs)
    # Wilson and Hilferty
    mean = 1 - 2 / (9 * freedom)
    z = ((statistic / freedom) ** (1 / 3) - mean) / (2 / (9 * freedom)) ** 0.5
    assert z < MAX_Z, (name, statistic, freedom)


@pytest.mark.parametrize(
    "env_id",
    [
        "MiniGrid-DoorKey-6x6-v0",
        "MiniGrid-Fetch-5x5-N2-v0",
        "MiniGrid-GoToDoor-6x6-v0",
        "MiniGrid-SimpleCrossingS9N2-v0",
        "MiniGrid-KeyCorridorS3R2-v0",
        "MiniGrid-PutNear-6x6-N2-v0",
        "MiniGrid-MemoryS13Random-v0",
        "MiniGrid-Unlock-v0",
    ],
)
def test_grids_are_as_likely_as_minigrids(env_id: str) -> None:
    ours: dict[str, Counter[Hashable]] = {}
    theirs: dict[str, Counter[Hashable]] = {}
    env = reference(env_id)
    for seed, state in enumerate(grids(env_id, NUM_GRIDS)):
        env.reset(seed=seed)
        for name, value in features(env):
            theirs.setdefault(name, Counter())[value] += 1
        copy_grid(state, env)
        for name, value in features(env):
            ours.setdefault(name, Counter())[value] += 1
    assert ours.keys() == theirs.keys()
    for name, counts in ours.items():
        assert_alike(counts, theirs[name], name)


def reaches_target(state: np.void) -> bool:
    """Tells if the agent gets to the goal or to the object to pick up.

    What can be picked up is out of the way; a locked door opens once a key of its colour, maybe
    in a box, was reached.
    """
    width, height = int(state["width"]), int(state["height"])
    cells = state["cells"][: width * height]
    keys: set[int] = set()
    seen: set[int] = set()
    before = (-1, -1)
    while before != (len(seen), len(keys)):
        before = (len(seen), len(keys))
        seen, todo = set(), [int(state["y"]) * width + int(state["x"])]
        while todo:
            at = todo.pop()
            if not 0 <= at < len(cells):
                continue  # beyond a door in the outer wall
            cell = int(cells[at])
            kind, color, held = cell & 15, cell >> 8 & 7, cell >> 20 & 7
            locked = kind == DOOR and cell >> 16 & 3 == 2 and color not in keys
            if at in seen or kind in (WALL, LAVA) or locked:
                continue
            seen.add(at)
            if kind == KEY or held:
                keys.add(color if kind == KEY else held - 1)
            todo += [at - 1, at + 1, at - width, at + width]
    targets = [at for at, cell in enumerate(cells) if cell & 15 == GOAL or cell & MARK]
    return all(at in seen for at in targets)


@by_kind(
    [
        one
        for one in rollouts.env_ids()
        # the first version of mazes may put a ball upon a key, as minigrid's does
        if one.startswith("MiniGrid-") and not ("Maze" in one and one.endswith("lhb-v0"))
        if one not in ("MiniGrid-ObstructedMaze-Full-v0", "MiniGrid-ObstructedMaze-1Q-v0")
        if one != "MiniGrid-ObstructedMaze-2Q-v0" and "DistShift" not in one
    ],
)
def test_every_grid_can_be_solved(env_id: str) -> None:
    assert all(reaches_target(state) for state in grids(env_id, 100))
