# SPDX-License-Identifier: Apache-2.0
"""Results of `ReplayBuffer.sample`, made from the arrays that the native store gathers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollouts import _native
from rollouts.errors import SpecError
from rollouts.replay.columns import EXTRAS, STATE, Columns
from rollouts.replay.config import Hindsight, ItemKind, NStep, Sequences
from rollouts.replay.goals import DenseReward, SparseReward
from rollouts.replay.items import item_rows

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SampleInfo:
    """Keys, probabilities and ages of B sampled items. With `device=` all arrays are tensors.

    Attributes:
      key            (B,) int64     the item's key, for `update_priorities`
      probability    (B,) float64   probability of the draw; 1 without a draw (fifo, lifo, heaps)
      priority       (B,) float64
      weight         (B,) float32   importance weight (table_size * probability)^-beta over the
                                    largest of the batch
      times_sampled  (B,) int32     including this sample
      table_size     (B,) int64     items in the table
      age            (B,) int64     items inserted after the item
      policy_lag     (B,) int64     newest policy_version minus that of the item's first step
      env_id         (B,) int64
      num_steps      (B,) int32     environment steps of the item
    """

    key: Any
    probability: Any
    priority: Any
    weight: Any
    times_sampled: Any
    table_size: Any
    age: Any
    policy_lag: Any
    env_id: Any
    num_steps: Any


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TransitionBatch(SampleInfo):
    """B transitions over num_steps = k <= n steps, with the fields of `SampleInfo`.

    Attributes:
      obs             (B, *obs_shape)
      action          (B, *action_shape)
      reward          (B,) float32   r_0 + discount * r_1 + ... + discount^(k-1) * r_(k-1)
      discount        (B,) float32   discount^k; 0 where the episode terminated
      next_obs        (B, *obs_shape)   k steps later: the true final one where the episode ended
      terminated      (B,) bool      in the last of the k steps
      truncated       (B,) bool      in the last of the k steps
      policy_version  (B,) int64     version of the policy that chose the action
      extras          name -> (B, ...)
      policy_state    tuple of (B, ...)   before the first step
      relabelled      (B,) bool, in a table of Hindsight: obs and next_obs have a goal that the
                      episode achieved, and reward is computed for it; None: in other tables
    """

    obs: Any
    action: Any
    reward: Any
    discount: Any
    next_obs: Any
    terminated: Any
    truncated: Any
    policy_version: Any
    extras: dict[str, Any]
    policy_state: tuple[Any, ...]
    relabelled: Any = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SequenceBatch(SampleInfo):
    """B sequences of T steps, time-major, with the fields of `SampleInfo`.

    Attributes:
      obs             (T + 1, B, *obs_shape)   the last one, at num_steps, is for bootstrapping
      action          (T, B, *action_shape)
      reward          (T, B) float32
      terminated      (T, B) bool
      truncated       (T, B) bool
      valid           (T, B) bool   row t is a step of the sequence; otherwise everything is zero
      first           (T + 1, B) bool   obs is the first one of an episode
      policy_version  (T, B) int64
      extras          name -> (T, B, ...)
      policy_state    tuple of (B, ...)   before row 0
      burn_in         rows that only warm up the state
    """

    obs: Any
    action: Any
    reward: Any
    terminated: Any
    truncated: Any
    valid: Any
    first: Any
    policy_version: Any
    extras: dict[str, Any]
    policy_state: tuple[Any, ...]
    burn_in: int


ReplayBatch = TransitionBatch | SequenceBatch


class ItemReader:
    """Gathers the items of one kind. Thread-safe."""

    def __init__(self, store: _native.ReplayStore, columns: Columns, kind: ItemKind) -> None:
        """Plans which arrays are gathered."""
        self._columns = columns
        self._kind = kind
        if isinstance(kind, NStep | Hindsight):
            self._powers = kind.discount ** np.arange(kind.n + 1, dtype=np.float64)
            self._discounts = self._powers.astype(np.float32)
            self.plan = _transition_plan(store, columns, kind)
        else:
            wanted = _sequence_fields(columns, item_rows(kind) - 1)
            self.plan = _native.GatherPlan(store, wanted, time_major=True)

    def to_batch(self, raw: dict[str, Array], info: dict[str, Array]) -> ReplayBatch:
        """Makes the batch from the gathered arrays and the arrays of SampleInfo."""
        if isinstance(self._kind, Hindsight):
            _reward_anew(raw, info["num_steps"], self._kind)
            batch = self._transitions(raw, info, self._kind.n)
            return TransitionBatch(**batch, relabelled=raw["relabelled"])
        if isinstance(self._kind, NStep):
            return TransitionBatch(**self._transitions(raw, info, self._kind.n))
        return self._sequences(raw, info)

    def first_version(self, raw: Mapping[str, Array]) -> Array:
        """Returns the policy_version (B,) of each item's first step."""
        version = raw["policy_version"]
        return version if isinstance(self._kind, NStep | Hindsight) else version[0]

    def _transitions(self, raw: dict[str, Array], info: dict[str, Array], n: int) -> dict[str, Any]:
        """Returns the fields of a TransitionBatch."""
        steps, terminated = info["num_steps"], raw["terminated"]
        reward = raw["reward"]
        if n > 1:
            # rows after the last step are the final observation, or steps that do not belong to the
            # item
            inside = np.arange(n) < steps[:, None]
            reward = ((reward * inside) @ self._powers[:-1]).astype(np.float32)
        return dict(
            obs=raw["obs"],
            action=raw["action"],
            next_obs=raw["next_obs"],
            truncated=raw["truncated"],
            policy_version=raw["policy_version"],
            reward=reward,
            # 0 where the episode terminated
            discount=self._discounts[steps] * ~terminated,
            terminated=terminated,
            extras={name: raw[EXTRAS + name] for name in self._columns.extras},
            policy_state=self._states(raw),
            **info,
        )

    def _sequences(self, raw: dict[str, Array], info: dict[str, Array]) -> SequenceBatch:
        kind, steps = self._kind, info["num_steps"]
        names = ["action", "reward", "terminated", "truncated", "policy_version"]
        names += [EXTRAS + name for name in self._columns.extras]
        length = len(raw["reward"])
        # the row after the last step may hold a step that does not belong to the item
        short = np.flatnonzero(steps < length)
        if len(short):
            for name in names:
                raw[name][steps[short], short] = 0
        if isinstance(kind, Sequences) and kind.end_of_episode == "truncate":
            length = int(steps.max(initial=0))
            raw |= {name: raw[name][:length] for name in names}
            raw |= {name: raw[name][: length + 1] for name in ("obs", "first")}
        return SequenceBatch(
            obs=raw["obs"],
            first=raw["first"],
            **{name: raw[name] for name in names[:5]},
            valid=np.arange(length)[:, None] < steps,
            extras={name: raw[EXTRAS + name] for name in self._columns.extras},
            policy_state=self._states(raw),
            burn_in=kind.burn_in if isinstance(kind, Sequences) else 0,
            **info,
        )

    def _states(self, raw: Mapping[str, Array]) -> tuple[Array, ...]:
        return tuple(raw[f"{STATE}{i}"] for i in range(self._columns.num_states))


