# SPDX-License-Identifier: Apache-2.0
"""`AgentRows`: agents of a MultiAgentVectorEnv as rows of a Gymnasium vector environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv
from gymnasium.vector.utils import batch_space

from rollouts._native import FinalRows
from rollouts.batch import StepBatch
from rollouts.envs.agent_groups import Grouped, MultiAgentBatch, agent_steps
from rollouts.errors import SpecError
from rollouts.specs import AgentGroup

Array = npt.NDArray[Any]
Info = dict[str, Any]


class AgentEnvs(Protocol):
    """Environments with several agents, as far as `AgentRows` uses a `MultiAgentVectorEnv`."""

    groups: dict[str, AgentGroup]
    agents: list[str]
    num_envs: int
    batch_size: int
    env_id_offset: int
    autoreset_mode: AutoresetMode
    metadata: dict[str, Any]
    render_mode: str | None

    @property
    def num_calls(self) -> int:
        """The number of steps, resets and receives."""
        ...

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Grouped, Info]:
        """Starts new episodes."""
        ...

    def async_reset(self) -> None:
        """Starts new episodes without waiting."""
        ...

    def send(self, actions: Grouped) -> None:
        """Starts stepping all environments."""
        ...

    def recv_batch(self, timeout_s: float | None = None) -> MultiAgentBatch:
        """Waits for the environments sent."""
        ...

    def render(self) -> tuple[npt.NDArray[np.uint8], ...]:
        """Returns a frame of each environment."""
        ...

    def close(self) -> None:
        """Ends the environments."""
        ...


class AgentRows(GymnasiumVectorEnv[Array, Array, Array]):
    """N environments with A agents as N * A environments with one agent, for a shared policy.

    Rows are agents of the first environment, group after group, then those of the next one. They
    end together, except for agents that leave early. The row of such an agent is `terminated` once.
    From then on it stands for an episode in which nothing happens: its rewards are 0 and its
    actions are ignored, until the environment's episode ends and truncates it. `info["active"]` is
    False there, for learners that mask such steps.

    `step` and `reset` are Gymnasium's. `rollouts.Collector` uses `send`, `recv_batch` and
    `async_reset`.

    Attributes:
      envs: The environments, which `close` closes too.
      num_envs, batch_size: N * A.
      env_id_offset: Row 0's number in `info["env_id"]`.
      autoreset_mode: The mode of `envs`.
      reports_active: True, for collectors: `info["active"]` tells which rows take part.
    """

    reports_active = True
    why_not_collects = (
        "its rows are agents, which Python lays out step by step: collect the environments by group"
    )

    def __init__(self, envs: AgentEnvs) -> None:
        """Takes over a synchronous environment.

        Raises:
          SpecError: It is asynchronous, does not autoreset, or its groups have unlike spaces.
        """
        self.closed = True  # until there is something to close
        groups = list(envs.groups.values())
        first = groups[0]
        for other in groups[1:]:
            for name in ("single_observation_space", "single_action_space"):
                one, another = getattr(first, name), getattr(other, name)
                if one != another:
                    raise SpecError(
                        f"agents as rows need equal spaces: the {name} of group {first.name!r} is "
                        f"{one}, that of {other.name!r} is {another}; take the groups apart"
                    )
        if envs.batch_size != envs.num_envs:
            raise SpecError("agents as rows need a synchronous environment: leave batch_size out")
        if envs.autoreset_mode is AutoresetMode.DISABLED:
            raise SpecError("agents as rows need autoreset: agents of one environment end together")
        self.envs = envs
        self._num_agents = len(envs.agents)
        self._counts = [group.num_agents for group in groups]
        self.num_envs = envs.num_envs * self._num_agents
        self.batch_size = self.num_envs
        self.env_id_offset = envs.env_id_offset * self._num_agents
        self.autoreset_mode = envs.autoreset_mode
        self.metadata = {**envs.metadata}
        self.render_mode = envs.render_mode
        self.single_observation_space = first.single_observation_space
        self.single_action_space = first.single_action_space
        self.observation_space = batch_space(first.single_observation_space, self.num_envs)
        self.action_space = batch_space(first.single_action_space, self.num_envs)
        self._env_id = np.arange(self.num_envs, dtype=np.int32) + np.int32(self.env_id_offset)
        self._final_rows = FinalRows()
        self.closed = False

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Array, Info]:
        """Starts new episodes; `seed` is an int, or one for each of the N environments."""
        obs, info = self.envs.reset(seed=seed, options=options)
        return self._rows(obs), self._info(info)

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, Info]:
        """Takes (N * A, *action_shape) actions; returns what Gymnasium's vector environments do."""
        self.send(actions)
        batch = self.recv_batch()
        info = {
            **batch.info,
            "env_id": batch.env_id,
            "episode_return": batch.episode_return,
            "episode_length": batch.episode_length,
        }
        if batch.final_obs is not None:
            self._final_rows.add(info, batch.final_obs, batch.terminated, batch.truncated)
        return batch.obs, batch.reward, batch.terminated, batch.truncated, info

    def async_reset(self) -> None:
        """Starts new episodes without waiting; `recv_batch` returns the first observations."""
        self.envs.async_reset()

    def send(self, actions: Array, env_id: npt.NDArray[np.int32] | None = None) -> None:
        """Starts stepping all rows and returns at once.

        Raises:
          SpecError: Not one action for each row, or `env_id` is given.
        """
        if env_id is not None:
            raise SpecError("agents of an environment are stepped together: leave env_id out")
        actions = np.asarray(actions)
        if actions.shape[:1] != (self.num_envs,):
            raise SpecError(
                f"actions has shape {actions.shape}, expected ({self.num_envs}, ...): one row per "
                f"agent of {self.envs.num_envs} environments with {self._num_agents}"
            )
        by_env = actions.reshape(self.envs.num_envs, self._num_agents, *actions.shape[1:])
        parts = np.split(by_env, np.cumsum(self._counts)[:-1], axis=1)
        self.envs.send(
            dict(zip(self.envs.groups, parts, strict=True)) if len(parts) > 1 else parts[0]
        )

    def recv_batch(self, timeout_s: float | None = None) -> StepBatch:
        """Waits for the rows sent; `final_obs` is valid where terminated | truncated."""
        batch = self.envs.recv_batch(timeout_s)
        return agent_steps(batch, self._rows, self._env_id)

    def render(self) -> tuple[npt.NDArray[np.uint8], ...]:  # type: ignore[override]
        """N frames (height, width, 3): one of each environment, with all its agents."""
        return self.envs.render()

    @property
    def num_calls(self) -> int:
        """The number of steps, resets and receives, by which collectors notice other callers."""
        return self.envs.num_calls

    def close_extras(self, **kwargs: Any) -> None:
        """Closes the environments."""
        self.envs.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles what makes the environments again, not their state."""
        return AgentRows, (self.envs,)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _rows(self, arrays: Any) -> Array:
        """(N * A, ...): a view where there is one group, else a copy."""
        whole = (
            np.concatenate(list(arrays.values()), axis=1) if isinstance(arrays, dict) else arrays
        )
        rows: Array = whole.reshape(self.num_envs, *whole.shape[2:])
        return rows

    def _info(self, info: Info) -> Info:
        return {
            "active": self._rows(info["active"]),
            "env_id": self._env_id,
            "episode_return": self._rows(info["episode_return"]),
            "episode_length": np.repeat(info["episode_length"], self._num_agents),
        }
