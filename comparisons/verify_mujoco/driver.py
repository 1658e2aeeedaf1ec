# SPDX-License-Identifier: Apache-2.0
"""States of many simulations of a model, advanced by MuJoCo's steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

KINDS = ("random", "resting", "contact", "extreme")
STATE = ("qpos", "qvel", "act", "qacc_warmstart")
_STARTS_TURNED = 0.3  # share of the starts with joints anywhere in their range
# probability that an episode ends at an env-step
_ENDS = {"random": 1 / 300, "resting": 1 / 2000, "contact": 1 / 200, "extreme": 1 / 3}
_BANG_STEPS = 8  # env-steps that a bang-bang action is held for
_HUGE = 1e5  # velocities beyond it are of no interest
_SLIDE, _HINGE = 2, 3  # mjtJoint
_FREE, _BALL = 0, 1


@dataclass(slots=True)
class ModelStates:
    """States (N, ...) of a model, and the controls of their next step."""

    qpos: Array
    qvel: Array
    act: Array
    qacc_warmstart: Array
    ctrl: Array

    def arrays(self) -> tuple[Array, Array, Array, Array, Array]:
        """The arrays in the order of `_native.LanesComparer`."""
        return self.qpos, self.qvel, self.act, self.qacc_warmstart, self.ctrl

    def rows(self, chosen: Any) -> ModelStates:
        """Copies some rows."""
        return ModelStates(*(array[chosen].copy() for array in self.arrays()))

    def put(self, chosen: Any, others: ModelStates) -> None:
        """Replaces some rows by others."""
        for array, other in zip(self.arrays(), others.arrays(), strict=True):
            array[chosen] = other


def starts_of_model(model: Any, count: int, rng: np.random.Generator) -> ModelStates:
    """Starts near the model's own, for a model without an environment."""
    qpos = np.tile(model.qpos0, (count, 1)) + 0.1 * rng.normal(size=(count, model.nq))
    return ModelStates(
        qpos,
        0.1 * rng.normal(size=(count, model.nv)),
        np.zeros((count, model.na)),
        np.zeros((count, model.nv)),
        np.zeros((count, model.nu)),
    )


