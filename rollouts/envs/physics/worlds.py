# SPDX-License-Identifier: Apache-2.0
"""`Worlds`: mujoco_warp's model and the data of N worlds."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any

import mujoco
import mujoco_warp
import numpy as np
import torch
import warp as wp
from mujoco_warp import DisableBit, OverflowType

from rollouts.envs.physics.kernels.contacts import align_with_capsules
from rollouts.envs.physics.kernels.own_models import clear_rows, put_keyframe
from rollouts.errors import EngineError, SpecError

# arrays that MuJoCo's step does not compute, and a reset sets to 0
CONTACT_FORCES = ("cacc", "cfrc_int", "cfrc_ext")
# overflow of memory, after which contacts or constraint rows are missing; reaching an iteration
# limit is no fault here, as in MuJoCo
OVERFLOW_BITS = int(OverflowType.ALL & ~(OverflowType.ITERATIONS | OverflowType.LS_ITERATIONS))


# what the next step depends on besides the model: mjSTATE_INTEGRATION
_STATE = (
    *("time", "qpos", "qvel", "act", "history", "plastic", "qacc_warmstart", "ctrl"),
    *("qfrc_applied", "xfrc_applied", "eq_active", "mocap_pos", "mocap_quat", "userdata"),
)


_PLANE, _CAPSULE = int(mujoco.mjtGeom.mjGEOM_PLANE), int(mujoco.mjtGeom.mjGEOM_CAPSULE)


def _align_contacts(model: Any, data: Any) -> None:
    """Part of mujoco_warp's collision detection."""
    found, of = data.contact, [model.geom_type, data.geom_xmat]
    inputs = [data.nacon, found.worldid, found.geom, *of, found.frame]
    wp.launch(align_with_capsules, data.naconmax, inputs)


def read_model(path: str) -> Any:
    """MuJoCo's own model.

    Raises:
      EngineError: MuJoCo cannot read it.
    """
    try:
        if path.endswith(".mjb"):
            return mujoco.MjModel.from_binary_path(path)
        return mujoco.MjModel.from_xml_path(path)
    except ValueError as error:
        raise EngineError(f"MuJoCo cannot use the model {path}: {error}") from error


