# SPDX-License-Identifier: Apache-2.0
"""MuJoCo's batched stepper, with the rest of a pool's work done as its documentation suggests."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from comparisons.stepping.mujoco import check_id, model_of, starts, substeps
from rollouts import mujoco
from rollouts.bench.measurement import Settings
from rollouts.bench.own_pools import OpenEnv, notes_without_recv
from rollouts.errors import EngineError
from rollouts.specs import EnvSpec, OptionValue

Array = npt.NDArray[Any]

# number of states with which episodes begin, used in turn
_BANK = 64
_NOTES = (
    "Observations are joined from arrays that it binds (qpos, qvel and what the options name; no "
    "contact forces); episodes end by the task's ranges and limit, and begin from states that were "
    "drawn before. No rewards, infos, final observations or seeds.",
    "Its threads include the caller's.",
)
# field that our environments observe, but that the batch's step does not compute
_NOT_COMPUTED = "cfrc_ext"


class MujocoBatch:
    """`mujoco.batch.Batch`: observations and ends in NumPy, resets by ids in the next step."""

    name = "mujoco-batch"

    def version(self) -> str:
        mujoco.load_engine()
        version = importlib.metadata.version("mujoco")
        try:
            importlib.import_module("mujoco.batch")
        except ImportError as error:
            raise EngineError(
                f"peer 'mujoco-batch' needs mujoco.batch, which mujoco {version} lacks: "
                'pip install "mujoco>=4", or leave this peer out'
            ) from error
        return version

    def make(self, settings: Settings, spec: EnvSpec) -> OpenEnv:
        version = self.version()
        check_id(self.name, spec)
        driver = _Driver(settings, spec)
        return OpenEnv(
            self.name,
            version,
            driver,
            num_envs=settings.num_envs,
            batch_size=settings.num_envs,
            num_threads=settings.num_threads,
            start=driver.start,
            close=driver.close,
            options={"nstep": driver.substeps, "observed": driver.fields},
            notes=(*_NOTES, *notes_without_recv(settings)),
        )


class _Driver:
    """Steps all simulations in one call; those whose episode ended begin another one instead."""

    def __init__(self, settings: Settings, spec: EnvSpec) -> None:
        from mujoco import batch

        model = model_of(spec)
        self.substeps = substeps(spec, model)
        self.fields = _observed(spec.options, has_sensors=model.nsensordata > 0)
        # 0 would be all CPUs
        self._batch = batch.Batch(model, settings.num_envs, nthread=max(1, settings.num_threads))
        self._controls = self._batch.bind("ctrl")
        bound = [self._batch.bind(name) for name in self.fields]
        self._bound = [one.reshape(settings.num_envs, -1) for one in bound]
        self._limit = spec.max_episode_steps or np.inf
        self._ranges = _healthy_ranges(self._batch, spec)
        self._bank = starts(settings, at_least=_BANK)
        self._next = 0  # row of the bank that the next episode begins with
        self._steps = np.zeros(settings.num_envs, np.int64)  # steps of each episode so far
        self.ended = np.zeros(settings.num_envs, bool)

    def start(self) -> None:
        """Begins in the states in which our environments begin."""
        self._begin(np.arange(len(self.ended)))

    def step(self, actions: Array) -> Array:
        """Steps once with actions (N, nu); returns observations (N, D), a new array."""
        self._controls[:] = actions
        ended = np.flatnonzero(self.ended)
        if len(ended):
            running = np.flatnonzero(~self.ended)
            self._begin(ended)
            if len(running):
                self._batch.step(running, nstep=self.substeps)
                self._steps[running] += 1
        else:
            self._batch.step(nstep=self.substeps)
            self._steps += 1
        self.ended = self._steps >= self._limit
        for numbers, low, high in self._ranges:
            self.ended |= ~((low < numbers) & (numbers < high)).all(axis=1)
        return np.concatenate(self._bound, axis=1)

    def close(self) -> None:
        del self._controls, self._bound, self._ranges, self._batch

    def _begin(self, rows: Array) -> None:
        """Puts the bank's next states into rows."""
        picked = (self._next + np.arange(len(rows))) % len(self._bank)
        self._next = (self._next + len(rows)) % len(self._bank)
        self._batch.state[rows] = self._bank[picked]
        self._batch.forward(rows)
        self._steps[rows] = 0


def _observed(options: Mapping[str, OptionValue], *, has_sensors: bool) -> list[str]:
    """Fields of mjData that the options name, or that a task of the DeepMind suite observes."""
    named = [
        name.removeprefix("include_").removesuffix("_in_observation")
        for name, value in options.items()
        if name.startswith("include_") and value
    ]
    named = [name for name in named if name != _NOT_COMPUTED]
    return ["qpos", "qvel", *named, *(["sensordata"] if has_sensors else [])]


def _healthy_ranges(batch: Any, spec: EnvSpec) -> list[tuple[Array, float, float]]:
    """Values (N, ...) of the simulations, each with the open interval where an episode goes on."""
    qpos, qvel = batch.bind("qpos"), batch.bind("qvel")
    if spec.id.startswith("InvertedPendulum"):
        return [(qpos[:, 1:2], -0.2, 0.2)]
    if spec.id.startswith("InvertedDoublePendulum"):
        return [(batch.bind("site_xpos")[:, 0, 2:], 1.0, np.inf)]
    options = spec.options
    if not options.get("terminate_when_unhealthy"):
        return []
    # the height is the third number of a free joint, and the second of a planar walker
    height = 2 if batch.model.nq > batch.model.nv else 1
    watched = {
        "healthy_z": [qpos[:, height : height + 1]],
        "healthy_angle": [qpos[:, 2:3]],
        "healthy_state": [qpos[:, 2:], qvel],
    }
    return [
        (numbers, float(options[f"{name}_min"]), float(options[f"{name}_max"]))
        for name, arrays in watched.items()
        if f"{name}_min" in options
        for numbers in arrays
    ]
