# SPDX-License-Identifier: Apache-2.0
"""States and episodes of a trained policy."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from comparisons.verify_mujoco.driver import Driver
from comparisons.verify_mujoco.models import states_of
from comparisons.verify_mujoco.runs import Means
from rollouts.checkpoint import load_checkpoint
from rollouts.cli.checkpoint_policy import load_policy
from rollouts.cli.checkpoint_program import load_program, options_of
from rollouts.collecting.evaluation import evaluate
from rollouts.envs.make import make_pool
from rollouts.mujoco import integration_state


class Trained:
    """A checkpoint's policy in pools of its environment."""

    def __init__(self, run: Path, args: argparse.Namespace) -> None:
        """Reads the checkpoint and its program. `id` is the environment of its training.

        Raises:
          SpecError: As `rollouts.checkpoint.load_checkpoint`, or its program is missing.
        """
        self._run, self._seed = run, args.seed
        self._checkpoint = load_checkpoint(run)
        self._options = dict(options_of(self._checkpoint, run, {}))
        self._program = load_program(self._checkpoint, run, network=args.network, trust=args.trust)
        self.id = self._checkpoint.id

    def episodes(self, engine: str, episodes: int) -> Means:
        """Plays episodes of the policy, with actions drawn as in training."""
        env, policy = self._make(engine, min(16, episodes))
        with env:
            found = evaluate(env, policy, episodes)
        return Means(found.returns, found.lengths.astype(np.float64))

    def player(self, driver: Driver) -> PoolPlayer:
        """A player that gives environments' states to the driver's rows of the kind "policy"."""
        rows = [row for row, kind in enumerate(driver.kinds) if kind == "policy"]
        env, policy = self._make("mujoco", len(rows))
        return PoolPlayer(env, policy, rows)

    def _make(self, engine: str, num_envs: int) -> tuple[Any, Any]:
        options = {**self._options, "engine": engine}
        env = make_pool(
            self.id,
            num_envs,
            seed=self._seed,
            autoreset_mode="same_step",
            max_episode_steps=options.pop("max_episode_steps", None),
            env_options=options,
        )
        self._checkpoint.freeze_statistics(env)
        policy = load_policy(
            self._checkpoint, self._run, env.env_spec, program=self._program, samples=True,
            seed=self._seed, num_envs=num_envs,
        )  # fmt: skip
        return env, policy


class PoolPlayer:
    """A pool stepped by MuJoCo, whose environments' states are given to a driver."""

    def __init__(self, env: Any, policy: Any, rows: list[int]) -> None:
        """Begins episodes; `close` ends the pool."""
        self._env, self._policy, self._rows = env, policy, rows
        self._obs, _ = env.reset()

    def __call__(self, driver: Driver) -> None:
        """Gives rows the states of the pool's next step, before an env-step's first substep."""
        if not driver.at_env_step:
            return
        action = self._policy.act(self._obs).action
        numbers = np.stack([integration_state(state) for state in self._env.get_state()])
        states = states_of(driver.model, numbers)
        states.ctrl[:] = action
        driver.states.put(self._rows, states)
        self._obs = self._env.step(action)[0].copy()

    def close(self) -> None:
        """Ends the pool."""
        self._env.close()
