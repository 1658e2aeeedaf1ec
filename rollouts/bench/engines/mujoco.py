# SPDX-License-Identifier: Apache-2.0
"""MuJoCo's own thread pools: what the engine alone makes of the same controls."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rollouts import mujoco
from rollouts.bench.measurement import Settings
from rollouts.bench.peers import OpenEnv, notes_without_recv
from rollouts.errors import EngineError, SpecError
from rollouts.families.mujoco_engine import FAMILY as MUJOCO
from rollouts.families.table import family_of
from rollouts.pool.vector_env import VectorEnv
from rollouts.specs import EnvSpec, OptionValue

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
        _check_id(self.name, spec)
        driver = _Driver(settings, spec.options)
        note = f"Open loop: {_WINDOW} calls' controls at once, no resets, nothing observed."
        return _opened(self.name, version, driver, settings, _WINDOW * driver.frame_skip, note)


class MujocoBatch:
    """`mujoco.batch.Batch`: one call a step, no resets, observations, rewards or infos."""

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
        _check_id(self.name, spec)
        driver = _BatchDriver(settings, spec.options)
        note = "No resets, nothing observed; its threads include the caller's."
        return _opened(self.name, version, driver, settings, driver.frame_skip, note)


def _opened(
    peer: str,
    version: str,
    driver: _Driver | _BatchDriver,
    settings: Settings,
    nstep: int,
    note: str,
) -> OpenEnv:
    return OpenEnv(
        peer,
        version,
        driver,
        num_envs=settings.num_envs,
        batch_size=settings.num_envs,
        num_threads=settings.num_threads,
        start=driver.start,
        close=driver.close,
        options={"nstep": nstep},
        notes=(note, *notes_without_recv(settings)),
    )


def _check_id(peer: str, spec: EnvSpec) -> None:
    if family_of(spec.header) is not MUJOCO:
        raise SpecError(
            f"peer {peer!r} has MuJoCo's environments only, got env_id {spec.id!r}: "
            "measure an id such as 'Ant-v5', or leave this peer out"
        )


def _model_file(options: Mapping[str, OptionValue]) -> str:
    path = str(options["xml_file"])
    return path if path.startswith(("/", ".", "~")) else str(mujoco.assets_dir() / path)


def _starts(settings: Settings) -> Iterator[Array]:
    """Integration states (nstate,) float64 in which our environments begin."""
    with VectorEnv(
        settings.env_id,
        settings.num_envs,
        num_threads=1,
        seed=settings.seed,
        env_options={**settings.env_options},
    ) as env:
        env.reset()
        yield from map(mujoco.integration_state, env.get_state())


class _BatchDriver:
    """Steps all simulations in one call."""

    def __init__(self, settings: Settings, options: Mapping[str, OptionValue]) -> None:
        import mujoco as engine
        from mujoco import batch

        self.frame_skip = int(options["frame_skip"])
        self._settings = settings
        model = engine.MjModel.from_xml_path(_model_file(options))
        # 0 would be all CPUs
        threads = max(1, settings.num_threads)
        self._batch = batch.Batch(model, settings.num_envs, nthread=threads)
        self._controls = self._batch.bind("ctrl")

    def start(self) -> None:
        """Begins where our environments begin."""
        for row, state in zip(self._batch.state, _starts(self._settings), strict=True):
            row[:] = state

    def step(self, actions: Array) -> None:
        """Steps once with actions (N, nu)."""
        self._controls[:] = actions
        self._batch.step(nstep=self.frame_skip)

    def close(self) -> None:
        del self._controls, self._batch


class _Driver:
    """Collects controls of `_WINDOW` calls and rolls them out in the last of these."""

    def __init__(self, settings: Settings, options: Mapping[str, OptionValue]) -> None:
        import mujoco as engine
        from mujoco import rollout

        self.frame_skip = int(options["frame_skip"])
        self._engine, self._settings = engine, settings
        self._model = engine.MjModel.from_xml_path(_model_file(options))
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
        everything = self._engine.mjtState.mjSTATE_INTEGRATION
        starts = _starts(self._settings)
        for row, warm, state in zip(states, warm_start, starts, strict=True):
            self._engine.mj_setState(self._model, data, state, everything)
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
