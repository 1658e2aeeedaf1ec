# SPDX-License-Identifier: Apache-2.0
"""One collect whose steps and actions the pool's threads compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from tianshou.data import Batch

from ..shared.native_arrays import rollout_arrays
from .buffer_columns import StepWriter
from .native import NativeActor
from .vector_env import RolloutsVectorEnv, Step, dicts

Array = npt.NDArray[Any]

# most bytes of observations in a part of a collect, since those of all may exceed the memory
_MAX_BYTES = 1 << 24


class NativeLoop:
    """T steps of all N environments, written to the buffer in parts.

    Attributes:
      num_steps, num_episodes: What was collected.
      ids: (N,) int64
      obs: (N, *obs_shape) after the last step
      info, state: The policy's next info and state.
    """

    def __init__(self, env: RolloutsVectorEnv, actor: NativeActor, buffer: Any, obs: Array) -> None:
        """Takes the first observations (N, *obs_shape)."""
        self._env, self._actor = env, actor
        self._writer = StepWriter(buffer)
        self._returns: list[Array] = []
        self._lengths: list[Array] = []
        self._spread: list[Array] = []
        self.num_steps = self.num_episodes = 0
        self.ids = np.arange(env.env_num)
        self.obs = obs
        self.info: Any = Batch(env_id=self.ids)
        self.state: Any = None

    def run(self, n_step: int) -> None:
        """Steps until there are at least `n_step` steps."""
        left = -(-n_step // len(self.ids))
        longest = max(1, _MAX_BYTES // max(1, self.obs.nbytes))
        self._writer.load()
        try:
            while left:
                part = min(left, longest)
                self._run_part(part)
                left -= part
        finally:
            # after any error, too, the buffer is whole
            self._writer.store()

    def statistics(self, stats: Any) -> Any:
        """Fills a CollectStats; `collect` adds times and summaries."""
        stats.n_collected_steps = self.num_steps
        stats.n_collected_episodes = self.num_episodes
        if self.num_episodes:
            stats.returns = np.concatenate(self._returns).astype(float)
            stats.lens = np.concatenate(self._lengths).astype(int)
        stats.pred_dist_std_array = np.concatenate(self._spread)
        return stats

    def infos(self) -> Array:
        """(N,) object: a dict per environment, as the stock Collector keeps it."""
        return dicts(self.ids, {}, np.ones(len(self.ids), np.bool_))

    def _run_part(self, num_steps: int) -> None:
        pool: Any = self._env.pool
        num_envs, inputs = len(self.ids), self._actor.num_inputs
        arrays = rollout_arrays(pool, num_steps, inputs)
        obs = arrays["obs"]
        obs[0] = self.obs
        final_obs = pool.collect(self._actor.policy, arrays, rules={"keep_final_obs": True})
        self.obs = obs[-1].copy()
        following = obs[1:].copy()
        ended = arrays["terminated"] | arrays["truncated"]
        following[ended] = final_obs.reshape(-1).view(obs.dtype).reshape(-1, *obs.shape[2:])
        steps = Step(
            following,
            arrays["reward"].astype(np.float64),
            arrays["terminated"],
            arrays["truncated"],
            self.ids,
            {},
        )
        act = self._actor.act(arrays["action"])
        returns, lengths = self._writer.write_all(obs[:-1], act, steps)
        self._returns.append(returns)
        self._lengths.append(lengths)
        self._spread.append(self._actor.spread(arrays["inputs"].reshape(-1, inputs)))
        self.num_steps += num_steps * num_envs
        self.num_episodes += len(returns)
