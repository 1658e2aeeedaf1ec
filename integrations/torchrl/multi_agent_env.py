# SPDX-License-Identifier: Apache-2.0
"""`RolloutsMultiAgentEnv`: environments with several agents as a batched `EnvBase`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from tensordict import TensorDict, TensorDictBase
from torchrl.data import Categorical, Composite, Unbounded
from torchrl.envs import EnvBase

import rollouts
from rollouts.envs.agent_groups import MultiAgentBatch
from rollouts.errors import SpecError
from rollouts.specs import OptionColumn

from .shared_parts import (
    FLAGS,
    marked_rows,
    open_pool,
    space_spec,
    stepping_rows,
    to_actions,
    with_skipped,
)

Array = npt.NDArray[Any]
Arrays = dict[str, Array]


class RolloutsMultiAgentEnv(EnvBase):
    """N native environments with several agents as one TorchRL environment of batch_size [N].

    Keys are those of TorchRL's own wrappers of PettingZoo and VMAS. A group with A agents has:
      (group, "observation")  (N, A, *obs_shape)     ("next", group, "reward")  (N, A, 1) float32
      (group, "action")       (N, A, *action_shape)
      (group, "mask")         (N, A) bool            the agent acts in this state
      (group, "done"), (group, "terminated"), (group, "truncated")  (N, A, 1) bool
    An agent that leaves is "terminated" until its episode ends; its "mask" is False and its action
    is ignored. The environments' own "done", "terminated" and "truncated" (N, 1) bool are set only
    at an episode's end: "truncated" where any agent is truncated, else "terminated".

    At an episode's end ("next", group, "observation") is the true last one, as in RolloutsEnv.

    Attributes:
      pool: The `rollouts.MultiAgentVectorEnv` behind it.
      group_map: group -> names of its agents.
    """

    def __init__(
        self,
        envs: str | rollouts.MultiAgentVectorEnv,
        *,
        num_envs: int | None = None,
        device: str | torch.device = "cpu",
        categorical_actions: bool = True,
        num_threads: int | None = None,
        seed: int | None = None,
        max_episode_steps: int | None = None,
        **env_options: OptionColumn,
    ) -> None:
        """Makes a pool, or takes one that exists.

        Args:
          envs: An id of `rollouts.multi_agent_ids()`; or a synchronous pool that autoresets in the
            same step.
          device: Device of the tensors; the environments stay on the CPU.
          categorical_actions: Discrete actions are indices, not one-hot vectors.
          num_envs, num_threads, seed, max_episode_steps, env_options: As `rollouts.make_vec`, for
            ids only.

        Raises:
          SpecError: A pool in another mode or with one agent; arguments that `make_vec` refuses.
        """
        made: dict[str, Any] = {"num_envs": num_envs, "num_threads": num_threads, "seed": seed}
        made |= {"max_episode_steps": max_episode_steps, **env_options}
        pool = self.__dict__["_pool"] = open_pool(envs, made)
        if not hasattr(pool, "groups"):
            if isinstance(envs, (str, Sequence)):
                pool.close()
            raise SpecError(
                f"envs is {envs!r}, expected an id of rollouts.multi_agent_ids() or a "
                "MultiAgentVectorEnv: environments with one agent are a RolloutsEnv"
            )
        super().__init__(
            device=torch.device(device),
            batch_size=torch.Size([pool.num_envs]),
            # some agents of an environment that was not reset may have left
            allow_done_after_reset=True,
        )
        self._one_hot = not categorical_actions
        self.group_map = {name: list(group.agents) for name, group in pool.groups.items()}
        self._set_specs(pool)
        self._seed: int | None = None
        self._started = False
        # environments that ended and that TorchRL has not reset yet
        self._ended = np.zeros(pool.num_envs, np.bool_)
        self._obs: Arrays = {}  # the environments' present observations
        # agents that act in the next step
        self._acting = {
            name: np.ones((pool.num_envs, group.num_agents), np.bool_)
            for name, group in pool.groups.items()
        }

    @property
    def pool(self) -> rollouts.MultiAgentVectorEnv:
        """The pool behind it; step it only through this environment."""
        pool: rollouts.MultiAgentVectorEnv = self.__dict__["_pool"]
        return pool

    def _set_specs(self, pool: rollouts.MultiAgentVectorEnv) -> None:
        rows, device = self.batch_size, self.device

        def flags(batch: torch.Size) -> dict[str, Categorical]:
            spec = Categorical(2, shape=(*batch, 1), dtype=torch.bool, device=device)
            return {name: spec.clone() for name in FLAGS}

        observations, actions, rewards, dones = {}, {}, {}, {}
        for name, group in pool.groups.items():
            batch = torch.Size([*rows, group.num_agents])
            seen = space_spec(group.single_observation_space, batch, device, one_hot=False)
            acts = space_spec(group.single_action_space, batch, device, one_hot=self._one_hot)
            mask = Categorical(2, shape=batch, dtype=torch.bool, device=device)
            reward = Unbounded(shape=(*batch, 1), dtype=torch.float32, device=device)
            observations[name] = Composite(observation=seen, mask=mask, shape=batch)
            actions[name] = Composite(action=acts, shape=batch)
            rewards[name] = Composite(reward=reward, shape=batch)
            dones[name] = Composite(flags(batch), shape=batch)
        self.observation_spec = Composite(observations, shape=rows)
        self.action_spec = Composite(actions, shape=rows)
        self.reward_spec = Composite(rewards, shape=rows)
        self.done_spec = Composite({**flags(rows), **dones}, shape=rows)

    # -- EnvBase -------------------------------------------------------------------

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        """Begins episodes of all environments, or of those marked by "_reset" (N, 1) bool.

        Returns:
          The observations, masks and ends of all agents; those of unmarked environments are
            unchanged.
        """
        marked = None if tensordict is None else tensordict.get("_reset", None)
        mask = None if marked is None else marked_rows(marked)
        if mask is None or self._seed is not None or not self._started:
            obs, _ = self.pool.reset(seed=self._seed)
            self._obs = self._by_group(obs)
            self._seed, self._started = None, True
            mask = np.ones(self.pool.num_envs, np.bool_)
        else:
            # the pool has itself reset the environments that ended
            running = mask & ~self._ended
            if running.any():
                obs, _ = self.pool.reset(options={"reset_mask": running})
                self._obs = self._by_group(obs)
        self._ended &= ~mask
        parts: dict[str, Any] = {}
        for name, acting in self._acting.items():
            acting |= mask[:, None]
            gone = ~acting & ~self._ended[:, None]
            ends = self._flags(terminated=gone, truncated=np.zeros_like(gone))
            parts[name] = self._group(name, self._obs[name], acting.copy(), ends)
        never = np.zeros_like(mask)
        return self._dict({**self._flags(terminated=never, truncated=never), **parts})

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Steps all environments with the groups' actions, or those marked by "_step"."""
        rows = stepping_rows(tensordict, self._ended)
        for name in self.pool.groups:
            # TorchRL does not remove this mark from groups, and could not stack them with it
            tensordict.get(name).pop("_neg_step", None)
        actions = {
            name: to_actions(
                tensordict.get((name, "action")), group.single_action_space, one_hot=self._one_hot
            )
            for name, group in self.pool.groups.items()
        }
        if rows is None:
            self.pool.send(actions)
            return self._outcome(self.pool.recv_batch(), slice(None), self.batch_size)
        self.pool.send({name: action[rows] for name, action in actions.items()}, rows)
        batch = self.pool.recv_batch()
        part = self._outcome(batch, batch.env_id, torch.Size([len(rows)]))
        return with_skipped(self, tensordict, batch.env_id, part)

    def _outcome(self, batch: MultiAgentBatch, rows: Any, size: torch.Size) -> TensorDictBase:
        """The results of the environments of `rows`, as a tensordict of `size`."""
        ended = batch.ended.copy()
        obs, final_obs = self._by_group(batch.obs), self._by_group(batch.final_obs)
        cut = np.zeros_like(ended)
        parts: dict[str, Any] = {}
        for name, rewards in self._by_group(batch.reward).items():
            active, terminated, truncated = (
                self._by_group(each)[name]
                for each in (batch.active, batch.terminated, batch.truncated)
            )
            cut |= truncated.any(axis=1)
            ends = self._flags(terminated=terminated | ~active, truncated=truncated)
            acting = active & ~terminated & ~truncated
            seen = obs[name]
            if ended.any():
                at_end = ended.reshape(-1, *[1] * (seen.ndim - 1))
                seen = np.where(at_end, final_obs[name], seen)
            part = self._group(name, seen, acting, ends)
            parts[name] = part.set("reward", self._tensor(rewards).float().unsqueeze(-1))
            self._acting[name][rows] = acting
            if len(obs[name]) == len(self._ended):
                self._obs[name] = obs[name]
            else:
                # a copy, because a tensor shares the array
                self._obs[name] = self._obs[name].copy()
                self._obs[name][rows] = obs[name]
        self._ended[rows] = ended
        ends = self._flags(terminated=ended & ~cut, truncated=ended & cut)
        return TensorDict({**ends, **parts}, batch_size=size, device=self.device)

    def _set_seed(self, seed: int | None) -> None:
        """Makes the next reset of all environments begin the streams of this seed."""
        self._seed = seed

    def close(self, *args: Any, **kwargs: Any) -> None:
        """Closes the pool. May be called twice."""
        self.is_closed = True
        self.pool.close()

    # -- helpers -------------------------------------------------------------------

    def _by_group(self, arrays: Any) -> Arrays:
        if isinstance(arrays, Mapping):
            return dict(arrays)
        return dict.fromkeys(self.pool.groups, arrays)

    def _flags(self, *, terminated: Array, truncated: Array) -> dict[str, torch.Tensor]:
        values = {"done": terminated | truncated, "terminated": terminated, "truncated": truncated}
        return {name: self._tensor(value).unsqueeze(-1) for name, value in values.items()}

    def _group(
        self, name: str, obs: Array, acting: Array, ends: Mapping[str, torch.Tensor]
    ) -> TensorDictBase:
        """The part of a tensordict for one group's agents."""
        seen = {"observation": self._tensor(obs), "mask": self._tensor(acting), **ends}
        return TensorDict(seen, batch_size=acting.shape, device=self.device)

    def _tensor(self, array: Array) -> torch.Tensor:
        return torch.from_numpy(array).to(self.device)

    def _dict(self, parts: Mapping[str, Any]) -> TensorDictBase:
        return TensorDict(dict(parts), batch_size=self.batch_size, device=self.device)
