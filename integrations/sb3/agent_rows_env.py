# SPDX-License-Identifier: Apache-2.0
"""AgentRowsVecEnv: agents that share a policy as the rows of a `VecEnv`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from rollouts.envs.agent_rows import AgentRows
from rollouts.errors import SpecError

from ..shared.missing import needs
from ..shared.whole_games import records
from .base import BaseVecEnv, Indices, Infos
from .native_vec_env import final_obs_of, refuse_options, truncated_rows

try:
    from stable_baselines3.common.monitor import Monitor
except ImportError as error:
    raise needs("sb3", error) from error

Array = NDArray[Any]


class AgentRowsVecEnv(BaseVecEnv):
    """N environments with A agents as N * A environments with one agent.

    An agent that leaves early is done in that step. Until its environment's episode ends, its row
    has the reward 0, its actions are ignored, and `info["active"]` is False; Stable-Baselines3
    learns from these steps, too, because its buffers have no mask.

    Arrays returned belong to the caller: later steps do not change them.

    Seeds are those of the first agent of each environment.
    """

    pool: AgentRows

    def __init__(
        self, env: AgentRows, num_envs: int | None = None, *, monitor: bool = True, **options: Any
    ) -> None:
        """Takes over what `MultiAgentVectorEnv.as_single_agent` returned.

        Args:
          env: Rows of environments that were made with autoreset_mode="same_step".
          num_envs: None; the rows have their number.
          monitor: Whether `info["episode"]` has the return, length and time of an agent's episode.
          options: Refused, because `rollouts.make_vec` has them.

        Raises:
          SpecError: The environments autoreset otherwise, or options are given.

        Example:
          env = rollouts.make_vec("simple_spread_v3", 16, autoreset_mode="same_step")
          model = PPO("MlpPolicy", RolloutsVecEnv(env.as_single_agent()))
        """
        refuse_options(env, num_envs, options)
        if env.autoreset_mode is not AutoresetMode.SAME_STEP:
            raise SpecError(
                f"{env!r} has autoreset_mode {env.autoreset_mode.name}, expected SAME_STEP: make "
                'it with rollouts.make_vec(..., autoreset_mode="same_step").as_single_agent()'
            )
        self._monitor, self._start_s = monitor, time.time()
        self._last_obs: Array | None = None
        self._set = [dict[str, Any]() for _ in range(env.num_envs)]
        self._returns = np.zeros(env.num_envs)
        self._lengths = np.zeros(env.num_envs, np.int64)
        super().__init__(env, env.single_observation_space, env.single_action_space)

    def step_async(self, actions: Array) -> None:
        """Starts a step of every agent; actions (N * A, *action_shape)."""
        self.pool.send(actions)

    def step_wait(self) -> tuple[Array, NDArray[np.float32], NDArray[np.bool_], Infos]:
        """Waits for the step; returns obs (N * A, ...), rewards, dones (N * A,) and infos."""
        step = self.pool.recv_batch()
        done, active = step.terminated | step.truncated, step.info["active"]
        self._returns += np.where(active, step.reward, 0.0)
        self._lengths += active
        infos: Infos = [
            {"active": acts, "TimeLimit.truncated": cut}
            for acts, cut in zip(active.tolist(), truncated_rows(step).tolist(), strict=True)
        ]
        for row in np.flatnonzero(done).tolist():
            infos[row]["terminal_observation"] = final_obs_of(step, row, self._last_obs)
        if self._monitor:
            over = np.flatnonzero(done & active)
            seconds = round(time.time() - self._start_s, 6)
            found = records(self._returns[over], self._lengths[over], seconds)
            for row, record in zip(over.tolist(), found, strict=True):
                infos[row]["episode"] = record
        self._returns[done], self._lengths[done] = 0.0, 0
        self._last_obs = step.obs
        return step.obs, step.reward.astype(np.float32), done, infos

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """Reads what set_attr has set, or an attribute of the rows' environment."""
        return [
            self._set[row][attr_name]
            if attr_name in self._set[row]
            else getattr(self.pool, attr_name)
            for row in self._numbers(indices)
        ]

    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        """Sets an attribute of rows, which get_attr reads."""
        for row in self._numbers(indices):
            self._set[row][attr_name] = value

    def env_method(
        self, method_name: str, *method_args: Any, indices: Indices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Refuses: an agent is no environment of its own.

        Raises:
          SpecError: Always; it names the object that has methods.
        """
        raise SpecError(
            f"{method_name!r} cannot be called of one agent: call methods of the environments, "
            "pool.envs"
        )

    def env_is_wrapped(
        self, wrapper_class: type[gymnasium.Wrapper[Any, Any, Any, Any]], indices: Indices = None
    ) -> list[bool]:
        """True for Monitor, whose task this object does, unless monitor=False; else False."""
        does = self._monitor and issubclass(Monitor, wrapper_class)
        return [does for _ in self._numbers(indices)]

    def _begin(self, seeds: list[int | None] | None) -> tuple[Array, Infos]:
        if any(self._options):
            raise SpecError(
                "agents as rows share their environments' options: give them to rollouts.make_vec"
            )
        agents = self.num_envs // self.pool.envs.num_envs
        obs, info = self.pool.reset(seed=None if seeds is None else seeds[::agents])
        self._returns[:], self._lengths[:] = 0.0, 0
        self._last_obs = obs
        return obs, [{"active": active} for active in info["active"].tolist()]

    def _draw(self) -> Sequence[Array]:
        """One frame for each environment, repeated for its agents."""
        agents = self.num_envs // self.pool.envs.num_envs
        return [frame for frame in self.pool.render() for _ in range(agents)]
