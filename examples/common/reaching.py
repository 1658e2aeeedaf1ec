# SPDX-License-Identifier: Apache-2.0
"""A two-link arm that reaches for a goal, drawn anew in each episode, and how often it succeeds."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

import rollouts
from rollouts.mujoco import Uniform
from rollouts.own_model import ModelStep
from rollouts.replay import GoalColumns, SparseReward

ARM = """
<mujoco model="reach">
  <option timestep="0.01" integrator="implicitfast" gravity="0 0 0"/>
  <worldbody>
    <site name="goal" size="0.01" rgba="1 0 0 1"/>
    <body name="upper">
      <joint name="shoulder" type="hinge" axis="0 0 1" damping="0.01"/>
      <geom type="capsule" fromto="0 0 0 0.1 0 0" size="0.01" mass="0.1"/>
      <body name="lower" pos="0.1 0 0">
        <joint name="elbow" type="hinge" axis="0 0 1" damping="0.01"/>
        <geom type="capsule" fromto="0 0 0 0.1 0 0" size="0.01" mass="0.1"/>
        <site name="tip" pos="0.1 0 0" size="0.01"/>
      </body>
    </body>
  </worldbody>
  <actuator>
    <motor joint="shoulder" gear="0.05" ctrlrange="-1 1"/>
    <motor joint="elbow" gear="0.05" ctrlrange="-1 1"/>
  </actuator>
</mujoco>
"""

# columns of qpos and qvel of two joints, then of the tip's and the goal's position [m]
GOAL = GoalColumns(achieved_goal=(4, 6), desired_goal=(6, 8))
REWARD = SparseReward(0.02)  # m
EPISODE = 50  # steps of 50 ms
# the goal's site is drawn in a square that the tip can reach, and the tip's site stays in place
GOALS = Uniform([[-0.13, -0.13, 0], [0.1, 0, 0]], [[0.13, 0.13, 0], [0.1, 0, 0]])
TIP, TARGET = "site_xpos:tip[0:2]", "site_xpos:goal[0:2]"


def reward(step: ModelStep) -> Any:
    """0 where the tip is at its goal, else -1."""
    return REWARD(step[TIP], step[TARGET])


def options(folder: Path) -> dict[str, Any]:
    """Writes the model to `folder`, and returns the options of MuJoCo-v0 for it."""
    model = folder / "reach.xml"
    model.write_text(ARM)
    return {
        "xml_file": model,
        "frame_skip": 5,
        "observation": ["qpos", "qvel", TIP, TARGET],
        "obs_dtype": "float32",
        "reward": reward,
        "reset_noise_scale": 0.1,
        "max_episode_steps": EPISODE,
        "model": {"site_pos": GOALS},
    }


def make_arms(num_envs: int, seed: int) -> rollouts.VectorEnv:
    """Makes arms with same-step autoreset."""
    with tempfile.TemporaryDirectory() as folder:
        return rollouts.make_vec(
            "MuJoCo-v0", num_envs, seed=seed, autoreset_mode="same_step", **options(Path(folder))
        )


def success_rate(act: Callable[[NDArray[Any]], NDArray[Any]], num_episodes: int = 100) -> float:
    """Plays an episode in each of `num_episodes` arms; returns the share that ends at its goal."""
    with make_arms(num_episodes, seed=10_000) as env:
        obs, _ = env.reset()
        for _ in range(EPISODE):
            obs, rewards, *_ = env.step(act(obs))
        return float((rewards == 0).mean())


class SuccessLog:
    """Success rates of one training by its env-steps, in a CSV file."""

    def __init__(self, path: Path, library: str) -> None:
        self.path, self.library = path, library
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("library,env_steps,success_rate\n")

    def add(self, env_steps: int, rate: float) -> None:
        """Appends a success rate, and prints it."""
        with self.path.open("a") as file:
            file.write(f"{self.library},{env_steps},{rate}\n")
        print(f"{env_steps:7,} env-steps: {rate:.0%} of 100 episodes end at their goal", flush=True)


def draw(path: Path, logs: Sequence[Path]) -> None:
    """Writes a PNG with the success rates of several trainings."""
    figure = Figure(figsize=(7, 3.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    colors: dict[str, str] = {}
    for log in logs:
        with log.open() as file:
            rows = list(csv.DictReader(file))
        library = rows[0]["library"] if rows else ""
        label = None if library in colors else library
        color = colors.setdefault(library, f"C{len(colors)}")
        steps = [int(row["env_steps"]) for row in rows]
        rates = [100 * float(row["success_rate"]) for row in rows]
        axes.plot(steps, rates, ".-", color=color, label=label)
    axes.set_xlabel("training [env-steps]")
    axes.set_ylabel("episodes that end at their goal [%]")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=120)
