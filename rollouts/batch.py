# SPDX-License-Identifier: Apache-2.0
"""The records that components exchange: one step of a pool, and one rollout of a collector."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rollouts.errors import DTypeError, SpecError

Array = NDArray[Any]

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # an array of the host, or a tensor of a device
    A = TypeVar("A", default=Array)
else:
    from typing import TypeVar

    A = TypeVar("A")


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
      info            name -> (B, ...)           other values that the environment reports
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

# the arrays of a RolloutBatch by their leading axes; `extras` are like TIME_MAJOR, and
# `policy_state` is like PER_ENV
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
    "episode_return",
    "episode_length",
)
PER_ENV = ("last_obs", "last_value", "env_id")


class EndedEpisodes(NamedTuple):
    """The E episodes that ended inside a rollout, ordered by time and then by column.

    An agent's episode ends once, in its last step.

    Attributes:
      env_id     (E,) int32
      returns    (E,) float64   of the rewards that the environment gave
      lengths    (E,) int32     steps
      final_obs  (E, *obs_shape) obs_dtype; None unless the collector keeps it
    """

    env_id: Any
    returns: Any
    lengths: Any
    final_obs: Any = None


@dataclass(frozen=True, slots=True)
class RolloutBatch(Generic[A]):
    """T steps of B rows, time-major: environments, or the agents of a group.

    `obs[t]` is what the policy saw and `action[t]` its choice; `reward[t]`, `terminated[t]` and
    `truncated[t]` are the results of that action. Where an episode ended at t, `obs[t + 1]` (or
    `last_obs`) is the first observation of the next episode, and `bootstrap_value[t]` is the value
    of the final observation, on which the policy never acted.

    Fields are NumPy arrays, or torch tensors if the environments are on a device. Such tensors lie
    on that device and may not be computed yet: later work on the same stream sees them complete.
    Rows of agents are those of the first environment, then those of the next.

    Attributes:
      obs               (T, B, *obs_shape) obs_dtype
      action            (T, B, *action_shape) action_dtype   as sampled; see `Collector`
      reward            (T, B) float32
      terminated        (T, B) bool
      truncated         (T, B) bool
      bootstrap_value   (T, B) float32   V(final_obs) where truncated & ~terminated, else 0
      log_prob          (T, B) float32   of `action` under the policy that chose it
      value             (T, B) float32   V(obs) under that policy
      last_obs          (B, *obs_shape) obs_dtype            observation after row T - 1
      last_value        (B,) float32     V(last_obs)
      policy_version    (T, B) int64     version of the weights that chose the action
      env_id            (B,) int32       for agents env_id * A + the agent's place in its group
      episode_return    (T, B) float64   so far; complete where terminated | truncated
      episode_length    (T, B) int32     so far; complete where terminated | truncated
      extras            name -> (T, B, ...)   other outputs of the policy; with agents also
                                              "active" bool: the agent took part in the step
      policy_state      tuple of (B, ...)     states of a recurrent policy, before row 0
      final_obs         final observations, None unless the collector keeps them: an array with one
                        observation for each cell that is terminated | truncated, in C order,
                        or a device's tensor (T, B, *obs_shape), valid in these cells
      counted           the `EndedEpisodes` that `episodes` returns; None: it counts them itself
    """

    obs: A
    action: A
    reward: A
    terminated: A
    truncated: A
    bootstrap_value: A
    log_prob: A
    value: A
    last_obs: A
    last_value: A
    policy_version: A
    env_id: A
    episode_return: A
    episode_length: A
    extras: dict[str, A] = field(default_factory=dict)
    policy_state: tuple[A, ...] = ()
    final_obs: A | None = None
    counted: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Checks that every array has its leading shape (T, B), (B,) or (E,)."""
        shape: tuple[int, ...] = getattr(self.reward, "shape", ())
        if len(shape) != 2:
            raise SpecError(f"reward has shape {tuple(shape)}, expected (T, B): time first")
        steps, rows = shape
        for name in TIME_MAJOR:
            _check_leading(name, getattr(self, name), (steps, rows))
        for name in PER_ENV:
            _check_leading(name, getattr(self, name), (rows,))
        for name, array in self.extras.items():
            _check_leading(f"extras[{name!r}]", array, (steps, rows))
        for index, array in enumerate(self.policy_state):
            _check_leading(f"policy_state[{index}]", array, (rows,))
        if isinstance(self.final_obs, np.ndarray):
            num_episodes = int(np.count_nonzero(_ended(self)))
            _check_leading("final_obs", self.final_obs, (num_episodes,))
        elif self.final_obs is not None:
            _check_leading("final_obs", self.final_obs, (steps, rows))

    @property
    def batch_shape(self) -> tuple[int, int]:
        """(T, B)."""
        steps, rows = self.reward.shape  # type: ignore[attr-defined]
        return steps, rows

    @property
    def num_steps(self) -> int:
        """Steps of all rows: T * B."""
        steps, rows = self.batch_shape
        return steps * rows

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays together."""
        arrays: list[Any] = [getattr(self, name) for name in (*TIME_MAJOR, *PER_ENV)]
        arrays += [*self.extras.values(), *self.policy_state, self.final_obs]
        return sum(array.nbytes for array in arrays if array is not None)

    @property
    def active(self) -> A | None:
        """(T, B) bool: the agents that took part in each step; None where all rows always do."""
        found: Any = self.extras.get("active")
        if found is None or found.ndim != 2 or str(found.dtype) not in ("bool", "torch.bool"):
            return None
        return found  # type: ignore[no-any-return]

    def episodes(self) -> EndedEpisodes:
        """Returns the episodes that ended, one row each; with tensors it waits for the device."""
        if self.counted is not None:
            known: EndedEpisodes = self.counted
            return known
        batch: Any = self
        ended, active, final_obs = _ended(self), batch.active, batch.final_obs
        # an agent that left has no part in the rest of its environment's episode
        if active is not None:
            if isinstance(final_obs, np.ndarray):
                final_obs = final_obs[active[ended]]
            ended = ended & active
        if isinstance(ended, np.ndarray):
            at = ended.nonzero()
        else:
            # the only wait for the device: with these indices, all later sizes are known
            at = ended.nonzero(as_tuple=True)
            final_obs = None if final_obs is None else final_obs[at]
        env_id, returns = batch.env_id[at[1]], batch.episode_return[at]
        return EndedEpisodes(env_id, returns, batch.episode_length[at], final_obs)

    def on_host(self) -> RolloutBatch[A]:
        """Returns the batch in the host's memory, with contiguous tensors.

        Arrays, and tensors that are so already, are not copied.
        """
        return self._map(lambda one: one if isinstance(one, np.ndarray) else one.cpu().contiguous())

    def contiguous(self) -> RolloutBatch[A]:
        """Returns the batch with contiguous tensors."""
        return self._map(lambda one: one if isinstance(one, np.ndarray) else one.contiguous())

    def copied(self) -> RolloutBatch[A]:
        """Returns a copy on the same device, which is complete when this returns."""
        copy = self._map(lambda one: one.copy() if isinstance(one, np.ndarray) else one.clone())
        obs: Any = self.obs
        if getattr(obs, "is_cuda", False):
            sys.modules["torch"].cuda.current_stream(obs.device).synchronize()
        return copy

    def _map(self, function: Callable[[Any], Any]) -> RolloutBatch[A]:
        """Returns a batch with the function's result in place of each array."""
        found: dict[str, Any] = {}
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(value, dict):
                found[one.name] = {name: function(each) for name, each in value.items()}
            elif one.name == "policy_state":
                found[one.name] = tuple(function(each) for each in value)
            elif value is not None and one.name != "counted":
                found[one.name] = function(value)
        return replace(self, **found)

    @classmethod
    def concatenate(cls, batches: Sequence[RolloutBatch[A]]) -> RolloutBatch[A]:
        """Joins batches of the same length T along B, in the order given.

        A single batch is returned as it is; the arrays of several are copied. The same env_id may
        appear in several columns: two rollouts of one environment are two columns. final_obs is
        kept if all batches have it.

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

        def join(name: str, axis: int) -> Any:
            return _joined([getattr(batch, name) for batch in batches], axis)

        return cls(
            **{name: join(name, 1) for name in TIME_MAJOR},
            **{name: join(name, 0) for name in PER_ENV},
            extras={
                name: _joined([batch.extras[name] for batch in batches], 1) for name in first.extras
            },
            policy_state=tuple(
                _joined(states, 0)
                for states in zip(*(batch.policy_state for batch in batches), strict=True)
            ),
            final_obs=_join_final_obs(batches),
        )


class MultiAgentRollout(dict[str, RolloutBatch[A]]):
    """T steps of environments with several agents: group -> the batch of its agents.

    Columns of a group's batch are the agents of its first environment, then those of the next.

    Attributes:
      num_envs   Environments B.
    """

    def __init__(self, batches: Mapping[str, RolloutBatch[A]], num_envs: int) -> None:
        """Takes a batch of each group, all of the same T steps of `num_envs` environments."""
        super().__init__(batches)
        self.num_envs = num_envs

    @property
    def batch_shape(self) -> tuple[int, int]:
        """(T, B): steps and environments."""
        return next(iter(self.values())).batch_shape[0], self.num_envs

    @property
    def num_steps(self) -> int:
        """Environment steps: T * B."""
        steps, num_envs = self.batch_shape
        return steps * num_envs

    @property
    def num_agent_steps(self) -> int:
        """Steps of all agents together, including those that left: T * B * agents."""
        return sum(batch.num_steps for batch in self.values())

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays together."""
        return sum(batch.nbytes for batch in self.values())

    @property
    def policy_version(self) -> A:
        """(T, B): the version of all groups' policies, which get their weights together."""
        version: Any = next(iter(self.values())).policy_version
        return version[:, :: version.shape[1] // self.num_envs]  # type: ignore[no-any-return]

    def on_host(self) -> MultiAgentRollout[A]:
        """Returns the result of the same method of `RolloutBatch`, for each group."""
        return self._map(RolloutBatch.on_host)

    def contiguous(self) -> MultiAgentRollout[A]:
        """Returns the result of the same method of `RolloutBatch`, for each group."""
        return self._map(RolloutBatch.contiguous)

    def copied(self) -> MultiAgentRollout[A]:
        """Returns the result of the same method of `RolloutBatch`, for each group."""
        return self._map(RolloutBatch.copied)

    def _map(self, function: Callable[[RolloutBatch[A]], RolloutBatch[A]]) -> MultiAgentRollout[A]:
        return MultiAgentRollout({name: function(one) for name, one in self.items()}, self.num_envs)

    @classmethod
    def concatenate(cls, rollouts: Sequence[MultiAgentRollout[A]]) -> MultiAgentRollout[A]:
        """Joins rollouts group by group; see `RolloutBatch.concatenate`.

        Raises:
          SpecError: no rollouts, or one with other groups; also all that
            `RolloutBatch.concatenate` raises.
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


def check_rollout(batch: object, taker: str, *, on_host: bool = True) -> None:
    """Refuses an argument that is not one group's rollout, or has tensors where arrays are needed.

    Args:
      batch: The argument that was given.
      taker: The name of the function that got it, for the message.
      on_host: Whether its fields must be NumPy arrays.

    Raises:
      DTypeError: It is not a RolloutBatch, or has tensors and `on_host` is True.
    """
    if isinstance(batch, MultiAgentRollout):
        raise DTypeError(
            f"{taker} was given a MultiAgentRollout of {list(batch)}, expected a RolloutBatch: "
            f"give it one group's, such as rollout[{next(iter(batch))!r}]"
        )
    if not isinstance(batch, RolloutBatch):
        raise DTypeError(f"{taker} was given a {type(batch).__name__}, expected a RolloutBatch")
    if on_host and not isinstance(batch.reward, np.ndarray):
        raise DTypeError(
            f"{taker} was given a RolloutBatch of a device's tensors, expected NumPy arrays: the "
            "tensors are where a learner reads them already, and batch.on_host() has arrays"
        )


def _ended(batch: RolloutBatch[Any]) -> Any:
    return batch.terminated | batch.truncated


def _joined(arrays: Sequence[Any], axis: int) -> Any:
    if isinstance(arrays[0], np.ndarray):
        return np.concatenate(arrays, axis=axis)
    # there is no tensor unless torch was imported
    return sys.modules["torch"].cat([*arrays], axis)


def _join_final_obs(batches: Sequence[RolloutBatch[Any]]) -> Any:
    """Returns final observations in the order of the joined batch's episodes.

    Returns None if not all batches have them.
    """
    finals: list[Any] = [batch.final_obs for batch in batches]
    if any(one is None for one in finals):
        return None
    if not isinstance(finals[0], np.ndarray):
        return _joined(finals, 1)
    # each batch has them in order of time: a stable sort by time gives C order for all
    times = np.concatenate([np.nonzero(_ended(batch))[0] for batch in batches])
    return np.concatenate(finals)[np.argsort(times, kind="stable")]


def _check_leading(name: str, array: Any, leading: tuple[int, ...]) -> None:
    if array.shape[: len(leading)] != leading:
        raise SpecError(
            f"{name} has shape {tuple(array.shape)}, expected it to start with {leading}: reward "
            "sets T and B for the whole batch, and where episodes ended E"
        )


def _check_joinable(index: int, batch: RolloutBatch[Any], first: RolloutBatch[Any]) -> None:
    steps, expected_steps = batch.batch_shape[0], first.batch_shape[0]
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
