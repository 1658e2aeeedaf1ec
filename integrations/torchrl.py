# SPDX-License-Identifier: Apache-2.0
"""TorchRL on native environments: a batched `EnvBase` for its collectors and transforms.

What to change in a script:

    -env = GymWrapper(SyncVectorEnv([lambda: gym.make("CartPole-v1") for _ in range(64)]))
    +env = RolloutsEnv("CartPole-v1", num_envs=64)

or, in place of `ParallelEnv(64, lambda: GymEnv("CartPole-v1"))`, the same line; transforms,
`Collector`, `MultiSyncCollector`, replay buffers and losses stay. Specs, keys and dtypes are
GymEnv's: "observation", "action" (one-hot unless categorical_action_encoding), "reward" (N, 1)
float32, "done", "terminated", "truncated" (N, 1) bool.

Traps handled:
  * At an episode's end ("next", "observation") is its true last observation. The pool has begun
    the next episode in the same step, and `_reset` hands its first observation out.
  * A "_reset" mask may name environments that have not ended (StepCounter(max_steps=...),
    truncation by a transform): those are reset for good, and nobody else.
  * A pool in next-step mode is refused: TorchRL would take the observation of the reset for the
    outcome of an action.

What it costs: observations, terminated and truncated are not copied: tensors share the pool's
memory, which is not written again while a tensor of it lives. A collector that keeps T steps
before it stacks them makes the pool keep T buffers. TorchRL's collectors run the policy themselves:
call `torch.set_num_threads(1)` before a small one, whose threads would take the cores from those of
the pool (see `rollouts.machine.torch_threads`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

import rollouts
from rollouts.errors import ProtocolError, SpecError
from rollouts.specs import OptionColumn

from .shared.missing import needs

try:
    import torch
    from tensordict import TensorDict, TensorDictBase
    from torchrl.data import (
        Bounded,
        Categorical,
        Composite,
        MultiCategorical,
        MultiOneHot,
        OneHot,
        Unbounded,
    )
    from torchrl.envs import EnvBase
except ImportError as _error:
    raise needs("torchrl", _error) from _error

Array = npt.NDArray[Any]

_FLAGS = ("done", "terminated", "truncated")


class RolloutsEnv(EnvBase):
    """N native environments as one TorchRL environment of batch_size [N].

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
        **env_options: OptionColumn,
    ) -> None:
        """Makes a pool, or takes one that exists.

        Args:
          envs: An id of `rollouts.env_ids()`, or one for each environment; or a synchronous pool
            that autoresets in the same step.
          device: Where tensors shall be; the environments stay on the CPU.
          categorical_action_encoding: Discrete actions are indices, not one-hot vectors.
          num_envs, num_threads, seed, max_episode_steps, env_options: As `rollouts.make_vec`, for
            ids only.

        Raises:
          SpecError: A pool in another mode; arguments as `make_vec`.
        """
        made: dict[str, Any] = {"num_envs": num_envs, "num_threads": num_threads, "seed": seed}
        made |= {"max_episode_steps": max_episode_steps, **env_options}
        self.__dict__["_pool"] = _open_pool(envs, made)
        pool = self.pool
        super().__init__(device=torch.device(device), batch_size=torch.Size([pool.num_envs]))
        self._one_hot = not categorical_action_encoding
        self._set_specs(pool)
        count = pool.num_envs
        self._started = False
        self._seed: int | None = None
        # ended, and not yet reset by TorchRL
        self._ended = np.zeros(count, np.bool_)
        self._obs: Any = None  # (N, *obs_shape) numpy, where the environments are now

    @property
    def pool(self) -> Any:
        """The `rollouts.VectorEnv` behind it; step it only through this environment."""
        return self.__dict__["_pool"]

    def _set_specs(self, pool: Any) -> None:
        batch, device = self.batch_size, self.device
        obs = _space_spec(pool.single_observation_space, batch, device, one_hot=self._one_hot)
        action = _space_spec(pool.single_action_space, batch, device, one_hot=self._one_hot)
        self.observation_spec = Composite(observation=obs, shape=batch)
        self.action_spec = action
        self.reward_spec = Unbounded(shape=(*batch, 1), dtype=torch.float32, device=device)
        flag = Categorical(2, shape=(*batch, 1), dtype=torch.bool, device=device)
        self.done_spec = Composite({name: flag.clone() for name in _FLAGS}, shape=batch)

    # -- EnvBase -------------------------------------------------------------------

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        """Begins episodes of all environments, or of those marked by "_reset" (N, 1) bool.

        Returns:
          The observations of all; those of unmarked environments as they were.
        """
        marked = None if tensordict is None else tensordict.get("_reset", None)
        mask = None if marked is None else _flags(marked)
        if mask is None or mask.all() or not self._started:
            self._obs, _ = self.pool.reset(seed=self._seed)
            self._seed, self._started = None, True
            self._ended[:] = False
        else:
            # the pool has reset those that ended by itself
            running = mask & ~self._ended
            if running.any():
                self._obs, _ = self.pool.reset(options={"reset_mask": running})
            self._ended &= ~mask
        flags = {name: self._tensor(np.zeros((len(self._ended), 1), np.bool_)) for name in _FLAGS}
        return self._dict(observation=self._observation(self._obs), **flags)

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Steps all environments with tensordict["action"]."""
        if self._ended.any():
            raise ProtocolError(
                f"the episodes of environments {np.flatnonzero(self._ended).tolist()} have ended; "
                'reset them ("_reset" in the tensordict, or step_and_maybe_reset) before they step'
            )
        self.pool.send(self._actions(tensordict.get("action")))
        batch = self.pool.recv_batch()
        ended = batch.terminated | batch.truncated
        obs = self._obs = batch.obs
        if ended.any():
            obs = np.where(ended.reshape(-1, *[1] * (obs.ndim - 1)), batch.final_obs, obs)
            # not the array that a tensor shares
            self._ended[:] = ended
        return self._dict(
            observation=self._observation(obs),
            reward=self._tensor(batch.reward).to(torch.float32).unsqueeze(-1),
            done=self._tensor(ended).unsqueeze(-1),
            terminated=self._tensor(batch.terminated).unsqueeze(-1),
            truncated=self._tensor(batch.truncated).unsqueeze(-1),
        )

    def _set_seed(self, seed: int | None) -> None:
        """The next reset of all environments begins the streams of this seed."""
        self._seed = seed

    def close(self, *args: Any, **kwargs: Any) -> None:
        """Closes the pool. May be called twice."""
        self.is_closed = True
        self.pool.close()

    # -- helpers -------------------------------------------------------------------

    def _actions(self, action: torch.Tensor) -> Array:
        space = self.pool.single_action_space
        if self._one_hot and isinstance(space, spaces.Discrete):
            action = action.to(torch.int8).argmax(-1)
        elif self._one_hot and isinstance(space, spaces.MultiDiscrete):
            parts = torch.split(action.to(torch.int8), space.nvec.tolist(), dim=-1)
            action = torch.stack([part.argmax(-1) for part in parts], -1)
        actions: Array = action.detach().cpu().numpy()
        return actions

    def _observation(self, obs: Array) -> torch.Tensor:
        """As a tensor; one-hot where the space is discrete and actions are, as GymEnv has it."""
        space, tensor = self.pool.single_observation_space, self._tensor(obs)
        if self._one_hot and isinstance(space, spaces.Discrete):
            return torch.nn.functional.one_hot(tensor.long(), int(space.n))
        if self._one_hot and isinstance(space, spaces.MultiDiscrete):
            parts = zip(tensor.long().unbind(-1), space.nvec.tolist(), strict=True)
            return torch.cat([torch.nn.functional.one_hot(part, n) for part, n in parts], -1)
        return tensor

    def _tensor(self, array: Array) -> torch.Tensor:
        return torch.from_numpy(array).to(self.device)

    def _dict(self, **tensors: torch.Tensor) -> TensorDictBase:
        return TensorDict(tensors, batch_size=self.batch_size, device=self.device)


def _open_pool(envs: Any, made: dict[str, Any]) -> Any:
    if isinstance(envs, str) or (
        isinstance(envs, Sequence) and all(isinstance(one, str) for one in envs)
    ):
        return rollouts.make_vec(envs, autoreset_mode="same_step", **made)
    given = {name: value for name, value in made.items() if value is not None}
    if given:
        raise SpecError(f"{given} are for ids; a pool that exists has its own, got {envs!r}")
    if not hasattr(envs, "recv_batch"):
        raise SpecError(f"envs is {envs!r}, expected ids or a rollouts.VectorEnv")
    if envs.autoreset_mode is not AutoresetMode.SAME_STEP:
        raise SpecError(
            f"the pool's autoreset_mode is {envs.autoreset_mode.name.lower()}, expected same_step: "
            "TorchRL resets in the step in which an episode ends, and takes what a next-step pool "
            "returns for its reset as the outcome of an action"
        )
    if envs.batch_size != envs.num_envs:
        raise SpecError(
            f"the pool has batch_size {envs.batch_size} and num_envs {envs.num_envs}, expected "
            "them equal: TorchRL steps all environments together"
        )
    return envs


def _space_spec(space: spaces.Space[Any], batch: torch.Size, device: Any, *, one_hot: bool) -> Any:
    """The spec of N values of a space, as GymEnv has it."""
    if isinstance(space, spaces.Discrete) and space.start == 0:
        count = int(space.n)
        if one_hot:
            return OneHot(count, shape=(*batch, count), dtype=torch.int64, device=device)
        return Categorical(count, shape=batch, dtype=torch.int64, device=device)
    if isinstance(space, spaces.MultiDiscrete):
        nvec = torch.as_tensor(space.nvec, dtype=torch.int64)
        if one_hot:
            total = int(nvec.sum())
            return MultiOneHot(
                nvec.tolist(), shape=(*batch, total), dtype=torch.int64, device=device
            )
        dtype = _torch_dtype(space.dtype)
        return MultiCategorical(nvec, dtype=dtype, device=device).expand(*batch, len(nvec))
    if isinstance(space, spaces.Box):
        shape, dtype = (*batch, *space.shape), _torch_dtype(space.dtype)
        if not (space.bounded_below.any() or space.bounded_above.any()):
            return Unbounded(shape=shape, dtype=dtype, device=device)
        low, high = torch.from_numpy(space.low), torch.from_numpy(space.high)
        return Bounded(
            low.expand(shape), high.expand(shape), shape=shape, dtype=dtype, device=device
        )
    raise SpecError(f"space is {space}, expected Box, Discrete or MultiDiscrete")


def _torch_dtype(dtype: Any) -> torch.dtype:
    return torch.from_numpy(np.zeros(0, dtype)).dtype


def _flags(marked: torch.Tensor) -> Array:
    flags: Array = marked.detach().cpu().numpy().reshape(-1)
    return flags
