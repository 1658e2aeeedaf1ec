# SPDX-License-Identifier: Apache-2.0
"""Parts of a task of Warp's kernels: an observation, a start, a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rollouts.envs.physics.kernels import observing, starts

# arrays that a step of MuJoCo's leaves out, and a reset puts to 0
CONTACT_FORCES = ("cacc", "cfrc_int", "cfrc_ext")
_ALL = None  # elements up to the last


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of an observation.

    Attributes:
      source: Array of mujoco_warp's data, as (N, elements), or "shown".
      first: Its first element; the last is always the array's own where `count` is None.
      count: How many.
      kind: What becomes of them, of `kernels/observing.py`.
      other: Of DIFFERENCE: the first element of those to be taken away.
    """

    source: str
    first: int = 0
    count: int | None = _ALL
    kind: int = observing.COPY
    other: int = 0


@dataclass(frozen=True, slots=True)
class SuiteTask:
    """What a task of the DeepMind Control Suite has beside a `Task`'s.

    Attributes:
      goal, places, sizes: `goal`, `first` to `others`, and `sizes` of a `Simulation`.
      target: Geom that each world puts somewhere else; -1: none.
      num_shown: Numbers that the kernel shows, the source "shown" of parts.
      own_fields: Of the model, which each episode draws.
      drawn, radius: `first`, `second`, `others`, and `radius` of a `SuiteStart`.
      begin, draw, finish: Kernels like `draw_suite` of `kernels/suite_starts.py`: before it, in its
        place, and after it; None: nothing, itself, nothing.
      place: Such a kernel that sees where positions that were drawn put bodies; None: none.
      moves_geoms: Whether starts move geoms that no joint does, beside `target`.
      is_apart: Whether positions are drawn again while anything touches.
      num_resting: Substeps without controls before an episode begins.
      memory: As of `Worlds`, where mujoco_warp's estimate is too little.
    """

    goal: float
    places: tuple[int, ...]
    target: int
    num_shown: int = 0
    own_fields: tuple[str, ...] = ()
    drawn: tuple[int, ...] = ()
    radius: float = 0.0
    is_apart: bool = False
    num_resting: int = 0
    sizes: tuple[float, ...] = ()
    begin: Any = None
    draw: Any = None
    finish: Any = None
    place: Any = None
    moves_geoms: bool = False
    memory: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Task:
    """What an id does with a simulation.

    Attributes:
      kernel: Reward, end and infos of a step, or an episode's first infos.
      observation: Its parts, in order.
      start: How an episode's start is drawn, of `kernels/starts.py` or `suite_starts.py`.
      after_start: As of `PoolTask`.
      infos: Parts that come as infos, where the kernel writes none.
      keyframe: That episodes begin with; -1: the model's own positions, at rest.
      frame_skip: Substeps of a step where the option is 0.
      suite: Of tasks of the DeepMind Control Suite, where everything is up to date after a step.
      reads_contact_forces: Whether parts are contact forces.
    """

    kernel: Any
    observation: tuple[Part, ...]
    start: int = starts.UNIFORM
    after_start: str = "nothing"
    infos: tuple[Part, ...] = ()
    keyframe: int = -1
    frame_skip: int = 1
    suite: SuiteTask | None = None
    reads_contact_forces: bool = False
