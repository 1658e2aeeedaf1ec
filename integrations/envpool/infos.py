# SPDX-License-Identifier: Apache-2.0
"""EnvPool's keys of info, from what our environments report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from rollouts.integrations.envpool.arrays import library
from rollouts.integrations.envpool.envpool_options import AskedTask
from rollouts.integrations.envpool.mission_ids import mission_id, tells_missions

from rollouts.batch import StepBatch
from rollouts.envs.registry import resolve

# entries of our info that EnvPool lacks or has under another name
_LEFT_OUT = {"raw_reward", "lives", "frame_number", "episode_frame_number"}
# id -> EnvPool's name -> ours, which is kept too
_NAMES: Mapping[str, Mapping[str, str]] = {
    "HalfCheetah-v5": {"reward_run": "reward_forward"},
    "Swimmer-v5": {"reward_fwd": "reward_forward"},
    "Humanoid-v5": {
        "reward_linvel": "reward_forward",
        "reward_quadctrl": "reward_ctrl",
        "reward_alive": "reward_survive",
        "reward_impact": "reward_contact",
    },
}
_DTYPES: Mapping[str, Mapping[str, Any]] = {
    "CliffWalking-v1": {"prob": np.float32},
    "CliffWalkingSlippery-v1": {"prob": np.float32},
}


def own_infos(task: AskedTask, batch: StepBatch) -> dict[str, Any]:
    """Returns the environment's own infos and those that EnvPool adds, as NumPy or JAX arrays."""
    infos = {name: values for name, values in batch.info.items() if name not in _LEFT_OUT}
    dtypes = {"ram": np.uint8} if task.is_atari else _DTYPES.get(task.id, {})
    for name, dtype in dtypes.items():
        if name in infos:
            infos[name] = infos[name].astype(dtype)
    for name, ours in _NAMES.get(task.id, {}).items():
        infos[name] = infos[ours]
    for name, compute in _COMPUTED.get(task.id, {}).items():
        infos[name] = compute(task, batch)
    if tells_missions(task):
        infos["mission_id"] = mission_id(task, batch)
    return infos


def own_info_specs(
    task: AskedTask, obs: spaces.Space[Any]
) -> dict[str, tuple[Any, tuple[int, ...]]]:
    """dtype and shape of each of `own_infos`, without the axis of the batch.

    Args:
      obs: Observation of one environment of the pool.
    """
    options = {name: value for name, value in task.env_options.items() if name != "frame_stack"}
    reported = resolve(task.id, None, options).native_spec()["infos"]
    shapes = {name: (dtype, () if size is None else (size,)) for name, dtype, size in reported}
    columns = {name: np.zeros((0, *shape), dtype) for name, (dtype, shape) in shapes.items()}
    rows = np.zeros((0, *(obs.shape or ())), obs.dtype)
    number: Any = np.zeros(0)
    no_rows = StepBatch(rows, number, number, number, number, number, number, None, columns)
    return {name: (one.dtype, one.shape[1:]) for name, one in own_infos(task, no_rows).items()}


def _contact(task: AskedTask, batch: StepBatch) -> Any:
    # Gymnasium's Ant-v4 reports the contact cost as reward_ctrl
    if task.env_options.get("use_contact_forces"):
        return batch.info["reward_ctrl"]
    return batch.reward * 0


def _near(task: AskedTask, batch: StepBatch) -> Any:
    info = batch.info
    return (batch.reward - info["reward_dist"] - 0.1 * info["reward_ctrl"]) / 0.5


def _angles(task: AskedTask, batch: StepBatch) -> Any:
    lib = library(batch.obs)
    cosines, sines = batch.obs[:, 0:4:2], batch.obs[:, 1:4:2]
    return lib.arctan2(sines, cosines)


_Compute = Callable[[AskedTask, StepBatch], Any]
_ALIVE: Mapping[str, _Compute] = {"reward_alive": lambda _, batch: batch.reward * 0 + 1}
# infos that our environments do not report, computed as their references do
_COMPUTED: Mapping[str, Mapping[str, _Compute]] = {
    "Acrobot-v1": {"state": _angles},
    "Ant-v4": {"reward_contact": _contact},
    "Humanoid-v4": {"reward_impact": lambda _, batch: batch.reward * 0},
    "HumanoidStandup-v4": _ALIVE,
    "HumanoidStandup-v5": _ALIVE,
    "Pusher-v4": {"reward_near": _near},
}
