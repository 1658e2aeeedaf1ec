# SPDX-License-Identifier: Apache-2.0
"""The two arrays-only records that travel: one step of a pool, and one rollout of a collector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rollouts.errors import SpecError

Array = NDArray[Any]


class StepBatch(NamedTuple):
    """The batch of one `recv_batch`: B rows, one per environment that finished its step.

    Row i belongs to the environment `env_id[i]`. A synchronous pool returns the rows in the order
    of their env_id, an asynchronous one in the order in which they arrived.

    Attributes:
      obs             (B, *obs_shape) obs_dtype  same-step autoreset: first obs of the next episode
      reward          (B,) float64               reward units of the env
      terminated      (B,) bool
      truncated       (B,) bool                  both may be true on the last allowed step
      env_id          (B,) int32                 global: env_id_offset + index in the pool
      episode_return  (B,) float64               complete where terminated | truncated
      episode_length  (B,) int32                 complete where terminated | truncated
      final_obs       (B, *obs_shape) obs_dtype  valid where terminated | truncated; None unless
                                                 the pool autoresets in the same step
      info            name -> (B, ...)           whatever else the environment reports
    """

    obs: Array
    reward: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    env_id: NDArray[np.int32]
    episode_return: NDArray[np.float64]
    episode_length: NDArray[np.int32]
    final_obs: Array | None
    info: dict[str, Array]


# the arrays of a step, in the order in which pools return them; infos follow
STEP_ARRAYS = StepBatch._fields[:-1]
NUM_STEP_ARRAYS = len(STEP_ARRAYS)
ENV_ID = STEP_ARRAYS.index("env_id")
EPISODE_RETURN = STEP_ARRAYS.index("episode_return")
EPISODE_LENGTH = STEP_ARRAYS.index("episode_length")

# the arrays of a RolloutBatch by what they have one row for; `extras` are as TIME_MAJOR,
# `policy_state` as PER_ENV and `final_obs` as PER_EPISODE, where there are any
TIME_MAJOR = (
    "obs",
    "action",
    "reward",
    "terminated",
    "truncated",
    "bootstrap_value",
    "log_prob",
    "value",
    "policy_version",
)
PER_ENV = ("last_obs", "last_value", "env_id")
PER_EPISODE = ("episode_return", "episode_length", "episode_env_id")


@dataclass(frozen=True, slots=True)
class RolloutBatch:
    """T steps of B environments, time-major.

    `obs[t]` is what the policy saw and `action[t]` what it chose; `reward[t]`, `terminated[t]` and
    `truncated[t]` are what that action led to. Where an episode ended at t, `obs[t + 1]` (or
    `last_obs`) is the first observation of the next episode, and `bootstrap_value[t]` stands in
    for the value of the observation that the policy never acted on.

    Attributes:
      obs               (T, B, *obs_shape) obs_dtype
      action            (T, B, *action_shape) action_dtype   as sampled; see `Collector`
      reward            (T, B) float32
      terminated        (T, B) bool
      truncated         (T, B) bool
      bootstrap_value   (T, B) float32   V(final_obs) where truncated & ~terminated, else 0
      log_prob          (T, B) float32   of `action` under the policy that chose it
      value             (T, B) float32   V(obs) under that policy
      last_obs          (B, *obs_shape) obs_dtype            what follows row T - 1
      last_value        (B,) float32     V(last_obs)
      policy_version    (T, B) int64     version of the weights that chose the action
      env_id            (B,) int32
      episode_return    (E,) float64     of the episodes that ended inside this rollout, by time
      episode_length    (E,) int32
      episode_env_id    (E,) int32
      extras            name -> (T, B, ...)   whatever else the policy returned; of agents
                                              "active" bool: who took part in the step
      policy_state      tuple of (B, ...)     of a recurrent policy, before row 0
      final_obs         (E, *obs_shape) obs_dtype   of the episodes that ended, in the same order;
                                              None unless the collector keeps it
    """

    obs: Array
    action: Array
    reward: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    bootstrap_value: NDArray[np.float32]
    log_prob: NDArray[np.float32]
    value: NDArray[np.float32]
    last_obs: Array
    last_value: NDArray[np.float32]
    policy_version: NDArray[np.int64]
    env_id: NDArray[np.int32]
    episode_return: NDArray[np.float64]
    episode_length: NDArray[np.int32]
    episode_env_id: NDArray[np.int32]
    extras: dict[str, Array] = field(default_factory=dict)
    policy_state: tuple[Array, ...] = ()
    final_obs: Array | None = None

    def __post_init__(self) -> None:
        """Checks that every array has the leading shape (T, B), (B,) or (E,) it should have."""
        if self.reward.ndim != 2:
            raise SpecError(f"reward has shape {self.reward.shape}, expected (T, B): time first")
        steps, rows = self.reward.shape
        episodes = self.episode_return.shape[0]
        expected = (
            *((name, (steps, rows)) for name in TIME_MAJOR),
            *((name, (rows,)) for name in PER_ENV),
            *((name, (episodes,)) for name in PER_EPISODE),
        )
        for name, leading in expected:
            _check_leading(name, getattr(self, name), leading)
        for name, array in self.extras.items():
            _check_leading(f"extras[{name!r}]", array, (steps, rows))
        for index, array in enumerate(self.policy_state):
            _check_leading(f"policy_state[{index}]", array, (rows,))
        if self.final_obs is not None:
            _check_leading("final_obs", self.final_obs, (episodes,))

    @property
    def num_steps(self) -> int:
        """Environment steps in the batch: T * B."""
        return self.reward.size

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays together."""
        several = ("extras", "policy_state", "final_obs")
        arrays = [getattr(self, f.name) for f in fields(self) if f.name not in several]
        final = () if self.final_obs is None else (self.final_obs,)
        return sum(a.nbytes for a in (*arrays, *self.extras.values(), *self.policy_state, *final))

    @classmethod
    def concatenate(cls, batches: Sequence[RolloutBatch]) -> RolloutBatch:
        """Joins batches of the same length T along B, in the order given.

        One batch is returned as it is; of more the arrays are copied. The same env_id may appear
        in several columns: two rollouts of one environment are two columns. Episodes are in the
        order of the batches; final_obs is kept if all batches have it.

        Raises:
          SpecError: no batches, or they differ in T, in the names of their extras or in the length
            of their policy_state.
        """
        if not batches:
            raise SpecError("concatenate() got no batches, expected at least one")
        first = batches[0]
        if len(batches) == 1:
            return first
        for index, batch in enumerate(batches):
            _check_joinable(index, batch, first)

        def join(name: str, axis: int) -> Array:
            return np.concatenate([getattr(batch, name) for batch in batches], axis=axis)

        return cls(
            **{name: join(name, 1) for name in TIME_MAJOR},
            **{name: join(name, 0) for name in (*PER_ENV, *PER_EPISODE)},
            extras={
                name: np.concatenate([batch.extras[name] for batch in batches], axis=1)
                for name in first.extras
            },
            policy_state=tuple(
                np.concatenate(states)
                for states in zip(*(batch.policy_state for batch in batches), strict=True)
            ),
            final_obs=_join_final_obs(batches),
        )


