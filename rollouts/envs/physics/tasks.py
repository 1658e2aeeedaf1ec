# SPDX-License-Identifier: Apache-2.0
"""What each of Gymnasium's ids is made of: bodies, observation, start, kernel and options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rollouts.envs.physics.kernels import humanoids, observing, runners, small_tasks, starts

Options = Mapping[str, Any]
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
      low, high: Of CLIP: a number, or the option that says it for each world.
      other: Of DIFFERENCE: the first element of those to be taken away.
    """

    source: str
    first: int = 0
    count: int | None = _ALL
    kind: int = observing.COPY
    low: float | str = 0.0
    high: float | str = 0.0
    other: int = 0


# of the options and the numbers of `Task.bodies`
Observation = Callable[[Options, tuple[int, ...]], list[Part]]


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
      options: Struct of the options that the kernel reads; worlds may differ in them.
      observation: Its parts, in order.
      start: How an episode's start is drawn, of `kernels/starts.py` or `suite_starts.py`.
      bodies: Names of the bodies that the kernel looks at; "option:NAME": what that option says.
      contact_weight: Option that weighs contact forces; "" where the task reads none.
      after_start: What is computed of a start before it is observed: "nothing" where positions and
        velocities are all, "kinematics" for places of bodies, "forward" for the rest, "unactuated"
        for that without actuators.
      infos: Parts that come as infos, where the kernel writes none.
      keyframe: That episodes begin with; -1: the model's own positions, at rest.
      frame_skip: Substeps of a step where the option is 0.
      suite: Of tasks of the DeepMind Control Suite, where everything is up to date after a step.
      reads_contact_forces: Whether parts are contact forces, whatever the weight.
    """

    kernel: Any
    options: Any
    observation: Observation
    start: int = starts.UNIFORM
    bodies: tuple[str, ...] = ()
    contact_weight: str = ""
    after_start: str = "nothing"
    infos: tuple[Part, ...] = ()
    keyframe: int = -1
    frame_skip: int = 1
    suite: SuiteTask | None = None
    reads_contact_forces: bool = False

    def needs_contact_forces(self, options: Options) -> bool:
        """Whether somebody looks at them."""
        if not self.contact_weight:
            return self.reads_contact_forces
        weight = options[self.contact_weight]
        weights = weight if isinstance(weight, list) else [weight]
        return bool(options["include_cfrc_ext_in_observation"]) or any(one != 0 for one in weights)


def _skipped(options: Options, count: int) -> int:
    return count if options["exclude_current_positions_from_observation"] else 0


def _runner(options: Options, bodies: tuple[int, ...]) -> list[Part]:
    return [Part("qpos", _skipped(options, 1)), Part("qvel")]


def _swimmer(options: Options, bodies: tuple[int, ...]) -> list[Part]:
    return [Part("qpos", _skipped(options, 2)), Part("qvel")]


def _upright(options: Options, bodies: tuple[int, ...]) -> list[Part]:
    return [
        Part("qpos", _skipped(options, 1)),
        Part("qvel", kind=observing.CLIP, low=-10.0, high=10.0),
    ]


def _ant(options: Options, bodies: tuple[int, ...]) -> list[Part]:
    parts = [Part("qpos", _skipped(options, 2)), Part("qvel")]
    if options["include_cfrc_ext_in_observation"]:
        low, high = "contact_force_min", "contact_force_max"
        parts.append(Part("cfrc_ext", 6, kind=observing.CLIP, low=low, high=high))
    return parts


def _humanoid(options: Options, bodies: tuple[int, ...]) -> list[Part]:
    # the world, the first body, is left out, and so are the six velocities of the body as a whole
    firsts = {"cinert": 10, "cvel": 6, "qfrc_actuator": 6, "cfrc_ext": 6}
    return [
        Part("qpos", _skipped(options, 2)),
        Part("qvel"),
        *(
            Part(name, first)
            for name, first in firsts.items()
            if options[f"include_{name}_in_observation"]
        ),
    ]


def _pendulum(options: Options, bodies: tuple[int, ...]) -> list[Part]:
    return [Part("qpos"), Part("qvel")]


def _double_pendulum(options: Options, bodies: tuple[int, ...]) -> list[Part]:
    return [
        Part("qpos", 0, 1),
        Part("qpos", 1, kind=observing.SINE),
        Part("qpos", 1, kind=observing.COSINE),
        Part("qvel", kind=observing.CLIP, low=-10.0, high=10.0),
        Part("qfrc_constraint", 0, 1, kind=observing.CLIP, low=-10.0, high=10.0),
    ]


def _reacher(options: Options, bodies: tuple[int, ...]) -> list[Part]:
    fingertip, target = bodies
    return [
        Part("qpos", 0, 2, kind=observing.COSINE),
        Part("qpos", 0, 2, kind=observing.SINE),
        Part("qpos", 2),
        Part("qvel", 0, 2),
        Part("xpos", 3 * fingertip, 2, kind=observing.DIFFERENCE, other=3 * target),
    ]


def _pusher(options: Options, bodies: tuple[int, ...]) -> list[Part]:
    return [
        Part("qpos", 0, 7),
        Part("qvel", 0, 7),
        *(Part("xpos", 3 * body, 3) for body in bodies),
    ]


TASKS = {
    "Ant-v5": Task(
        runners.ant,
        runners.AntOptions,
        _ant,
        start=starts.NORMAL_VELOCITIES,
        bodies=("option:main_body",),
        contact_weight="contact_cost_weight",
        after_start="kinematics",
    ),
    "HalfCheetah-v5": Task(
        runners.half_cheetah,
        runners.RunnerOptions,
        _runner,
        start=starts.NORMAL_VELOCITIES,
    ),
    "Hopper-v5": Task(runners.upright_runner, runners.UprightOptions, _upright),
    "Humanoid-v5": Task(
        humanoids.humanoid,
        humanoids.HumanoidOptions,
        _humanoid,
        contact_weight="contact_cost_weight",
        after_start="forward",
    ),
    "HumanoidStandup-v5": Task(
        humanoids.humanoid_standup,
        humanoids.StandupOptions,
        _humanoid,
        contact_weight="impact_cost_weight",
        after_start="forward",
    ),
    "InvertedDoublePendulum-v5": Task(
        small_tasks.inverted_double_pendulum,
        small_tasks.DoublePendulumOptions,
        _double_pendulum,
        start=starts.NORMAL_VELOCITIES,
        after_start="forward",
    ),
    "InvertedPendulum-v5": Task(small_tasks.inverted_pendulum, small_tasks.NoOptions, _pendulum),
    "Pusher-v5": Task(
        small_tasks.pusher,
        small_tasks.PusherOptions,
        _pusher,
        start=starts.PUSHER,
        bodies=("tips_arm", "object", "goal"),
        after_start="kinematics",
    ),
    "Reacher-v5": Task(
        small_tasks.reacher,
        small_tasks.ReacherOptions,
        _reacher,
        start=starts.REACHER,
        bodies=("fingertip", "target"),
        after_start="kinematics",
    ),
    "Swimmer-v5": Task(runners.swimmer, runners.RunnerOptions, _swimmer),
    "Walker2d-v5": Task(runners.upright_runner, runners.UprightOptions, _upright),
}
