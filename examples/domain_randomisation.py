# SPDX-License-Identifier: Apache-2.0
"""Domain randomisation: every environment has its own masses, friction, motors and gravity.

    python examples/domain_randomisation.py

All environments share one model of MuJoCo; each owns copies of the fields that differ. Run with
random actions, it prints how heavy the cheetahs were and how far they came.
"""

from __future__ import annotations

import argparse

import numpy as np

import rollouts
from rollouts.mujoco import Scaled, Uniform

# drawn anew in every episode, also in those that autoreset begins
EVERY_EPISODE = {
    "geom_friction": Scaled(0.5, 1.5),  # factors of the file's, for each geom and direction
    "actuator_gear": Scaled(0.8, 1.2),
    "opt.gravity": Uniform([0, 0, -10.5], [0, 0, -9.0]),  # m/s^2
}


def main(num_envs: int, num_steps: int, seed: int) -> np.ndarray:
    """Returns the distances (N,) that cheetahs of 0.5 to 2 times the mass came."""
    with rollouts.make_vec("HalfCheetah-v5", num_envs, seed=seed) as env:
        # given as arrays: environment i is heavier than environment i - 1, in every episode
        factor = np.linspace(0.5, 2, num_envs)[:, None]
        file = {name: env.model_field(name) for name in ("body_mass", "body_inertia")}
        heavier = {
            "body_mass": file["body_mass"] * factor,
            "body_inertia": file["body_inertia"] * factor[..., None],
        }
        env.reset(seed=seed, options={"model": {**heavier, **EVERY_EPISODE}})
        env.action_space.seed(seed)
        for _ in range(num_steps):
            *_, info = env.step(env.action_space.sample())

        mass = env.model_field("body_mass").sum(axis=1)
        gravity = env.model_field("opt.gravity")[:, 2]
        for row in range(num_envs):
            print(
                f"mass {mass[row]:5.1f} kg  gravity {gravity[row]:6.2f} m/s^2  "
                f"x {info['x_position'][row]:6.2f} m"
            )
        return np.array(info["x_position"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-envs", type=int, default=8)
    parser.add_argument("--num-steps", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    main(arguments.num_envs, arguments.num_steps, arguments.seed)
