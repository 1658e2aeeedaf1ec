# SPDX-License-Identifier: Apache-2.0
"""`MuJoCo-v0`: any MuJoCo model, with reward and termination as Python functions of the batch.

The pool's threads simulate, gather observations and begin episodes, as for the built-in tasks. Two
functions of the user run once per batch, in the thread that receives it, and get all rows of the
batch as arrays (`ModelStep`). They return the reward and the end of the episode, which then count
like native ones: for returns, lengths, autoreset, `final_obs`, saved states and asynchronous
batches.

    def reward(step):
        speed = (step["xpos:torso"][:, 0] - step.previous["xpos:torso"][:, 0]) / step.dt
        return speed - 0.1 * np.square(step.actions).sum(axis=1)

    env = rollouts.make_vec(
        "MuJoCo-v0", 64, xml_file="robot.xml", frame_skip=5,
        observation=["qpos[2:]", "qvel", "gyro"], info=["xpos:torso"],
        reward=reward, terminated=lambda step: step["xpos:torso"][:, 2] < 0.2,
        max_episode_steps=1000,
    )

Options of `make_vec` besides those of every id:

  xml_file: Path of the model, or the name of one of Gymnasium's models. Workers of a cluster read
    it on their own node.
  frame_skip: Simulation steps in a step; 1 by default.
  observation: Names whose numbers, side by side, are the observation; ["qpos", "qvel"] by default.
    A name is an array of
  mjData ("qpos", "xpos", "sensordata", "cfrc_ext", ...), one object's part of it ("xpos:torso",
  "qpos:hip", "site_xpos:tip", "ten_length:cord", "actuator_force:motor"), a sensor ("gyro"), or
  elements of those on the first axis ("qpos[2:]", "xpos:torso[0:2]"). The numbers are those after
  mj_step: values that depend on positions lag a simulation step behind qpos. Names with commas are
  not supported.
  info: Names that are no part of the observation, but are in info and available to the functions.
  At most 254 numbers.
  reward: Function of a ModelStep that returns (B,) floats; None: 0.
  terminated: Function of a ModelStep that returns (B,) bools; None: never. Arrays are read-only,
    so torch copies them: torch.tensor(step["qpos"]). A tensor on the CPU may be returned.
  keyframe: Name or number of the model's keyframe at which episodes begin; "": its own qpos0.
  reset_noise_scale: Noise from [-scale, scale) on each position and velocity at the start; 0 by
    default.
  qvel_noise: "normal" draws noise of velocities from N(0, scale**2); "uniform" by default.
  obs_dtype: "float64" or "float32". The functions get the observation's parts in that dtype, those
  of info in float64.
  from_pixels: True: the observation is an image (docs/how_to/frames.md), and the functions get
  only the names in info.

With `device`, mujoco_warp simulates (rollouts/envs/physics/), if it supports the model. Functions
get float32 tensors on that device, copies of their own, and return (N,) tensors; no call waits for
them. For a row that was no step, `now` and `previous` both have its last numbers. A reward that is
not finite ends its episode, and `synchronize` raises. obs_dtype is "float32"; environments share
one xml_file.

Threads: one thread at a time sends and receives. When a function raises, `step` or `recv` passes
its exception on, the batch is lost, and the environment must be reset.
"""

from __future__ import annotations

from rollouts.own_model.function_pool import FunctionPool
from rollouts.own_model.model_options import ENV_ID, is_own_model, split_functions
from rollouts.own_model.parts import Layout, common_layout, observation_slices
from rollouts.own_model.step import BatchFunction, ModelStep, Parts

__all__ = [
    "ENV_ID",
    "BatchFunction",
    "FunctionPool",
    "Layout",
    "ModelStep",
    "Parts",
    "common_layout",
    "is_own_model",
    "observation_slices",
    "split_functions",
]
