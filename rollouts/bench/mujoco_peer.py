# SPDX-License-Identifier: Apache-2.0
"""MuJoCo's own thread pool, open loop: what the engine alone makes of the same controls."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rollouts import mujoco
from rollouts.bench.measurement import Settings
from rollouts.bench.peers import OpenEnv
from rollouts.errors import SpecError
from rollouts.specs import EnvSpec, OptionValue
from rollouts.vector_env import VectorEnv

Array = npt.NDArray[Any]

# calls whose controls are rolled out together: the warm start lives within a rollout alone
_WINDOW = 16


class MujocoRollout:
    """`mujoco.rollout`: no resets, no observations, no rewards."""

    name = "mujoco"

    def version(self) -> str:
        mujoco.load_engine()
        return importlib.metadata.version("mujoco")

    def make(self, settings: Settings, spec: EnvSpec) -> OpenEnv:
        version = self.version()
        if not spec.header.startswith(mujoco.HEADERS):
            raise SpecError(
                f"peer 'mujoco' has MuJoCo's environments only, got env_id {spec.id!r}: "
                "measure an id such as 'Ant-v5', or leave this peer out"
            )
        driver = _Driver(settings, spec.options)
        notes = [f"Open loop: {_WINDOW} calls' controls at once, no resets, nothing observed."]
        if settings.is_async:
            notes.append("It has no recv and send: rollouts of all environments were measured.")
        return OpenEnv(
            self.name,
            version,
            driver,
            num_envs=settings.num_envs,
            batch_size=settings.num_envs,
            num_threads=settings.num_threads,
            start=driver.start,
            close=driver.close,
            options={"nstep": _WINDOW * driver.frame_skip},
            notes=tuple(notes),
        )


class _Driver:
    """Collects controls of `_WINDOW` calls and rolls them out in the last of these."""

    def __init__(self, settings: Settings, options: Mapping[str, OptionValue]) -> None:
        import mujoco as engine
        from mujoco import rollout

        path = str(options["xml_file"])
        if not path.startswith(("/", ".", "~")):
            path = str(mujoco.assets_dir() / path)
        self.frame_skip = int(options["frame_skip"])
        self._engine, self._settings = engine, settings
        self._model = engine.MjModel.from_xml_path(path)
        threads = settings.num_threads
        self._data = [engine.MjData(self._model) for _ in range(max(1, threads))]
        # its pool's threads come beside the caller, who waits
        self._rollout = rollout.Rollout(nthread=threads if threads > 1 else 0)
        self._controls: list[Array] = []
        self._states = np.empty(0)
        self._warm_start: Array | None = None

    def start(self) -> None:
        """Begins where our environments begin."""
        kind = self._engine.mjtState.mjSTATE_FULLPHYSICS
        data = self._data[0]
        size = self._engine.mj_stateSize(self._model, kind)
        states = np.empty((self._settings.num_envs, size))
        warm_start = np.empty((self._settings.num_envs, self._model.nv))
        with VectorEnv(
            self._settings.env_id,
            self._settings.num_envs,
            num_threads=1,
            seed=self._settings.seed,
            env_options={**self._settings.env_options},
        ) as env:
            env.reset()
            for row, warm, state in zip(states, warm_start, env.get_state(), strict=True):
                everything = self._engine.mjtState.mjSTATE_INTEGRATION
                saved = mujoco.integration_state(state)
                self._engine.mj_setState(self._model, data, saved, everything)
                self._engine.mj_getState(self._model, data, row, kind)
                warm[:] = data.qacc_warmstart
        self._states, self._warm_start = states, warm_start
        self._controls.clear()

    def step(self, actions: Array) -> None:
        """Takes a call's actions (N, nu); rolls out when there are enough."""
        self._controls.append(actions)
        if len(self._controls) < _WINDOW:
            return
        controls = np.stack(self._controls, axis=1).astype(np.float64)
        self._controls.clear()
        states, _ = self._rollout.rollout(
            self._model,
            self._data,
            self._states,
            np.repeat(controls, self.frame_skip, axis=1),
            initial_warmstart=self._warm_start,
        )
        # rollouts do not say theirs: later ones begin with a cold solver
        self._warm_start = None
        self._states = np.ascontiguousarray(states[:, -1])

    def close(self) -> None:
        self._rollout.close()
