# SPDX-License-Identifier: Apache-2.0
"""A robot of your own: an XML file and two NumPy functions; a pool steps 64 of it.

A cart swings a hanging pole up. MuJoCo simulates the model, its sensors and its time step.
Observation and info are given as names of the model's parts; reward and termination are computed
for the whole batch. A search over six numbers (the cross-entropy method) finds a controller in
seconds.

    python examples/own_robot.py
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import rollouts
from rollouts.own_model import ModelStep

ROBOT = """
<mujoco model="swing">
  <option timestep="0.005" integrator="implicitfast"/>
  <worldbody>
    <body name="cart">
      <joint name="rail" type="slide" axis="1 0 0" range="-1.5 1.5" limited="true" damping="0.2"/>
      <geom type="box" size="0.12 0.08 0.05" mass="0.6"/>
      <body name="pole">
        <joint name="hinge" type="hinge" axis="0 1 0" damping="0.002"/>
        <geom type="capsule" fromto="0 0 0 0 0 -0.6" size="0.02" mass="0.15"/>
        <site name="tip" pos="0 0 -0.6"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor name="push" joint="rail" gear="12" ctrlrange="-1 1"/></actuator>
  <sensor><framepos name="tip" objtype="site" objname="tip"/></sensor>
</mujoco>
"""


def reward(step: ModelStep) -> Any:
    """Rewards a high tip (-0.6 to 0.6 m), a cart in the middle, and little effort."""
    height = step["tip"][:, 2]
    return height / 0.6 - 0.1 * np.square(step["qpos"][:, 0]) - 0.01 * np.square(step.actions[:, 0])


def terminated(step: ModelStep) -> Any:
    """The cart is at the end of its rail."""
    return np.abs(step["qpos"][:, 0]) > 1.45


def act(weights: Any, obs: Any) -> Any:
    """Pumps energy into the pole while it is down, balances it when it is up.

    Args:
      weights: (N, 6), a controller for each environment.
      obs: (N, 4): cart, angle, and their speeds.
    """
    cart, angle, cart_speed, speed = obs.T
    up = np.cos(angle) < -0.8
    lean = np.sin(angle)
    pump = np.sign(speed * np.cos(angle)) * weights[:, 0] - weights[:, 1] * cart
    balance = weights[:, 2] * lean + weights[:, 3] * speed + weights[:, 4] * cart
    push = np.where(up, balance + weights[:, 5] * cart_speed, pump)
    return np.clip(push, -1, 1)[:, None].astype(np.float32)


def search(env: rollouts.VectorEnv, rounds: int, seed: int) -> float:
    """Tries a controller in each environment for an episode, again and again; returns the best."""
    generator = np.random.default_rng(seed)
    mean, spread = np.zeros(6), np.full(6, 3.0)
    for number in range(rounds):
        weights = mean + spread * generator.standard_normal((env.num_envs, 6))
        obs, _ = env.reset()
        returns, alive = np.zeros(env.num_envs), np.ones(env.num_envs, np.bool_)
        while alive.any():
            obs, rewards, ended, limited, _ = env.step(act(weights, obs))
            returns += rewards * alive
            alive &= ~(ended | limited)
        best = np.argsort(returns)[-env.num_envs // 8 :]
        mean, spread = weights[best].mean(axis=0), weights[best].std(axis=0) + 0.1
        print(f"round {number:2d}: best {returns[best[-1]]:7.1f}  mean {returns.mean():7.1f}")
    return float(returns.max())


def main(arguments: list[str] | None = None) -> float:
    """Runs the search; returns the last round's best return."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=400, help="of an episode, 20 ms each")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "swing.xml"
        model.write_text(ROBOT)
        with rollouts.make_vec(
            "MuJoCo-v0",
            options.num_envs,
            xml_file=model,
            frame_skip=4,
            observation=["qpos", "qvel"],
            info=["tip"],
            reward=reward,
            terminated=terminated,
            reset_noise_scale=0.05,
            max_episode_steps=options.steps,
            seed=options.seed,
        ) as env:
            return search(env, options.rounds, options.seed)


if __name__ == "__main__":
    main()
