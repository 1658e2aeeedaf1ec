# SPDX-License-Identifier: Apache-2.0
"""`ParallelEnvsVectorEnv`: PettingZoo environments in processes, as a native pool shows its own."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from rollouts.batch import StepBatch
from rollouts.env_fns.agents.one_env import FLAGS, NUMBERS, ParallelEnvAsOne, ParallelEnvFn
from rollouts.env_fns.vector_env import EnvFnsVectorEnv
from rollouts.errors import DTypeError, SpecError
from rollouts.pool.agent_groups import AgentGroups, Grouped, MultiAgentBatch
from rollouts.pool.agent_rows import AgentRows

Array = npt.NDArray[Any]
Info = dict[str, Any]


class ParallelEnvsVectorEnv(AgentGroups):
    """N PettingZoo environments in processes; see `rollouts.from_parallel_env_fns`.

    `reset`, `step`, `send`, `recv`, `recv_batch`, `drain`, `async_reset` and `as_single_agent` are
    those of `rollouts.MultiAgentVectorEnv`, whose docstrings say what they take and return.
    Observations of agents that are not there are zeros. Infos that an environment's agents report
    are in `info["agent_infos"]`, an object array of mappings by agent; same-step
    autoreset shows there what the reset reported, where an episode ended.

    Attributes:
      envs: The EnvFnsVectorEnv behind it.
      groups, agents, single_observation_spaces, single_action_spaces, observation_space,
        action_space, num_envs, batch_size, env_id_offset, autoreset_mode: as
        `rollouts.MultiAgentVectorEnv`.
    """

    def __init__(self, env_fns: Sequence[ParallelEnvFn], **arguments: Any) -> None:
        """Starts the processes."""
        if callable(env_fns) or not all(callable(make) for make in env_fns):
            raise DTypeError("env_fns must be a sequence of functions that make a ParallelEnv each")
        one_envs = [functools.partial(ParallelEnvAsOne, make) for make in env_fns]
        self.envs = EnvFnsVectorEnv(one_envs, episode_statistics=True, **arguments)
        try:
            groups = self.envs.get_attr("groups")
            for index, other in enumerate(groups):
                if [one.agents for one in other] != [one.agents for one in groups[0]]:
                    raise SpecError(
                        f"environment {index} has the agents {[one.agents for one in other]}, "
                        f"environment 0 {[one.agents for one in groups[0]]}: expected the same"
                    )
        except BaseException:
            self.envs.close()
            raise
        self.num_envs, self.batch_size = self.envs.num_envs, self.envs.batch_size
        self.env_id_offset = self.envs.env_id_offset
        self.autoreset_mode: AutoresetMode = self.envs.autoreset_mode
        self.metadata = self.envs.metadata
        self.render_mode = self.envs.render_mode
        self._set_groups(groups[0], self.batch_size)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Grouped, Info]:
        """Starts new episodes; `options` go to the environments, but for reset_mask."""
        obs, info = self.envs.reset(seed=seed, options=options)
        batch = self._batch(obs, info, ended=np.zeros(len(info["env_id"]), np.bool_))
        return batch.obs, self._info(batch, info)

    def step(
        self, actions: Grouped, env_id: npt.ArrayLike | None = None
    ) -> tuple[Grouped, Grouped, Grouped, Grouped, Info]:
        """Steps the environments and waits for a batch."""
        self.send(actions, env_id)
        return self.recv()

    def send(self, actions: Grouped, env_id: npt.ArrayLike | None = None) -> None:
        """Starts stepping environments and returns at once."""
        arrays = self._in_order(actions)
        self.envs.send(dict(zip(self.groups, arrays, strict=True)), env_id)

    def async_reset(self) -> None:
        """Starts new episodes everywhere without waiting."""
        self.envs.async_reset()

    def recv(
        self, timeout_s: float | None = None, **rows: int | None
    ) -> tuple[Grouped, Grouped, Grouped, Grouped, Info]:
        """Waits for the next batch; `min_envs` and `max_envs` as `VectorEnv.recv`."""
        return self._five(self.envs.recv_batch(timeout_s, **rows))

    def recv_batch(self, timeout_s: float | None = None, **rows: int | None) -> MultiAgentBatch:
        """Waits for the next batch and returns its plain arrays."""
        return self._of(self.envs.recv_batch(timeout_s, **rows))

    def as_single_agent(self) -> AgentRows:
        """Agents as rows of a Gymnasium vector environment, as `MultiAgentVectorEnv` has it."""
        return AgentRows(self)

    def render(self) -> tuple[Any, ...]:
        """What the environments draw, in order."""
        return self.envs.render()

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Calls a method of each environment's ParallelEnv; see `EnvFnsVectorEnv.call`."""
        return self.envs.call(name, *args, **kwargs)

    def close(self) -> None:
        """Ends the processes. May be called twice."""
        self.envs.close()

    @property
    def num_calls(self) -> int:
        """How often somebody stepped, reset or received, for collectors."""
        return self.envs.num_calls

    @property
    def num_in_flight(self) -> int:
        """Environments sent and not yet received."""
        return self.envs.num_in_flight

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        groups = ", ".join(f"{group.num_agents} {name}" for name, group in self.groups.items())
        return (
            f"rollouts.ParallelEnvsVectorEnv({groups}, num_envs={self.num_envs}, "
            f"batch_size={self.batch_size}, num_processes={self.envs.num_processes}, "
            f"autoreset_mode={self.autoreset_mode.name})"
        )

    def _five(self, step: StepBatch) -> tuple[Grouped, Grouped, Grouped, Grouped, Info]:
        batch = self._of(step)
        info = self._info(batch, step.info)
        return batch.obs, batch.reward, batch.terminated, batch.truncated, info

    def _of(self, step: StepBatch) -> MultiAgentBatch:
        info = {**step.info, "env_id": step.env_id, "episode_length": step.episode_length}
        ended = step.terminated | step.truncated
        return self._batch(step.obs, info, ended=ended, final=step.final_obs)

    def _batch(self, obs: Any, info: Info, *, ended: Array, final: Any = None) -> MultiAgentBatch:
        columns = {}
        for name in (*FLAGS, *NUMBERS):
            values = {group: np.array(obs[name][group]) for group in self.groups}
            if final is not None:
                # the step's numbers came with the observation that the reset replaced
                for group, array in values.items():
                    array[ended] = final[name][group][ended]
            columns[name] = {
                group: array.astype(np.bool_) if name in FLAGS else array
                for group, array in values.items()
            }
        # one that failed says nothing of its agents, and shows its last step: all are truncated
        failed = ended & ~(obs if final is None else final)["is_over"].astype(np.bool_)
        failed = failed | info.get("_env_error", False)
        for group in self.groups:
            for name in ("reward", "terminated", "joined"):
                columns[name][group][failed] = 0
            for name in ("truncated", "active"):
                columns[name][group][failed] = True
        return MultiAgentBatch(
            obs=self._grouped(list(self._ordered(obs["obs"]))),
            **{name: self._grouped(list(self._ordered(each))) for name, each in columns.items()},
            final_obs=None if final is None else self._grouped(list(self._ordered(final["obs"]))),
            ended=ended,
            failed=info.get("_env_error", np.zeros(len(ended), np.bool_)),
            env_id=info["env_id"],
            episode_length=info["episode_length"],
        )

    def _ordered(self, arrays: Mapping[str, Any]) -> Any:
        return (arrays[name] for name in self.groups)

    def _info(self, batch: MultiAgentBatch, told: Info) -> Info:
        own = ("agent_infos", "_agent_infos", "env_error", "_env_error")
        info: Info = {
            "active": batch.active,
            "episode_return": batch.episode_return,
            "env_id": batch.env_id,
            "episode_length": batch.episode_length,
            "ended": batch.ended,
            **{name: told[name] for name in own if name in told},
        }
        if batch.final_obs is not None:
            info["final_obs"] = batch.final_obs
        return info
