# SPDX-License-Identifier: Apache-2.0
"""Frames of a pool's environments, each drawn by the renderer for its kind."""

from __future__ import annotations

import functools
import importlib
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rollouts import _native, mujoco
from rollouts.errors import DTypeError, SpecError
from rollouts.families import dm_control
from rollouts.families.family import Drawer
from rollouts.families.table import family_of
from rollouts.rendering import box2d_frames, grids
from rollouts.rendering.classic import ClassicRenderer
from rollouts.rendering.frame_options import MODES, SIZE, RenderOptions, read_options
from rollouts.rendering.mujoco_scene import MujocoScene
from rollouts.rendering.opengl import gl_thread
from rollouts.rendering.world_frames import WorldFrames
from rollouts.specs import EnvSpec

Array = npt.NDArray[Any]
# (rows of environments, camera) -> their frames
Draw = Callable[[Sequence[int], int | str | None], list[Array]]

# option for the number of frames in a step -> frames per second of the engine that draws
_FRAMES_PER_S = {"frameskip": 60, "frame_skip": 35}  # Atari, ViZDoom


class FrameSource:
    """Draws the environments of a pool; allocates nothing before the first frame.

    Attributes:
      draws_any: Whether any of the environments can be drawn.
      options: Appearance of MuJoCo environments' frames, and size of Tag's.
    """

    def __init__(
        self,
        pool: _native.CpuPool,
        runs: Sequence[tuple[str, int]],
        specs: Mapping[str, EnvSpec],
        first_env_id: int,
        options: Mapping[str, Any],
    ) -> None:
        """Checks the options.

        Args:
          pool: The pool of the environments.
          runs: (id, number of environments that follow each other) in the pool's order.
          specs: The EnvSpec of each id.
          first_env_id: Id of the pool's first environment.
          options: Options of `rollouts.rendering.split_options`.

        Raises:
          SpecError, DTypeError: An option that is not possible.
        """
        self._pool = pool
        self._first = first_env_id
        self._specs = [specs[one] for one, count in runs for _ in range(count)]
        drawers = {one: family_of(spec.header).drawer for one, spec in specs.items()}
        self._drawers = [drawers[one] for one, count in runs for _ in range(count)]
        self.draws_any = any(self._drawers)
        has_size = SIZE if "tag" in drawers.values() else ()
        unknown = [name for name in sorted(options) if name not in has_size]
        if unknown and "mujoco" not in drawers.values():
            raise SpecError(
                f"{', '.join(specs)} has no options {', '.join(unknown)}: only frames of MuJoCo "
                "environments can be given a size, a camera or flags, and those of Tag a size"
            )
        self.options: RenderOptions = read_options(options)
        self._paths: dict[int, str] = {}  # file of the model, by environment
        # model by its file, as the pool loaded it; the file may have changed since
        self._models: dict[str, _native.PhysicsModel] = {}
        # scene by the native core's model and the environment's id
        self._scenes: dict[tuple[_native.PhysicsModel, str], MujocoScene] = {}
        self._renderers: dict[str, ClassicRenderer] = {}  # renderer by id
        self._worlds = WorldFrames(pool, self.options)
        weakref.finalize(self, _free_later, self._scenes).atexit = False
        self.find_models()

    def draw(self, env_ids: npt.ArrayLike | None, camera: int | str | None) -> tuple[Array, ...]:
        """Draws environments as they are now; see `VectorEnv.render`."""
        envs = self._rows(env_ids)
        frames: list[Array] = [np.empty(0)] * len(envs)
        draws: dict[Drawer | None, Draw] = {
            "mujoco": self._draw_mujoco,
            "engine": self._draw_by_engine,
            "gymnasium": self._draw_classic,
            "particles": self._draw_worlds,
            "tag": self._draw_worlds,
            "box2d": self._draw_box2d,
            "grids": self._draw_grids,
            None: self._refuse,
        }
        for drawer, draw in draws.items():
            at = [i for i, env in enumerate(envs) if self._drawers[env] == drawer]
            if not at:
                continue
            for i, frame in zip(at, draw([envs[i] for i in at], camera), strict=True):
                frames[i] = frame
        return tuple(frames)

    def metadata(self, render_mode: str | None) -> dict[str, Any]:
        """Metadata for Gymnasium's wrappers; with frames per second only if there is a render_mode.

        Raises:
          SpecError: There is a render_mode, but an environment that cannot be drawn.
        """
        others = [env for env, drawer in enumerate(self._drawers) if drawer is None]
        if render_mode is None:
            return {"render_modes": [] if others else list(MODES)}
        if others:
            self._refuse(others, None)
        return {"render_modes": list(MODES), "render_fps": self.frames_per_s()}

    def frames_per_s(self) -> int:
        """Steps of the first environment per second of simulated time, as in Gymnasium."""
        spec = self._specs[0]
        if self._drawers[0] == "engine":
            skip = next(name for name in _FRAMES_PER_S if name in spec.options)
            return max(1, round(_FRAMES_PER_S[skip] / int(spec.options[skip])))
        if self._drawers[0] == "box2d":
            return box2d_frames.FRAMES_PER_S
        if self._drawers[0] == "grids":
            return grids.FRAMES_PER_S
        if self._drawers[0] == "gymnasium":
            return self._classic(spec.id).frames_per_s
        if spec.groups:
            return self._worlds.frames_per_s(spec)
        timestep = float(self._pool.read_model(0, "opt.timestep", True))
        substeps = int(spec.options["frame_skip"])
        if substeps == 0:  # 0 stands for the default of the DeepMind Control Suite's task
            return max(1, round(1 / (dm_control.control_timestep(spec.header) or timestep)))
        return max(1, round(1 / (timestep * substeps)))

    def find_models(self) -> None:
        """Reads the models' paths again after the environments' options have changed."""
        columns = self._pool.env_options() if "mujoco" in self._drawers else {}
        for row, (spec, drawer) in enumerate(zip(self._specs, self._drawers, strict=True)):
            find = family_of(spec.header).model_file if drawer == "mujoco" else None
            if find is not None:
                self._paths[row] = find({name: column[row] for name, column in columns.items()})
        # the pool holds the models, so no file is read
        self._models = {path: _native.physics_model(path) for path in {*self._paths.values()}}

    def close(self) -> None:
        """Frees OpenGL contexts and waits for that. May be called twice."""
        # at exit all is freed already and the thread is gone; a forked process has no such thread
        if self._scenes and not sys.is_finalizing() and gl_thread.is_here():
            gl_thread.run(functools.partial(_free, self._scenes))

    # -- helpers -----------------------------------------------------------------------

    def _rows(self, env_ids: npt.ArrayLike | None) -> list[int]:
        """Environments by their row in the pool."""
        if env_ids is None:
            return list(range(len(self._specs)))
        ids = np.atleast_1d(np.asarray(env_ids))
        if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
            raise DTypeError(
                f"env_ids must be whole numbers of shape (n,), got {ids.dtype} of {ids.shape}"
            )
        wrong = [int(one) for one in ids if not 0 <= one - self._first < len(self._specs)]
        if wrong:
            last = self._first + len(self._specs) - 1
            raise SpecError(f"env_ids has {wrong}, expected ids from {self._first} to {last}")
        return [int(one) - self._first for one in ids]

    def _draw_by_engine(self, envs: Sequence[int], camera: int | str | None) -> list[Array]:
        _refuse_camera(camera)
        return list(self._pool.render(self._ids(envs)))

    def _refuse(self, envs: Sequence[int], camera: int | str | None) -> list[Array]:
        raise SpecError(
            f"{self._specs[envs[0]].id} (env_id {envs[0] + self._first}) cannot be rendered: "
            "frames are drawn of MuJoCo, Box2D, Atari, ViZDoom, MiniGrid, BabyAI, classic control "
            "and several agents' environments"
        )

    def _draw_classic(self, envs: Sequence[int], camera: int | str | None) -> list[Array]:
        _refuse_camera(camera)
        states = self._pool.save_states(self._ids(envs))
        return [
            self._classic(self._specs[env].id).draw(state, options)
            for env, state, options in zip(envs, states, self._options(envs), strict=True)
        ]

    def _classic(self, id: str) -> ClassicRenderer:
        if id not in self._renderers:
            self._renderers[id] = ClassicRenderer(id)
        return self._renderers[id]

    def _draw_worlds(self, envs: Sequence[int], camera: int | str | None) -> list[Array]:
        _refuse_camera(camera)
        return [
            self._worlds.draw(env + self._first, self._specs[env], options)
            for env, options in zip(envs, self._options(envs), strict=True)
        ]

    def _draw_box2d(self, envs: Sequence[int], camera: int | str | None) -> list[Array]:
        _refuse_camera(camera)
        return [self._box2d_frame(env) for env in envs]

    def _box2d_frame(self, env: int) -> Array:
        header = self._specs[env].header
        if header.endswith("car_racing.h"):  # its observation is its frame
            return self._draw_by_engine([env], None)[0]
        (state,) = self._pool.save_states(self._ids([env]))
        return box2d_frames.draw(header, state)

    def _draw_grids(self, envs: Sequence[int], camera: int | str | None) -> list[Array]:
        _refuse_camera(camera)
        states = self._pool.save_states(self._ids(envs))
        return list(map(grids.draw, states, self._options(envs)))

    def _draw_mujoco(self, envs: Sequence[int], camera: int | str | None) -> list[Array]:
        # states are copied, so that the pool may go on while OpenGL draws
        states = self._pool.save_states(self._ids(envs))
        return gl_thread.run(functools.partial(self._draw_states, envs, states, camera))

    def _draw_states(
        self, envs: Sequence[int], states: Sequence[bytes], camera: int | str | None
    ) -> list[Array]:
        """Draws in OpenGL's thread."""
        frames = []
        for env, state in zip(envs, states, strict=True):
            model = self._models[self._paths[env]]
            key = model, self._specs[env].id
            scene = self._scenes.get(key)
            if scene is None:
                scene = MujocoScene(_copy(model), model.xml_path, key[1], self.options)
                self._scenes[key] = scene
            scene.look_as(_native.physics_fields(state))
            frames.append(scene.draw(env, mujoco.integration_state(state), camera))
        return frames

    def _options(self, envs: Sequence[int]) -> list[dict[str, Any]]:
        """Each environment's own options, by name."""
        columns = self._pool.env_options()
        return [{name: columns[name][env] for name in self._specs[env].options} for env in envs]

    def _ids(self, envs: Sequence[int]) -> Array:
        return np.asarray(envs, np.int64) + self._first


def _copy(model: _native.PhysicsModel) -> Any:
    """A mujoco.MjModel equal to the pool's model, even if its files have changed since."""
    module = importlib.import_module("mujoco")
    return module.MjModel.from_binary_path("model.mjb", {"model.mjb": model.binary()})


def _refuse_camera(camera: int | str | None) -> None:
    if camera is not None:
        raise SpecError(f"camera is {camera!r}, but only MuJoCo models have any: leave it out")


def _free(scenes: dict[tuple[_native.PhysicsModel, str], MujocoScene]) -> None:
    while scenes:
        scenes.popitem()[1].free()


def _free_later(scenes: dict[tuple[_native.PhysicsModel, str], MujocoScene]) -> None:
    """Frees an unclosed pool's contexts; must not wait, as it runs in garbage collection."""
    if scenes:
        gl_thread.post(functools.partial(_free, scenes))
