# SPDX-License-Identifier: Apache-2.0
"""Tasks of our BabyAI as minigrid's instructions, which then look at steps beside ours."""

from __future__ import annotations

from typing import Any

import numpy as np
from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT
from minigrid.envs.babyai.core import verifier
from minigrid_oracle import EMPTY, STATE, copy_grid, make_object

# native/include/rollouts/envs/babyai/task.h
DESCRIPTION = np.dtype([("type", "<i4"), ("color", "<i4"), ("where", "<i4")])
PART = np.dtype(
    [("kind", "<i4"), ("strict", "<i4"), ("what", DESCRIPTION), ("beside", DESCRIPTION)]
)
TASK = np.dtype(
    [
        ("parts", PART, 4),
        ("order", "<i4"),
        ("both", "<i4", 2),
        ("done", "<i4", 4),
        ("carried", "<i4", 4),
        ("first_done", "<i4"),
        ("places", "u1", 628),
    ]
)
BABY_STATE = np.dtype([("grid", STATE), ("task", TASK)])
_WHERE = (None, "left", "right", "front", "behind")


def _described(meant: np.void) -> verifier.ObjDesc:
    kind, color = int(meant["type"]), int(meant["color"])
    return verifier.ObjDesc(
        IDX_TO_OBJECT[kind] if kind else None,
        IDX_TO_COLOR[color] if color >= 0 else None,
        _WHERE[meant["where"]],
    )


def _part(part: np.void) -> verifier.ActionInstr:
    what, strict = _described(part["what"]), bool(part["strict"])
    if part["kind"] == 0:
        return verifier.GoToInstr(what)
    if part["kind"] == 1:
        return verifier.PickupInstr(what, strict)
    if part["kind"] == 2:
        return verifier.OpenInstr(what, strict)
    return verifier.PutNextInstr(what, _described(part["beside"]), strict)


def instructions(task: np.void) -> Any:
    """minigrid's object of a whole task."""
    sides = []
    for side in range(2 if task["order"] else 1):
        parts = [_part(one) for one in task["parts"][2 * side : 2 * side + 2]]
        sides.append(verifier.AndInstr(*parts) if task["both"][side] else parts[0])
    if not task["order"]:
        return sides[0]
    return (verifier.BeforeInstr if task["order"] == 1 else verifier.AfterInstr)(*sides)


def copy_task(state: np.void, env: Any) -> None:
    """Gives minigrid's environment our grid and instructions; checks how they are said."""
    grid = state["grid"]
    env.max_steps = int(grid["max_steps"])
    copy_grid(grid, env)
    env.instrs = instructions(state["task"])
    # what is carried from the start was on the grid when the instructions were given
    carried, env.carrying = make_object(int(grid["carrying"])), None
    free = int(np.flatnonzero(grid["cells"][: env.width * env.height] == EMPTY)[0])
    env.grid.grid[free] = carried
    assert env.instrs.surface(env) == env.mission
    env.instrs.reset_verifier(env)
    env.grid.grid[free] = None
    if carried is not None:
        # a carried object is next to nothing, whatever lay near its first place
        carried.cur_pos = np.array((-1, -1))
    env.carrying = carried
    limit = env.num_navs_needed(env.instrs) * env.room_size**2 * env.num_rows * env.num_cols
    assert env.max_steps == limit or env.fixed_max_steps