class Worlds:
    """N simulations of one model, which step together.

    Attributes:
      model, data: mujoco_warp's.
      host: MuJoCo's own model.
    """

    def __init__(
        self, host: Any, path: str, num_envs: int, memory: Mapping[str, int | None]
    ) -> None:
        """Allocates worlds of a model that was read from a file, on Warp's current device.

        Args:
          memory: nconmax, contacts of a world on average, and njmax, rows of constraints of each;
            None: what mujoco_warp estimates.

        Raises:
          SpecError: mujoco_warp lacks a part of the model.
        """
        # mujoco_warp has no PGS solver; the Newton solver solves the same problem
        if host.opt.solver == mujoco.mjtSolver.mjSOL_PGS:
            host.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
        self.host, self.num_envs = host, num_envs
        try:
            self.model = mujoco_warp.put_model(self.host)
            self._memory = memory
            self.data = self.make_data()
        except (NotImplementedError, ValueError) as error:
            raise SpecError(
                f"mujoco_warp cannot step the model {path}: {error}. Leave device out: C++ threads "
                "step it by MuJoCo"
            ) from error
        # the pool reports overflows
        self.model.opt.warn_overflow = 0
        if {_PLANE, _CAPSULE} <= {*host.geom_type.tolist()}:
            self.model.callback.contactfilter = _align_contacts
        self._flat: dict[str, Any] = {}
        # torch, which reads these arrays next, has a stream of its own
        wp.synchronize_device()

    def make_data(self) -> Any:
        """Makes data for the same number of worlds, with the same memory, at the model's start."""
        return mujoco_warp.make_data(self.host, nworld=self.num_envs, **self._memory)

    def told_overflow(self, bits: int) -> str:
        """Describes what overflowed, and which option provides more memory for it."""
        per_world = self.data.naconmax // self.num_envs
        contacts = OverflowType.BROADPHASE | OverflowType.NARROWPHASE | OverflowType.CCD
        if bits & contacts:
            return (
                "or others had more contacts than there is memory for: make the pool with nconmax "
                f"above {per_world}, which is for one environment on average"
            )
        if bits & (OverflowType.NEFC | OverflowType.NJMAX_NNZ):
            return (
                "had more rows of constraints than there is memory for: make the pool with njmax "
                f"above {self.data.njmax}"
            )
        return f"asked for more memory than mujoco_warp has ({OverflowType(bits).name})"

    def flat(self, name: str) -> Any:
        """An array of the data as (N, elements) of float32, the same memory."""
        if name not in self._flat:
            array = getattr(self.data, name)
            assert array.is_contiguous and array.shape[0] == self.num_envs
            size = math.prod(array.shape[1:]) * wp.types.type_size(array.dtype)
            self._flat[name] = wp.array(
                ptr=array.ptr,
                dtype=wp.float32,
                shape=(self.num_envs, size),
                device=array.device,
            )
        return self._flat[name]

    def digest(self) -> str:
        """A digest that differs where the models may differ."""
        content = np.empty(mujoco.mj_sizeModel(self.host), np.uint8)
        mujoco.mj_saveModel(self.host, None, content)
        return hashlib.sha256(content.data).hexdigest()

    def state(self, data: Any = None) -> dict[str, torch.Tensor]:
        """Arrays that the next step depends on, (N, ...) each, of `data` if given; no copies."""
        data = self.data if data is None else data
        return {name: wp.to_torch(getattr(data, name)) for name in _STATE}

    def step(self, num_substeps: int, *, contact_forces: bool) -> None:
        """Moves all worlds; controls stay as they are."""
        for _ in range(num_substeps):
            mujoco_warp.step(self.model, self.data)
        # a step does not compute contact forces, because few tasks read them
        if contact_forces:
            mujoco_warp.rne_postconstraint(self.model, self.data)

    def bring_up_to_date(self) -> None:
        """Computes again what depends on positions and velocities, as dm_control does.

        Sensors of accelerations and touch keep their values of the last substep.
        """
        mujoco_warp.fwd_position(self.model, self.data)
        mujoco_warp.sensor_pos(self.model, self.data)
        mujoco_warp.fwd_velocity(self.model, self.data)
        mujoco_warp.sensor_vel(self.model, self.data)

    def clear(self, marked: Any) -> None:
        """Resets the marked worlds to the model's start: time, controls, warm starts."""
        mujoco_warp.reset_data(self.model, self.data, reset=marked)

    def start(self, keyframe: int) -> tuple[Any, Any]:
        """(1, nq) positions and (nv,) velocities that episodes begin with, in 64 bits."""
        host = self.host
        begins = keyframe >= 0
        qpos = host.key_qpos[keyframe] if begins else host.qpos0
        qvel = host.key_qvel[keyframe] if begins else np.zeros(host.nv)
        return wp.array(qpos[None], dtype=wp.float64), wp.array(qvel, dtype=wp.float64)

    def put_keyframe(self, keyframe: int, marked: Any) -> None:
        """Writes what a keyframe has besides positions and velocities, into the marked worlds."""
        model, data = self.model, self.data
        names = ("time", "act", "ctrl", "mpos", "mquat")
        of_key = [getattr(model, f"key_{name}") for name in names]
        now = [data.time, data.act, data.ctrl, data.mocap_pos, data.mocap_quat]
        wp.launch(put_keyframe, self.num_envs, [keyframe, marked, *of_key, *now])

    def clear_contact_forces(self, marked: Any) -> None:
        """Sets contact forces of the marked worlds to 0, because a reset computes none."""
        for name in CONTACT_FORCES:
            array = self.flat(name)
            wp.launch(clear_rows, array.shape, [marked, array])

    def refresh(self, what: str) -> None:
        """Computes what follows from positions and velocities, for all worlds.

        Positions, velocities and warm starts stay, so worlds that do not begin continue unchanged.
        """
        if what == "kinematics":
            mujoco_warp.fwd_kinematics(self.model, self.data)
        elif what == "motion":
            mujoco_warp.fwd_kinematics(self.model, self.data)
            mujoco_warp.transmission(self.model, self.data)
            mujoco_warp.fwd_velocity(self.model, self.data)
            mujoco_warp.fwd_actuation(self.model, self.data)
        elif what == "forward":
            mujoco_warp.forward(self.model, self.data)
        elif what == "unactuated":
            # mujoco_warp reads its options at launch
            flags = self.model.opt.disableflags
            self.model.opt.disableflags = flags | DisableBit.ACTUATION
            mujoco_warp.forward(self.model, self.data)
            self.model.opt.disableflags = flags