class MultiAgentRollout(dict[str, RolloutBatch]):
    """T steps of environments with several agents: group -> the batch of its agents.

    Columns of a group's batch are the agents of its first environment, then those of the next.

    Attributes:
      num_envs   Environments B.
    """

    def __init__(self, batches: Mapping[str, RolloutBatch], num_envs: int) -> None:
        """Takes a batch of each group, all of the same T steps of `num_envs` environments."""
        super().__init__(batches)
        self.num_envs = num_envs

    @property
    def num_steps(self) -> int:
        """Environment steps: T * B."""
        return len(next(iter(self.values())).reward) * self.num_envs

    @property
    def num_agent_steps(self) -> int:
        """Steps of all agents together, those who left among them: T * B * agents."""
        return sum(batch.num_steps for batch in self.values())

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays together."""
        return sum(batch.nbytes for batch in self.values())

    @property
    def policy_version(self) -> NDArray[np.int64]:
        """(T, B): of all groups' policies, which have their weights together."""
        version = next(iter(self.values())).policy_version
        return version[:, :: version.shape[1] // self.num_envs]

    @classmethod
    def concatenate(cls, rollouts: Sequence[MultiAgentRollout]) -> MultiAgentRollout:
        """Joins rollouts group by group; see `RolloutBatch.concatenate`.

        Raises:
          SpecError: no rollouts, or other groups in one; else as there.
        """
        if not rollouts:
            raise SpecError("concatenate() got no rollouts, expected at least one")
        groups = list(rollouts[0])
        for index, rollout in enumerate(rollouts):
            if list(rollout) != groups:
                raise SpecError(
                    f"rollouts[{index}] has groups {list(rollout)}, expected {groups} as the first"
                )
        joined = {
            name: RolloutBatch.concatenate([each[name] for each in rollouts]) for name in groups
        }
        return cls(joined, sum(each.num_envs for each in rollouts))


def _join_final_obs(batches: Sequence[RolloutBatch]) -> Array | None:
    kept = [batch.final_obs for batch in batches if batch.final_obs is not None]
    return np.concatenate(kept) if len(kept) == len(batches) else None


def _check_leading(name: str, array: Array, leading: tuple[int, ...]) -> None:
    if array.shape[: len(leading)] != leading:
        raise SpecError(
            f"{name} has shape {array.shape}, expected it to start with {leading}: reward and "
            "episode_return set T, B and E for the whole batch"
        )


def _check_joinable(index: int, batch: RolloutBatch, first: RolloutBatch) -> None:
    steps, expected_steps = batch.reward.shape[0], first.reward.shape[0]
    if steps != expected_steps:
        raise SpecError(
            f"batch {index} has T = {steps} steps, expected {expected_steps} as in batch 0: "
            "collect all batches with the same rollout_length"
        )
    if batch.extras.keys() != first.extras.keys():
        raise SpecError(
            f"batch {index} has extras {sorted(batch.extras)}, expected {sorted(first.extras)} "
            "as in batch 0: collect all batches with the same kind of policy"
        )
    if len(batch.policy_state) != len(first.policy_state):
        raise SpecError(
            f"batch {index} has {len(batch.policy_state)} arrays of policy_state, expected "
            f"{len(first.policy_state)} as in batch 0: collect all batches with the same kind of "
            "policy"
        )