def importance_weights(probability: Array, table_size: Array, beta: float) -> Array:
    """Returns (table_size * probability)^-beta, divided by the batch's largest, (B,) float32."""
    if not len(probability) or (probability == probability[0]).all():
        return np.ones(len(probability), np.float32)
    scaled = np.maximum(probability * table_size, np.finfo(np.float64).tiny)
    # divided first, so that each power is at most 1
    weight: Array = ((scaled.min() / scaled) ** beta).astype(np.float32)
    return weight


def map_arrays(value: Any, convert: Any) -> Any:
    """Returns a batch with `convert(path, array)` in place of each array."""
    assert is_dataclass(value) and not isinstance(value, type)
    changed: dict[str, Any] = {}
    for field in fields(value):
        content = getattr(value, field.name)
        match content:
            case dict():
                changed[field.name] = {
                    name: convert(f"{field.name}.{name}", array) for name, array in content.items()
                }
            case tuple():
                changed[field.name] = tuple(
                    convert(f"{field.name}.{i}", array) for i, array in enumerate(content)
                )
            case np.ndarray():
                changed[field.name] = convert(field.name, content)
            case _:
                changed[field.name] = content
    return type(value)(**changed)


def _transition_plan(
    store: _native.ReplayStore, columns: Columns, kind: NStep | Hindsight
) -> _native.GatherPlan:
    """Plans the gathering of transitions of n steps, and of their goals.

    Raises: SpecError: Observations lack the goals' columns.
    """
    wanted = _transition_fields(columns, kind.n)
    if isinstance(kind, NStep):
        return _native.GatherPlan(store, wanted)
    if len(columns.obs_shape) != 1 or columns.stack_num > 1:
        raise SpecError(
            f"observations have shape {columns.obs_shape}, and a table of Hindsight needs flat "
            "ones (D,) with the goals among their columns: flatten a goal environment's dict by "
            "gymnasium.wrappers.FlattenObservation, and use GoalColumns.of"
        )
    kind.goal.check(columns.obs_shape[0])
    # native code computes rewards from distances; the caller's function computes all others
    reward, threshold = "caller", 0.0
    if columns.obs_dtype in (np.dtype(np.float32), np.dtype(np.float64)):
        if type(kind.reward) is SparseReward:
            reward, threshold = "sparse", float(kind.reward.threshold)
        elif type(kind.reward) is DenseReward:
            reward = "dense"
    wanted.append(("relabelled", "@relabelled", 0, 0))
    if reward == "caller":
        wanted.append(("achieved", "@achieved", 0, kind.n))
    goals = (kind.goal.achieved_goal[0], kind.goal.desired_goal[0], kind.goal.size)
    hindsight = (kind.strategy, reward, float(kind.share), threshold, kind.n, *goals)
    return _native.GatherPlan(store, wanted, hindsight=hindsight)


