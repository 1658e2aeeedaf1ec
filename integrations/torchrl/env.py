# SPDX-License-Identifier: Apache-2.0
"""`RolloutsEnv`: environments with one agent as a batched `EnvBase`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from tensordict import TensorDict, TensorDictBase
from torchrl.data import Binary, Categorical, Composite, Unbounded
from torchrl.envs import EnvBase

import rollouts
from rollouts.batch import StepBatch
from rollouts.errors import SpecError
from rollouts.specs import OptionColumn

from ..shared.pool_statistics import PoolStatistics
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

_PARTS = ("mean", "var", "count")  # parts of statistics


class RolloutsEnv(PoolStatistics, EnvBase):
    """N native environments as one TorchRL environment of batch_size [N].

    Running statistics of normalize_observation and normalize_reward are in its `state_dict`. An
    environment for evaluation that loads this `state_dict` scales by its statistics.

    Attributes:
      pool: The `rollouts.VectorEnv` behind it.
    """

    def __init__(
        self,
        envs: str | Sequence[str] | rollouts.VectorEnv,
        *,
        num_envs: int | None = None,
        device: str | torch.device = "cpu",
        categorical_action_encoding: bool = False,
        num_threads: int | None = None,
        seed: int | None = None,
        max_episode_steps: int | None = None,
        action_mask: bool = False,
        **env_options: OptionColumn,
    ) -> None:
        """Makes a pool, or takes one that exists.

        Args:
          envs: An id of `rollouts.env_ids()`, or one for each environment; or a synchronous pool
            that autoresets in the same step.
          device: Device of the tensors; the environments stay on the CPU.
          categorical_action_encoding: Discrete actions are indices, not one-hot vectors.
          num_envs, num_threads, seed, max_episode_steps, env_options: As `rollouts.make_vec`, for
            ids only.
          action_mask: Tensordicts have an "action_mask" (N, A) bool, the environments' own
            info["action_mask"], as TorchRL's ActionMask transform and MaskedCategorical read it.

        Raises:
          SpecError: A pool in another mode; masks of environments that report none; arguments that
              `make_vec` refuses.
        """
        made: dict[str, Any] = {"num_envs": num_envs, "num_threads": num_threads, "seed": seed}
        made |= {"max_episode_steps": max_episode_steps, **env_options}
        self.__dict__["_pool"] = open_pool(envs, made)
        pool = self.pool
        if hasattr(pool, "groups"):
            if isinstance(envs, (str, Sequence)):
                pool.close()
            raise SpecError(
                f"{pool.env_spec.id} has several agents: use RolloutsMultiAgentEnv, which has "
                "their groups"
            )
        if action_mask and "action_mask" not in pool.info_names:
            raise SpecError(
                f"action_mask=True for environments whose infos are {sorted(pool.info_names)}, "
                "expected an action_mask: leave it out"
            )
        self.__dict__["_has_masks"] = action_mask
        super().__init__(device=torch.device(device), batch_size=torch.Size([pool.num_envs]))
        self._one_hot = not categorical_action_encoding
        self._set_specs(pool)
        count = pool.num_envs
        self._started = False
        self._seed: int | None = None
        # environments that ended and that TorchRL has not reset yet
        self._ended = np.zeros(count, np.bool_)
        self._obs: Any = None  # (N, *obs_shape) numpy, the environments' present observations

    @property
    def pool(self) -> Any:
        """The `rollouts.VectorEnv` behind it; step it only through this environment."""
        return self.__dict__["_pool"]

    def _set_specs(self, pool: Any) -> None:
        batch, device = self.batch_size, self.device
        obs = space_spec(pool.single_observation_space, batch, device, one_hot=self._one_hot)
        action = space_spec(pool.single_action_space, batch, device, one_hot=self._one_hot)
        self.observation_spec = Composite(observation=obs, shape=batch)
        if self.has_action_mask:
            space = pool.single_action_space
            count = int(space.n if isinstance(space, spaces.Discrete) else space.nvec.sum())
            self.observation_spec["action_mask"] = Binary(
                count, shape=(*batch, count), dtype=torch.bool, device=device
            )
        self.action_spec = action
        self.reward_spec = Unbounded(shape=(*batch, 1), dtype=torch.float32, device=device)
        flag = Categorical(2, shape=(*batch, 1), dtype=torch.bool, device=device)
        self.done_spec = Composite({name: flag.clone() for name in FLAGS}, shape=batch)

    # -- EnvBase -------------------------------------------------------------------

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        """Begins episodes of all environments, or of those marked by "_reset" (N, 1) bool.

        Returns:
          The observations of all; those of unmarked environments are unchanged.
        """
        marked = None if tensordict is None else tensordict.get("_reset", None)
        mask = None if marked is None else marked_rows(marked)
        if mask is None or self._seed is not None or not self._started:
            self._obs, _ = self.pool.reset(seed=self._seed)
            self._seed, self._started = None, True
            self._ended[:] = False
        else:
            # the pool has itself reset the environments that ended
            running = mask & ~self._ended
            if running.any():
                self._obs, _ = self.pool.reset(options={"reset_mask": running})
            self._ended &= ~mask
        flags = {name: self._tensor(np.zeros((len(self._ended), 1), np.bool_)) for name in FLAGS}
        if self.has_action_mask:
            flags["action_mask"] = self._tensor(self.pool.action_masks().copy())
        return self._dict(self.batch_size, observation=self._observation(self._obs), **flags)

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Steps all environments with tensordict["action"], or those marked by "_step"."""
        rows = stepping_rows(tensordict, self._ended)
        space = self.pool.single_action_space
        action = to_actions(tensordict.get("action"), space, one_hot=self._one_hot)
        if rows is None:
            self.pool.send(action)
            return self._outcome(self.pool.recv_batch(), slice(None), self.batch_size)
        self.pool.send(action[rows], rows)
        batch = self.pool.recv_batch()
        part = self._outcome(batch, batch.env_id, torch.Size([len(rows)]))
        return with_skipped(self, tensordict, batch.env_id, part)

    def _outcome(self, batch: StepBatch, rows: Any, size: torch.Size) -> TensorDictBase:
        """The results of the environments of `rows`, as a tensordict of `size`."""
        ended = batch.terminated | batch.truncated
        obs = batch.obs
        if len(obs) == len(self._ended):
            self._obs = obs
        else:
            # a copy, because a tensor shares the array
            self._obs = self._obs.copy()
            self._obs[rows] = obs
        if ended.any():
            assert batch.final_obs is not None
            obs = np.where(ended.reshape(-1, *[1] * (obs.ndim - 1)), batch.final_obs, obs)
            self._ended[rows] = ended
        masks = {}
        if self.has_action_mask:
            # the last mask of an ended episode, like the observation
            masks["action_mask"] = self._tensor(batch.info["action_mask"] != 0)
        return self._dict(
            size,
            observation=self._observation(obs),
            reward=self._tensor(batch.reward).to(torch.float32).unsqueeze(-1),
            done=self._tensor(ended).unsqueeze(-1),
            terminated=self._tensor(batch.terminated).unsqueeze(-1),
            truncated=self._tensor(batch.truncated).unsqueeze(-1),
            **masks,
        )

    def _set_seed(self, seed: int | None) -> None:
        """Makes the next reset of all environments begin the streams of this seed."""
        self._seed = seed

    def close(self, *args: Any, **kwargs: Any) -> None:
        """Closes the pool. May be called twice."""
        self.is_closed = True
        self.pool.close()

    # -- torch.nn.Module -----------------------------------------------------------

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name in self._statistics():
            kept = getattr(self, name)
            for part in _PARTS:
                value = torch.as_tensor(getattr(kept, part), dtype=torch.float64)
                destination[f"{prefix}{name}.{part}"] = value.clone()

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, metadata: Any, strict: bool,
        missing: list[str], unexpected: list[str], errors: list[str],
    ) -> None:  # fmt: skip
        for name in self._statistics():
            keys = [f"{prefix}{name}.{part}" for part in _PARTS]
            absent = [key for key in keys if key not in state_dict]
            missing += absent if strict else []
            if not absent:
                mean, var, count = (np.asarray(state_dict.pop(key).cpu()) for key in keys)
                setattr(self, name, rollouts.RunningStatistics(mean, var, float(count)))
        super()._load_from_state_dict(
            state_dict, prefix, metadata, strict, missing, unexpected, errors
        )

    def _statistics(self) -> list[str]:
        return [f"{kind}_statistics" for kind in getattr(self.pool, "normalizes", ())]

    # -- for RolloutsCollector -----------------------------------------------------

    @property
    def goes_on_by_itself(self) -> bool:
        """Tells if every environment is in an episode, and no seed waits for a reset."""
        return self._started and self._seed is None and not self._ended.any()

    @property
    def has_action_mask(self) -> bool:
        """Tells if tensordicts have an "action_mask"."""
        return bool(self.__dict__["_has_masks"])

    @property
    def is_one_hot(self) -> bool:
        """Tells if Discrete actions and observations are one-hot vectors."""
        return self._one_hot

    def collect(self, policy: Any, arrays: dict[str, Array]) -> Array:
        """As `VectorEnv.collect`; returns the last observations of episodes that ended.

        After an error the environments are somewhere in the rollout, and need a reset.
        """
        self._started = False
        final_obs: Array = self.pool.collect(policy, arrays, rules={"keep_final_obs": True})
        obs = arrays["obs"]
        self._obs, self._started = obs[-1], True
        return final_obs.reshape(-1).view(obs.dtype).reshape(-1, *obs.shape[2:])

    # -- helpers -------------------------------------------------------------------

    def _observation(self, obs: Array) -> torch.Tensor:
        """Makes a tensor; a Discrete space is one-hot where actions are one-hot, as in GymEnv."""
        space, tensor = self.pool.single_observation_space, self._tensor(obs)
        if self._one_hot and isinstance(space, spaces.Discrete):
            return torch.nn.functional.one_hot(tensor.long(), int(space.n))
        if self._one_hot and isinstance(space, spaces.MultiDiscrete):
            parts = zip(tensor.long().unbind(-1), space.nvec.tolist(), strict=True)
            return torch.cat([torch.nn.functional.one_hot(part, n) for part, n in parts], -1)
        return tensor

    def _tensor(self, array: Array) -> torch.Tensor:
        return torch.from_numpy(array).to(self.device)

    def _dict(self, size: torch.Size, **tensors: torch.Tensor) -> TensorDictBase:
        return TensorDict(tensors, batch_size=size, device=self.device)