class Driver:
    """States that are stepped side by side, of all kinds in turn.

    Neighbouring lanes are in different situations: rows 0, K, 2K... of N are of the first
    kind, rows 1, K+1... of the second, and so on.
    """

    def __init__(
        self,
        model: Any,
        starts: ModelStates,
        kinds: Sequence[str],
        num_envs: int,
        frame_skip: int,
        seed: int,
    ) -> None:
        """Begins an episode in each row; `kinds` are of KINDS."""
        self.model, self._starts, self._frame_skip = model, starts, frame_skip
        self._rng = np.random.default_rng(seed)
        self.kinds = [kinds[row % len(kinds)] for row in range(num_envs)]
        of_kind = np.array(self.kinds)
        self._rows = {kind: np.flatnonzero(of_kind == kind) for kind in kinds}
        self._ends = np.array([_ends_of(kind) for kind in self.kinds])
        limited = model.actuator_ctrllimited.astype(bool)
        self._low = np.where(limited, model.actuator_ctrlrange[:, 0], -1.0)
        self._high = np.where(limited, model.actuator_ctrlrange[:, 1], 1.0)
        self._substep = 0
        self._env_step = 0
        self.states = self._drawn_starts(np.arange(num_envs))
        self._act()

    @property
    def at_env_step(self) -> bool:
        """Tells if the next substep is the first of an env-step."""
        return self._substep % self._frame_skip == 0

    def advance(self, found: Mapping[str, Any]) -> None:
        """Advances to MuJoCo's next states, which `LanesComparer.step` found."""
        for name in STATE:
            getattr(self.states, name)[:] = found[name][1]
        # rows that MuJoCo has reset, or soon would reset
        huge = found["warned"] | ~(np.abs(self.states.qvel).max(1, initial=0) < _HUGE)
        huge |= ~(np.abs(self.states.qpos).max(1, initial=0) < _HUGE)
        self._substep += 1
        if self.at_env_step:
            self._env_step += 1
            huge |= self._rng.random(len(huge)) < self._ends
            self._act()
        if huge.any():
            ended = np.flatnonzero(huge)
            self.states.put(ended, self._drawn_starts(ended))

    def _act(self) -> None:
        ctrl, rng = self.states.ctrl, self._rng
        for kind, rows in self._rows.items():
            shape = (len(rows), ctrl.shape[1])
            if kind == "resting":
                ctrl[rows] = 0
            elif kind == "contact":
                if self._env_step % _BANG_STEPS == 0:
                    ctrl[rows] = np.where(rng.random(shape) < 0.5, self._low, self._high)
            elif kind != "policy":
                # some controls are out of range, which MuJoCo clamps
                wide = 3 if kind == "extreme" else 1
                middle, half = (self._low + self._high) / 2, (self._high - self._low) / 2
                ctrl[rows] = middle + wide * half * rng.uniform(-1, 1, shape)

    def _drawn_starts(self, rows: npt.NDArray[np.intp]) -> ModelStates:
        rng = self._rng
        states = self._starts.rows(rng.integers(len(self._starts.qpos), size=len(rows)))
        if hasattr(self, "states"):
            states.ctrl[:] = self.states.ctrl[rows]
        turned = rng.random(len(rows)) < _STARTS_TURNED
        self._turn(states.qpos, np.flatnonzero(turned))
        kinds = np.array([self.kinds[row] for row in rows])
        self._lower(states.qpos, np.flatnonzero(kinds == "contact"))
        self._exaggerate(states, np.flatnonzero(kinds == "extreme"))
        return states

    def _turn(self, qpos: Array, rows: npt.NDArray[np.intp]) -> None:
        """Puts joints anywhere in their range."""
        model, rng = self.model, self._rng
        for joint in range(model.njnt):
            at, kind = model.jnt_qposadr[joint], model.jnt_type[joint]
            if kind in (_FREE, _BALL):
                first = at + 3 if kind == _FREE else at
                qpos[rows, first : first + 4] = rng.normal(size=(len(rows), 4))
                _normalise(qpos, rows, first)
            elif model.jnt_limited[joint]:
                low, high = model.jnt_range[joint]
                qpos[rows, at] = rng.uniform(low, high, len(rows))
            elif kind == _HINGE:
                qpos[rows, at] = rng.uniform(-np.pi, np.pi, size=len(rows))

    def _lower(self, qpos: Array, rows: npt.NDArray[np.intp]) -> None:
        """Lowers bodies into the ground."""
        model = self.model
        down = self._rng.uniform(0, 0.3, size=len(rows))
        for joint in range(model.njnt):
            at, kind = model.jnt_qposadr[joint], model.jnt_type[joint]
            upright = kind == _SLIDE and model.jnt_axis[joint, 2] > 0.9
            if kind == _FREE:
                qpos[rows, at + 2] -= down
            elif upright and not model.jnt_limited[joint]:
                qpos[rows, at] -= down

    def _exaggerate(self, states: ModelStates, rows: npt.NDArray[np.intp]) -> None:
        """Makes positions out of range, and velocities far above the usual ones."""
        model, rng = self.model, self._rng
        scale = 10 ** rng.uniform(-1, 0.7, size=(len(rows), 1))
        states.qpos[rows] += scale * rng.normal(size=(len(rows), model.nq))
        for joint in range(model.njnt):
            at, kind = model.jnt_qposadr[joint], model.jnt_type[joint]
            if kind in (_FREE, _BALL):
                _normalise(states.qpos, rows, at + 3 if kind == _FREE else at)
        speed = 10 ** rng.uniform(-1, 2, size=(len(rows), 1))
        states.qvel[rows] = speed * rng.normal(size=(len(rows), model.nv))
        states.act[rows] = rng.normal(size=(len(rows), model.na))
        warm = rng.random((len(rows), 1)) < 0.5
        states.qacc_warmstart[rows] = warm * 100 * rng.normal(size=(len(rows), model.nv))


def _ends_of(kind: str) -> float:
    return _ENDS.get(kind, 0.0)


def _normalise(qpos: Array, rows: npt.NDArray[np.intp], first: int) -> None:
    four = qpos[rows, first : first + 4]
    qpos[rows, first : first + 4] = four / np.linalg.norm(four, axis=1, keepdims=True)
