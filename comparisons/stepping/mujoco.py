# SPDX-License-Identifier: Apache-2.0
"""MuJoCo's own rollouts: the engine alone with the same controls."""

from __future__ import annotations

import importlib.metadata
from typing import Any

import numpy as np
import numpy.typing as npt

from rollouts import mujoco
from rollouts.bench.measurement import Settings
from rollouts.bench.own_pools import OpenEnv, notes_without_recv
from rollouts.envs.make import make_vec
from rollouts.errors import SpecError
from rollouts.families import dm_control
from rollouts.families.table import family_of
from rollouts.specs import EnvSpec

Array = npt.NDArray[Any]

# calls whose controls are rolled out together: the warm start only lasts within a rollout
_WINDOW = 16


class MujocoRollout:
    """`mujoco.rollout`: no resets, no observations, no rewards."""

    name = "mujoco"

    def version(self) -> str:
        mujoco.load_engine()
        return importlib.metadata.version("mujoco")

    def make(self, settings: Settings, spec: EnvSpec) -> OpenEnv:
        version = self.version()
        check_id(self.name, spec)
        driver = _Driver(settings, spec)
        note = f"Open loop: {_WINDOW} calls' controls at once, no resets, nothing observed."
        return OpenEnv(
            self.name,
            version,
            driver,
            num_envs=settings.num_envs,
            batch_size=settings.num_envs,
            num_threads=settings.num_threads,
            start=driver.start,
            close=driver.close,
            options={"nstep": _WINDOW * driver.substeps},
            notes=(note, *notes_without_recv(settings)),
        )


def check_id(peer: str, spec: EnvSpec) -> None:
    """Raises SpecError where an id is not of one of MuJoCo's families."""
    if family_of(spec.header).drawer != "mujoco":
        raise SpecError(
            f"peer {peer!r} has MuJoCo's environments only, got id {spec.id!r}: "
            "measure an id such as 'Ant-v5', or leave this peer out"
        )


def model_of(spec: EnvSpec) -> Any:
    """The mujoco.MjModel of an id's environments, without the changes that episodes make."""
    import mujoco as engine

    family = family_of(spec.header)
    assert family.model_file is not None
    path = family.model_file({**family.load(spec.id, spec.header), **spec.options})
    if path.endswith(".mjb"):
        return engine.MjModel.from_binary_path(path)
    return engine.MjModel.from_xml_path(path)


def substeps(spec: EnvSpec, model: Any) -> int:
    """The number of calls of mj_step in a step of an id's environments."""
    # a frame_skip of 0 stands for the number of the DeepMind suite's task
    interval = dm_control.control_timestep(spec.header) if not spec.options["frame_skip"] else None
    if interval is None:
        return max(1, int(spec.options["frame_skip"]))
    return round(interval / float(model.opt.timestep))


def starts(settings: Settings, *, at_least: int = 0) -> Array:
    """Integration states (num_envs or more, nstate) float64 in which our environments begin."""
    found: list[Array] = []
    options: dict[str, Any] = {**settings.env_options}
    with make_vec(
        settings.id,
        settings.num_envs,
        num_threads=1,
        seed=settings.seed,
        **options,
    ) as env:
        while not found or len(found) < at_least:
            env.reset()
            found += map(mujoco.integration_state, env.get_state())
    return np.stack(found)


class _Driver:
    """Collects the controls of `_WINDOW` calls, and rolls them out in the last one."""

    def __init__(self, settings: Settings, spec: EnvSpec) -> None:
        import mujoco as engine
        from mujoco import rollout

        self._engine, self._settings = engine, settings
        self._model = model_of(spec)
        self.substeps = substeps(spec, self._model)
        threads = settings.num_threads
        self._data = [engine.MjData(self._model) for _ in range(max(1, threads))]
        # the threads of this pool work while the caller waits
        self._rollout = rollout.Rollout(nthread=threads if threads > 1 else 0)
        self._controls: list[Array] = []
        self._states = np.empty(0)
        self._warm_start: Array | None = None

    def start(self) -> None:
        """Begins in the states in which our environments begin."""
        kind = self._engine.mjtState.mjSTATE_FULLPHYSICS
        data = self._data[0]
        size = self._engine.mj_stateSize(self._model, kind)
        states = np.empty((self._settings.num_envs, size))
        warm_start = np.empty((self._settings.num_envs, self._model.nv))
        everything = self._engine.mjtState.mjSTATE_INTEGRATION
        begun = starts(self._settings)
        for row, warm, state in zip(states, warm_start, begun, strict=True):
            self._engine.mj_setState(self._model, data, state, everything)
            self._engine.mj_getState(self._model, data, row, kind)
            warm[:] = data.qacc_warmstart
        self._states, self._warm_start = states, warm_start
        self._controls.clear()

    def step(self, actions: Array) -> None:
        """Takes a call's actions (N, nu); rolls out after `_WINDOW` calls."""
        self._controls.append(actions)
        if len(self._controls) < _WINDOW:
            return
        controls = np.stack(self._controls, axis=1).astype(np.float64)
        self._controls.clear()
        states, _ = self._rollout.rollout(
            self._model,
            self._data,
            self._states,
            np.repeat(controls, self.substeps, axis=1),
            initial_warmstart=self._warm_start,
        )
        # rollouts do not return their warm start: later ones begin without one
        self._warm_start = None
        self._states = np.ascontiguousarray(states[:, -1])

    def close(self) -> None:
        self._rollout.close()
