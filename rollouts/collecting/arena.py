# SPDX-License-Identifier: Apache-2.0
"""The arrays that a Collector writes a rollout into, each step to its own place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rollouts.batch import RolloutBatch, StepBatch

if TYPE_CHECKING:
    from rollouts.policy import PolicyOutput

Array = NDArray[Any]
Row = int | NDArray[np.intp]
Rows = NDArray[np.intp] | None


class Arena:
    """Arrays (S, B, ...) of a rollout; `obs` has one row more.

    Cells are addressed by (t, None), row t of all environments, or by two index arrays, row and
    environment. Arrays for the policy's outputs are made when the first output comes.
    """

    def __init__(
        self, steps: int, num_envs: int, obs_space: gymnasium.Space[Any], *, keep_final_obs: bool
    ) -> None:
        assert obs_space.shape is not None
        # final observations by cell, of which there are few: no array of all cells is worth its
        # memory
        self.final_obs: dict[tuple[int, int], Array] | None = {} if keep_final_obs else None
        self.shape = (steps, num_envs)
        self.obs: Array = np.empty((steps + 1, num_envs, *obs_space.shape), obs_space.dtype)
        self.outcome: dict[str, Array] = {
            "reward": np.empty(self.shape, np.float32),
            "terminated": np.empty(self.shape, np.bool_),
            "truncated": np.empty(self.shape, np.bool_),
            "bootstrap_value": np.empty(self.shape, np.float32),
            "episode_return": np.empty(self.shape, np.float64),
            "episode_length": np.empty(self.shape, np.int32),
        }
        self.choice: dict[str, Array] = {}
        self.extras: dict[str, Array] = {}

    def write_choice(self, t: Row, rows: Rows, output: PolicyOutput, version: int) -> None:
        """Writes a policy's output to the given cells."""
        at = t if rows is None else (t, rows)
        choice = {"action": output.action, "log_prob": output.log_prob, "value": output.value}
        if not self.choice:
            self.choice = {name: self._like(array) for name, array in choice.items()}
            self.choice["policy_version"] = np.empty(self.shape, np.int64)
            self.extras = {name: self._like(array) for name, array in output.extras.items()}
        for name, array in choice.items():
            self.choice[name][at] = array
        self.choice["policy_version"][at] = version
        for name, array in output.extras.items():
            self.extras[name][at] = array

    def native_arrays(self, action_space: gymnasium.Space[Any], version: int) -> dict[str, Array]:
        """Returns the arrays of a native rollout by name, without `last_value`."""
        if not self.choice:
            shape = (*self.shape, *(action_space.shape or ()))
            self.choice = {
                "action": np.empty(shape, action_space.dtype),
                "log_prob": np.empty(self.shape, np.float32),
                "value": np.empty(self.shape, np.float32),
                "policy_version": np.empty(self.shape, np.int64),
            }
        self.choice["policy_version"][:] = version
        return {"obs": self.obs, **self.outcome, **self.choice}

    def keep_final(self, rows: Array) -> None:
        """Takes over the final observations (E, obs_bytes) of a native rollout, in C order."""
        ended = self.outcome["terminated"] | self.outcome["truncated"]
        shaped = rows.reshape(-1).view(self.obs.dtype).reshape(len(rows), *self.obs.shape[2:])
        cells = zip(*np.nonzero(ended), strict=True)
        self.final_obs = {
            (int(t), int(row)): obs for (t, row), obs in zip(cells, shaped, strict=True)
        }

    def write_outcome(self, t: Row, rows: Rows, step: StepBatch, bootstrap: Array | None) -> None:
        """Writes the environments' results for the actions in the given cells."""
        at, outcome = t if rows is None else (t, rows), self.outcome
        outcome["reward"][at] = step.reward
        outcome["terminated"][at] = step.terminated
        outcome["truncated"][at] = step.truncated
        outcome["bootstrap_value"][at] = 0.0 if bootstrap is None else bootstrap
        outcome["episode_return"][at] = step.episode_return
        outcome["episode_length"][at] = step.episode_length
        if self.final_obs is not None:
            self._write_final_obs(t, rows, step)

    def first_steps(
        self,
        steps: int,
        env_id: NDArray[np.int32],
        last_value: NDArray[np.float32],
        policy_state: tuple[Array, ...],
    ) -> RolloutBatch:
        """Returns views of the first `steps` rows, and of the observation after them."""
        outcome = {name: array[:steps] for name, array in self.outcome.items()}
        return RolloutBatch(
            obs=self.obs[:steps],
            last_obs=self.obs[steps],
            last_value=last_value,
            env_id=env_id,
            extras={name: array[:steps] for name, array in self.extras.items()},
            policy_state=policy_state,
            final_obs=self._final_obs_of(steps),
            **outcome,
            **{name: array[:steps] for name, array in self.choice.items()},
        )

    def next_arena(self, beyond: slice) -> Arena:
        """Returns a new arena whose first rows are a copy of the rows `beyond`."""
        new = Arena.__new__(Arena)
        new.shape = self.shape
        new.obs = _moved(self.obs, beyond)
        new.outcome = {name: _moved(array, beyond) for name, array in self.outcome.items()}
        new.choice = {name: _moved(array, beyond) for name, array in self.choice.items()}
        new.extras = {name: _moved(array, beyond) for name, array in self.extras.items()}
        new.final_obs = None
        if self.final_obs is not None:
            first = beyond.start
            kept = self.final_obs.items()
            new.final_obs = {(t - first, row): obs for (t, row), obs in kept if t >= first}
        return new

    def _write_final_obs(self, t: Row, rows: Rows, step: StepBatch) -> None:
        assert self.final_obs is not None and step.final_obs is not None
        ended = np.flatnonzero(step.terminated | step.truncated)
        failed = step.info.get("_env_error", np.zeros(len(step.reward), np.bool_))
        times = np.broadcast_to(t, step.reward.shape)
        for index in ended:
            cell = int(times[index]), int(index if rows is None else rows[index])
            # a failed environment has no final observation
            obs = self.obs[cell] if failed[index] else step.final_obs[index]
            self.final_obs[cell] = np.array(obs)

    def _final_obs_of(self, steps: int) -> Array | None:
        """Returns final observations of ended cells in the first `steps` rows, in C order."""
        if self.final_obs is None:
            return None
        ended = self.outcome["terminated"][:steps] | self.outcome["truncated"][:steps]
        rows = [self.final_obs[int(t), int(row)] for t, row in zip(*np.nonzero(ended), strict=True)]
        return np.stack(rows) if rows else np.empty((0, *self.obs.shape[2:]), self.obs.dtype)

    def _like(self, rows: Array) -> Array:
        return np.empty((*self.shape, *rows.shape[1:]), rows.dtype)


def _moved(array: Array, beyond: slice) -> Array:
    """Returns a new array whose first rows are the rows `beyond` of the old one."""
    new, rows = np.empty_like(array), array[beyond]
    new[: len(rows)] = rows
    return new
