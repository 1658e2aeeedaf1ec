# SPDX-License-Identifier: Apache-2.0
"""Steps per second of MuJoCo's tasks on a device, next to mujoco_warp alone on the same worlds."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

import rollouts
from rollouts.checks import whole_number
from rollouts.envs.kernel.device_arguments import EMULATION
from rollouts.envs.physics.physics_engine import PhysicsEngine
from rollouts.envs.physics.supported import PHYSICS_IDS
from rollouts.errors import SpecError

if TYPE_CHECKING:
    from rollouts.envs.physics.bare import BarePhysics

OURS, BARE = "rollouts", "mujoco_warp"
_STEPS = 20  # steps of each between two readings of the clock, and number of drawn actions
_WARM_UP = 5  # times `_STEPS`, after which episodes are at different ages


@dataclass(frozen=True, slots=True)
class PhysicsRow:
    """The result of our engine, or of mujoco_warp alone.

    Attributes:
      id, num_envs, device: The environments.
      way: "rollouts": with observation, reward, end and reset; "mujoco_warp": only the physics.
      frame_skip: Physics steps of an env-step.
      nconmax, njmax: Memory for contacts and rows of constraints of a world.
      env_steps_per_s: Speed in each repeat; on a GPU by the GPU's clock.
    """

    id: str
    num_envs: int
    device: str
    way: str
    frame_skip: int
    nconmax: int
    njmax: int
    env_steps_per_s: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median of the repeats."""
        return statistics.median(self.env_steps_per_s)

    @property
    def physics_steps_per_s(self) -> float:
        """Median of the repeats."""
        return self.median * self.frame_skip


def measure_physics(
    id: str,
    num_envs: int,
    device: str,
    *,
    env_options: Mapping[str, Any] | None = None,
    duration_s: float = 1.0,
    repeats: int = 5,
) -> list[PhysicsRow]:
    """Steps an environment with random actions, and mujoco_warp alone with the same controls.

    Both step in turn, and each step of mujoco_warp begins with the states of our worlds. Without
    that, its worlds would never be reset, and fallen bodies have other contacts than standing ones.
    Copying the states is not timed.

    Args:
      id: An id that mujoco_warp steps.
      num_envs: Environments N, and as many worlds.
      device: "cuda", or "cpu-emulation", whose speed does not predict a GPU's.
      env_options: Options of the environments; nconmax and njmax apply to both.
      duration_s: Approximate duration of one repeat of each.
      repeats: Repeats of each.

    Returns:
      Our result, then that of mujoco_warp.

    Raises:
      SpecError: mujoco_warp does not step this id. SpecError, EngineError: As `make_vec`.
      EnvError: An environment failed, for example for lack of memory.
    """
    whole_number("repeats", repeats, 1, 10**6)
    if not duration_s > 0:
        raise SpecError(f"duration_s must be above 0, got {duration_s}")
    if id not in PHYSICS_IDS:
        raise SpecError(
            f"mujoco_warp steps no {id} here, expected one of {', '.join(sorted(PHYSICS_IDS))}"
        )
    engine = PhysicsEngine(
        id, num_envs, device=device, seed=0, autoreset_mode="same_step", env_options=env_options
    )
    env: rollouts.VectorEnv[Tensor] = rollouts.VectorEnv(engine)
    with env:
        env.reset()
        bare = engine.bare_physics()
        pairs = _Pairs(env, bare)
        for _ in range(_WARM_UP):
            pairs.take()
        found: dict[str, list[float]] = {OURS: [], BARE: []}
        for _ in range(repeats):
            seconds, steps = {OURS: 0.0, BARE: 0.0}, 0
            while sum(seconds.values()) < 2 * duration_s:
                for name, each in pairs.take().items():
                    seconds[name] += each
                steps += num_envs * _STEPS
            for name, each in seconds.items():
                found[name].append(steps / each)
            # a failure would make one of them faster
            env.synchronize()
        return [
            PhysicsRow(
                *(id, num_envs, device, name),
                *(bare.frame_skip, bare.nconmax, bare.njmax),
                tuple(speeds),
            )
            for name, speeds in found.items()
        ]


class _Pairs:
    """Steps both from the same states with the same actions."""

    def __init__(self, env: rollouts.VectorEnv[Tensor], bare: BarePhysics) -> None:
        self._env, self._bare, self._actions = env, bare, _draw(env)
        self._is_gpu = env.device.type == "cuda"

    def take(self) -> dict[str, float]:
        """Seconds of `_STEPS` steps of each."""
        marks = []
        for actions in self._actions:
            self._bare.take_over()
            times = [self._mark()]
            self._bare.step(actions)
            times.append(self._mark())
            self._env.step(actions)
            marks.append([*times, self._mark()])
        if self._is_gpu:
            torch.cuda.synchronize(self._env.device)
        return {
            BARE: sum(_seconds(begun, between) for begun, between, _ in marks),
            OURS: sum(_seconds(between, ended) for _, between, ended in marks),
        }

    def _mark(self) -> Any:
        """The time; on a GPU an event that the stream fills in later, so that no call waits."""
        if not self._is_gpu:
            return time.perf_counter()
        event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._env.device))
        return event


def _seconds(begun: Any, ended: Any) -> float:
    if isinstance(begun, float):
        return float(ended - begun)
    return float(begun.elapsed_time(ended)) / 1e3


def _draw(env: rollouts.VectorEnv[Tensor]) -> Tensor:
    """(_STEPS, N, size) actions on the device."""
    space = env.action_space
    space.seed(0)
    drawn: Any = [space.sample() for _ in range(_STEPS)]
    return torch.from_numpy(np.stack(drawn).astype(np.float32)).to(env.device)


def as_table(rows: list[PhysicsRow]) -> str:
    """Aligned text, two rows for each measurement, with our share of mujoco_warp's speed."""
    lines = [
        f"{'':<14}{'physics steps/s':>17}{'env-steps/s':>13}{'range':>24}{'of mujoco_warp':>16}"
    ]
    for ours, bare in zip(rows[::2], rows[1::2], strict=True):
        lines.append(
            f"{ours.id}, {ours.num_envs} worlds, {ours.device}, {ours.frame_skip} physics "
            f"steps each, nconmax {ours.nconmax}, njmax {ours.njmax}"
        )
        for row in (ours, bare):
            spread = f"{min(row.env_steps_per_s):.3g} to {max(row.env_steps_per_s):.3g}"
            share = f"{row.median / bare.median:.3f}x"
            lines.append(
                f"  {row.way:<12}{row.physics_steps_per_s:>17.3g}{row.median:>13.3g}{spread:>24}"
                f"{share:>16}"
            )
    if any(row.device == EMULATION for row in rows):
        lines.append("cpu-emulation is Warp's CPU device: its speed says nothing of a GPU's")
    return "\n".join(lines)


def as_json(rows: list[PhysicsRow]) -> list[dict[str, Any]]:
    """Rows as plain values."""
    bares = [bare for bare in rows[1::2] for _ in range(2)]
    return [
        asdict(row)
        | {
            "median": row.median,
            "physics_steps_per_s": row.physics_steps_per_s,
            "of_mujoco_warp": row.median / bare.median,
        }
        for row, bare in zip(rows, bares, strict=True)
    ]
