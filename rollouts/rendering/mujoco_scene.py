# SPDX-License-Identifier: Apache-2.0
"""Draws states of a MuJoCo model, equal to Gymnasium's renderer in each pixel."""

from __future__ import annotations

import copy
import functools
import importlib
import weakref
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from rollouts import _native
from rollouts.errors import SpecError
from rollouts.rendering import opengl
from rollouts.rendering.frame_options import RenderOptions

Array = npt.NDArray[Any]

FREE = -1  # the number of MuJoCo's free camera
_TRACK = "track"  # the camera that Gymnasium prefers

# the default_camera_config of Gymnasium's constructors
CAMERA_CONFIGS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "Ant-v5": {"distance": 4.0},
        "HalfCheetah-v5": {"distance": 4.0},
        "Hopper-v5": {
            "trackbodyid": 2,
            "distance": 3.0,
            "lookat": (0.0, 0.0, 1.15),
            "elevation": -20.0,
        },
        "Walker2d-v5": {
            "trackbodyid": 2,
            "distance": 4.0,
            "lookat": (0.0, 0.0, 1.15),
            "elevation": -20.0,
        },
        "Humanoid-v5": {
            "trackbodyid": 1,
            "distance": 4.0,
            "lookat": (0.0, 0.0, 2.0),
            "elevation": -20.0,
        },
        "HumanoidStandup-v5": {
            "trackbodyid": 1,
            "distance": 4.0,
            "lookat": (0.0, 0.0, 0.8925),
            "elevation": -20.0,
        },
        "InvertedPendulum-v5": {"trackbodyid": 0, "distance": 2.04},
        "InvertedDoublePendulum-v5": {},  # Gymnasium defines a config but does not use it
        "Reacher-v5": {"trackbodyid": 0},
        "Pusher-v5": {"trackbodyid": -1, "distance": 4.0},
        "Swimmer-v5": {},
    }
)


# the only config in which version 4 differs from version 5
_V4_CONFIGS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {"InvertedDoublePendulum-v4": {"distance": 4.1225, "lookat": (0.0, 0.0, 0.1225)}}
)


def camera_config(id: str) -> Mapping[str, Any] | None:
    """The default_camera_config of Gymnasium's constructor; None: not an id of Gymnasium."""
    found = _V4_CONFIGS.get(id)
    newest = f"{id.removesuffix('-v4')}-v5" if id.endswith("-v4") else id
    return CAMERA_CONFIGS.get(newest) if found is None else found


_RANGEFINDER = 8  # mjtVisFlag


@functools.cache
def usual_flags(id: str) -> Mapping[int, bool]:
    """Flags (mjtVisFlag) that differ from MuJoCo's: dm_control draws no rays of rangefinders."""
    return {_RANGEFINDER: False} if id in _native.dm_control_models() else {}