def _reward_anew(raw: dict[str, Array], steps: Array, kind: Hindsight) -> None:
    """Writes the rewards of relabelled samples, where native code does not compute them.

    Raises:
      SpecError: The function did not return a number for each step.
    """
    if "achieved" not in raw or not raw["relabelled"].any():
        return
    inside = raw["relabelled"][:, None] & (np.arange(kind.n) < steps[:, None])
    begin, end = kind.goal.desired_goal
    desired = np.broadcast_to(raw["obs"][:, None, begin:end], raw["achieved"].shape)[inside]
    reward = np.asarray(kind.reward(raw["achieved"][inside], desired, {}))
    if reward.shape != desired.shape[:1] or reward.dtype.kind not in "biuf":
        raise SpecError(
            f"reward returned shape {reward.shape} and dtype {reward.dtype}, expected "
            f"{desired.shape[:1]} numbers: one for each row of achieved_goal"
        )
    raw["reward"].reshape(inside.shape)[inside] = reward


def _transition_fields(columns: Columns, n: int) -> list[tuple[str, str, int, int]]:
    fields_of = [("obs", "obs", 0, 0), ("next_obs", "obs", -1, 0)]
    # the item's last row holds the next observation; the step before it ended the episode
    fields_of += [(name, name, -2, 0) for name in ("terminated", "truncated")]
    fields_of += [("reward", "reward", 0, n if n > 1 else 0)]
    rest = [name for name in columns.steps if name not in ("terminated", "truncated", "reward")]
    return fields_of + [(name, name, 0, 0) for name in rest]


def _sequence_fields(columns: Columns, steps: int) -> list[tuple[str, str, int, int]]:
    fields_of = [("obs", "obs", 0, steps + 1), ("first", "@first", 0, steps + 1)]
    return fields_of + [
        (name, name, 0, 0 if name.startswith(STATE) else steps) for name in columns.steps
    ]
