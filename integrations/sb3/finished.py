# SPDX-License-Identifier: Apache-2.0
"""Calls callbacks step by step for a rollout that is already complete."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..shared.missing import needs
from ..shared.whole_games import Episode
from .callbacks import reads_locals
from .policy_forward import env_actions

try:
    from stable_baselines3.common.utils import obs_as_tensor
except ImportError as error:
    raise needs("sb3", error) from error

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class FinishedRollout:
    """Results of T steps of N environments that the RolloutBuffer does not have.

    Attributes:
      last_obs    (N, *obs_shape)   observations after the last row
      last_value  (N,) float32      values of last_obs
      ended       (T, N) bool       where an episode ended
      cut         (T, N) bool       where it was truncated
      bootstrap   (T, N) float32    is added to the rewards after the callbacks of their step
      episodes    records of a Monitor, one for each of `ended` in C order; [] without Monitor
      final_obs   (E, *obs_shape)   last observations, one for each of `ended`; None: not kept
    """

    last_obs: Array
    last_value: NDArray[np.float32]
    ended: NDArray[np.bool_]
    cut: NDArray[np.bool_]
    bootstrap: NDArray[np.float32]
    episodes: list[Episode]
    final_obs: Array | None = None

    def finish(self, model: Any, env: Any, callback: Any, buffer: Any) -> bool:
        """Does the rest of a rollout, after all its steps; returns False where a callback stops it.

        The buffer's rewards do not contain `bootstrap` yet. After a stop the model goes on from the
        environments' present state, at the end of the rollout.
        """
        buffer.pos, buffer.full = buffer.buffer_size, True
        try:
            if not self._tell(model, env, callback, buffer):
                return False
        finally:
            model._last_obs, model._last_episode_starts = self.last_obs, self.ended[-1]
        values, dones = torch.from_numpy(self.last_value), self.ended[-1]
        buffer.compute_returns_and_advantage(last_values=values, dones=dones)
        callback.update_locals({"new_obs": self.last_obs, "values": values, "dones": dones})
        callback.on_rollout_end()
        return True

    def _tell(self, model: Any, env: Any, callback: Any, buffer: Any) -> bool:
        shown = _Locals(self, model, env, callback, buffer) if reads_locals(callback) else None
        # how many episodes had ended before each step, and after the last
        ends = [0, *np.cumsum(self.ended.sum(1)).tolist()]
        for t in range(buffer.buffer_size):
            model.num_timesteps += buffer.n_envs
            if shown is not None:
                shown.show(t, ends[t])
            if not callback.on_step():
                return False
            if ends[t + 1] > ends[t]:
                model.ep_info_buffer.extend(self.episodes[ends[t] : ends[t + 1]])
                buffer.rewards[t] += self.bootstrap[t]
        return True


class _Locals:
    """The variables of a step under the names that they have in the algorithm."""

    def __init__(
        self, rollout: FinishedRollout, model: Any, env: Any, callback: Any, buffer: Any
    ) -> None:
        self._rollout, self._model, self._callback = rollout, model, callback
        self._buffer = buffer
        # Discrete observations and actions are (T, N, 1) in the buffer and (N,) everywhere else
        cells = (buffer.buffer_size, env.num_envs)
        self._obs = buffer.observations.reshape(*cells, *(env.observation_space.shape or ()))
        self._actions = buffer.actions.reshape(*cells, *(env.action_space.shape or ()))
        self._constant = {
            "self": model,
            "env": env,
            "callback": callback,
            "rollout_buffer": buffer,
            "n_rollout_steps": buffer.buffer_size,
        }

    def show(self, t: int, first_end: int) -> None:
        """Sets the variables of step t, before which `first_end` episodes had ended."""
        rollout, buffer, model = self._rollout, self._buffer, self._model
        is_last = t + 1 == buffer.buffer_size
        model._last_obs = self._obs[t]
        self._callback.update_locals(
            self._constant
            | {
                "n_steps": t,
                "obs_tensor": obs_as_tensor(self._obs[t], model.device),
                "actions": self._actions[t],
                "values": torch.from_numpy(buffer.values[t]).reshape(-1, 1).to(model.device),
                "log_probs": torch.from_numpy(buffer.log_probs[t]).to(model.device),
                "clipped_actions": env_actions(model, self._actions[t]),
                "new_obs": rollout.last_obs if is_last else self._obs[t + 1],
                "rewards": buffer.rewards[t],
                "dones": rollout.ended[t],
                "infos": self._infos(t, first_end),
            }
        )

    def _infos(self, t: int, first_end: int) -> list[dict[str, Any]]:
        rollout = self._rollout
        infos: list[dict[str, Any]] = [{"TimeLimit.truncated": c} for c in rollout.cut[t].tolist()]
        for end, row in enumerate(np.flatnonzero(rollout.ended[t]).tolist(), first_end):
            if rollout.final_obs is not None:
                infos[row]["terminal_observation"] = rollout.final_obs[end]
            if rollout.episodes:
                infos[row]["episode"] = rollout.episodes[end]
        return infos
