# SPDX-License-Identifier: Apache-2.0
"""`MuJoCo-v0`: any MuJoCo model, with reward and termination as Python functions of the batch.

The pool's threads simulate, gather observations and begin episodes, as for the built-in tasks. Two
functions of the user's run once per batch in the thread that receives it, and see all of its rows
as arrays (`ModelStep`). What they return is the reward and the end of the episode as if they had
been native: returns, lengths, autoreset, `final_obs`, saved states, asynchronous batches.

    def reward(step):
        speed = (step["xpos:torso"][:, 0] - step.previous["xpos:torso"][:, 0]) / step.dt
        return speed - 0.1 * np.square(step.actions).sum(axis=1)

    env = rollouts.make_vec(
        "MuJoCo-v0", 64, xml_file="robot.xml", frame_skip=5,
        observation=["qpos[2:]", "qvel", "gyro"], info=["xpos:torso"],
        reward=reward, terminated=lambda step: step["xpos:torso"][:, 2] < 0.2,
        max_episode_steps=1000,
    )

Options of `make_vec` beside those of every id:

  xml_file: Path of the model, or the name of one of Gymnasium's. Workers of a cluster read it on
    their own node.
  frame_skip: Simulation steps in a step, 1.
  observation: Names whose numbers are the observation, one after the other; ["qpos", "qvel"]. An
    array of mjData ("qpos", "xpos", "sensordata", "cfrc_ext", ...), one object's share of it
    ("xpos:torso", "qpos:hip", "site_xpos:tip", "ten_length:cord", "actuator_force:motor"), a
    sensor ("gyro"), or elements of those on the first axis ("qpos[2:]", "xpos:torso[0:2]"). The
    numbers are those that mj_step leaves: what depends on positions lags a simulation step behind
    qpos. Names with commas cannot be written.
  info: Names that are no part of the observation and shall be seen by the functions, and in info.
    At most 254 numbers.
  reward: Function of a ModelStep that returns (B,) floats; None: 0.
  terminated: Function of a ModelStep that returns (B,) bools; None: never. Arrays are read-only,
    so torch copies them: torch.tensor(step["qpos"]). A tensor on the CPU may be returned.
  keyframe: Name or number of the model's keyframe that episodes begin with; "": its own qpos0.
  reset_noise_scale: Noise from [-scale, scale) on each position and velocity at the beginning; 0.
  qvel_noise: "normal" draws that of velocities from N(0, scale**2); "uniform".
  obs_dtype: "float64" or "float32". The functions see the observation's parts in that dtype, those
    of info in float64.
  from_pixels: True: the observation is a picture (docs/how_to/frames.md), and the functions see
    the names that info lists alone.

With `device` mujoco_warp simulates (rollouts/envs/physics/), for models that it has: functions get
tensors on that device, float32, copies of their own, and return (N,) tensors; nothing waits for
them. Of a row that was no step both `now` and `previous` are what it showed last. A reward that is
not finite ends its episode, and `synchronize` raises. obs_dtype is "float32"; environments share
one xml_file.

Threads: one thread at a time sends and receives. When a function raises, its exception comes out
of `step` or `recv`, the batch is lost, and the environment must be reset.
"""

from __future__ import annotations

from rollouts.own_model.options import ENV_ID, is_own_model, split_functions
from rollouts.own_model.parts import Layout, common_layout, observation_slices
from rollouts.own_model.pool import FunctionPool
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