class MujocoScene:
    """A model, a simulation to put states into, and an OpenGL context.

    All methods run in OpenGL's thread (`opengl.gl_thread`), including the constructor.
    """

    _live: ClassVar[weakref.WeakSet[MujocoScene]] = weakref.WeakSet()

    def __init__(self, model: Any, xml_path: str, id: str, options: RenderOptions) -> None:
        """Makes the context.

        Args:
          model: mujoco.MjModel; the scene sets the size of its off-screen buffer.
          xml_path: Its file, for messages.
          id: The id whose camera to use; for other ids than Gymnasium's, the model's first camera.
          options: Appearance of the frames.

        Raises:
          EngineError: There is no OpenGL. SpecError: A camera or flag does not exist.
        """
        mj = self._mujoco = importlib.import_module("mujoco")
        self._xml_path, self._options = xml_path, options
        usual = camera_config(id)
        self._in_gymnasium = usual is not None
        self._model = model
        self._model.vis.global_.offwidth = options.width
        self._model.vis.global_.offheight = options.height
        self._data = mj.MjData(self._model)
        self._usual_view = mj.MjvCamera()
        if not self._in_gymnasium:
            mj.mjv_defaultFreeCamera(self._model, self._usual_view)
        self._distance = self._model.stat.extent
        self._files: dict[str, Array] = {}  # the file's values of fields that differ at present
        self._flags = mj.MjvOption()
        for flag, value in {**usual_flags(id), **options.visual_options}.items():
            if not 0 <= int(flag) < len(self._flags.flags):
                raise SpecError(
                    f"visual_options has the flag {flag!r}, expected a number of mujoco.mjtVisFlag "
                    f"from 0 to {len(self._flags.flags) - 1}"
                )
            self._flags.flags[int(flag)] = value
        given = options.default_camera_config
        self._config = (usual or {}) if given is None else given
        self._default_camera = self.camera_number(options.camera)
        self._looks_at: dict[int, Array] = {}

        self._pixels = np.empty((options.height, options.width, 3), np.uint8)
        self._viewport = mj.MjrRect(0, 0, options.width, options.height)
        self._scene = mj.MjvScene(self._model, options.max_geom)
        self._context = opengl.new_context(options.width, options.height)
        try:
            with opengl.explained(*opengl.choose_backend()):
                self._drawing = mj.MjrContext(self._model, mj.mjtFontScale.mjFONTSCALE_150)
                mj.mjr_setBuffer(mj.mjtFramebuffer.mjFB_OFFSCREEN, self._drawing)
        except BaseException:
            self._context.free()
            raise
        MujocoScene._live.add(self)
        _free_all_at_exit()

    def look_as(self, fields: Mapping[str, bytes]) -> None:
        """Gives fields the values of one environment, and all other fields the file's.

        Args:
          fields: The fields in which the environment's model differs, from
            `_native.physics_fields`.
        """
        for name in self._files.keys() - fields.keys():
            self._put(name, self._files.pop(name))
        for name, values in fields.items():
            if "." not in name and not isinstance(getattr(self._model, name, None), np.ndarray):
                continue  # counts and flags with which MuJoCo skips work
            before = self._read(name)
            self._files.setdefault(name, before)
            self._put(name, np.frombuffer(values, before.dtype).reshape(before.shape))

    def draw(self, env: int, state: Array, camera: int | str | None = None) -> Array:
        """Draws a state.

        Args:
          env: Number of the environment, whose free camera looks at the centre of the scene in its
            first frame, as in Gymnasium.
          state: From `rollouts.mujoco.integration_state`.
          camera: Replaces the camera of the options.

        Returns:
          (height, width, 3) uint8.

        Raises:
          SpecError: There is no such camera.
        """
        mj = self._mujoco
        number = self._default_camera if camera is None else self.camera_number(camera)
        mj.mj_setState(self._model, self._data, state, mj.mjtState.mjSTATE_INTEGRATION)
        # geoms and lights follow from the state
        mj.mj_forward(self._model, self._data)
        view = self._view(env, number)
        self._context.make_current()
        mj.mjv_updateScene(
            self._model,
            self._data,
            self._flags,
            None,
            view,
            mj.mjtCatBit.mjCAT_ALL,
            self._scene,
        )
        mj.mjr_render(self._viewport, self._scene, self._drawing)
        mj.mjr_readPixels(self._pixels, None, self._viewport, self._drawing)
        # OpenGL's first row is the lowest
        return self._pixels[::-1].copy()

    def free(self) -> None:
        """Frees the context; may be called twice."""
        if self in MujocoScene._live:
            MujocoScene._live.discard(self)
            self._context.make_current()
            self._drawing.free()
            self._context.free()

    def camera_number(self, camera: int | str | None) -> int:
        """Finds a camera of the model.

        Raises:
          SpecError: There is no camera of this name or number.
        """
        mj = self._mujoco
        kind = mj.mjtObj.mjOBJ_CAMERA
        if camera is None:
            track = int(mj.mj_name2id(self._model, kind, _TRACK))
            return 0 if track < 0 and self._model.ncam and not self._in_gymnasium else track
        if isinstance(camera, str):
            number = int(mj.mj_name2id(self._model, kind, camera))
            exists = number >= 0
        else:
            number = int(camera)
            exists = FREE <= number < self._model.ncam
        if exists:
            return number
        names = [str(mj.mj_id2name(self._model, kind, i)) for i in range(self._model.ncam)]
        raise SpecError(
            f"the model {self._xml_path} has no camera {camera!r}; it has {FREE} (the free one)"
            + "".join(f", {i} ({name})" for i, name in enumerate(names))
        )

    def _place(self, name: str) -> tuple[Any, str]:
        """The object that has a field, and its name there; "opt.gravity" belongs to `model.opt`."""
        *owners, key = name.split(".")
        return functools.reduce(getattr, owners, self._model), key

    def _read(self, name: str) -> Array:
        return np.array(getattr(*self._place(name)))

    def _put(self, name: str, values: Array) -> None:
        owner, key = self._place(name)
        if not values.ndim:
            setattr(owner, key, values.item())
        elif not np.array_equal(getattr(owner, key), values):
            getattr(owner, key)[...] = values
            if name == "hfield_data":
                self._context.make_current()
                for terrain in range(self._model.nhfield):
                    self._mujoco.mjr_uploadHField(self._model, self._drawing, terrain)

    def _view(self, env: int, number: int) -> Any:
        mj = self._mujoco
        view = mj.MjvCamera()
        if number == FREE and not self._in_gymnasium:
            view = copy.copy(self._usual_view)
        elif number == FREE:
            at = self._looks_at.get(env)
            if at is None:
                at = self._looks_at[env] = np.median(self._data.geom_xpos, axis=0)
            view.lookat[:] = at
            view.distance = self._distance
        for name, value in self._config.items():
            if name == "lookat":
                view.lookat[:] = value
            else:
                setattr(view, name, value)
        camera = mj.mjtCamera
        if number != FREE:
            view.type = camera.mjCAMERA_FIXED
        elif "type" not in self._config:
            view.type = camera.mjCAMERA_FREE
        view.fixedcamid = number
        return view


@functools.cache
def _free_all_at_exit() -> None:
    """Makes the process free all contexts at exit; registered after mujoco's own exit handler."""
    opengl.run_at_exit(_free_all)


def _free_all() -> None:
    for scene in list(MujocoScene._live):
        scene.free()
