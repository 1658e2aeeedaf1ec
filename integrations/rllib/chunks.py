# SPDX-License-Identifier: Apache-2.0
"""Makes RLlib's episodes from whole arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gymnasium import spaces
from numpy.typing import NDArray
from ray.rllib.core.columns import Columns
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.env.utils.infinite_lookback_buffer import InfiniteLookbackBuffer

from .module_states import nested

Array = NDArray[Any]

# attributes that each chunk has of its own
_OWN = (
    *("id_", "observations", "infos", "actions", "rewards", "extra_model_outputs"),
    *("is_terminated", "is_truncated", "t_started", "t", "_custom_data"),
    *("_start_time", "_last_step_time"),
)


class ChunkFactory:
    """Makes chunks of episodes in one pair of spaces.

    Each chunk is a copy of an empty one that RLlib made, filled with arrays: RLlib's constructors
    walk through the spaces again for each of an episode's arrays.
    """

    def __init__(self, obs_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> None:
        """Makes chunks of these spaces of one environment."""
        empty = SingleAgentEpisode(
            "empty", observation_space=obs_space, action_space=action_space, len_lookback_buffer=0
        )
        self._constant = [
            (name, getattr(empty, name))
            for name in SingleAgentEpisode.__slots__
            if name not in _OWN
        ]
        self._obs = _filler(empty.observations)
        self._infos = _filler(empty.infos)
        self._actions = _filler(empty.actions)
        self._rewards = _filler(empty.rewards)
        self._other = _filler(InfiniteLookbackBuffer([]))

    def __call__(
        self,
        *,
        id_: str,
        obs: Array,
        columns: Mapping[str, Array],
        infos: list[dict[str, Any]],
        t_started: int,
        lookback: int,
        terminated: bool,
        truncated: bool,
        begun_s: float,
        done_s: float,
    ) -> SingleAgentEpisode:
        """Makes a chunk; its arrays are `obs` and `columns` themselves.

        Args:
          id_: Id of the episode; all its chunks have the same.
          obs: (lookback + T + 1, ...).
          columns: name -> (lookback + T, ...): actions, rewards, and the module's outputs.
          infos: lookback + T + 1 dicts.
          t_started: Steps of the episode before the T of this chunk.
          lookback: Steps at the front that an earlier chunk had.
          terminated, truncated: How the episode ended at the last step, if it did.
          begun_s, done_s: When the first step began and the last was done, of time.perf_counter.
        """
        chunk = SingleAgentEpisode.__new__(SingleAgentEpisode)
        for name, value in self._constant:
            setattr(chunk, name, value)
        other = self._other
        chunk.id_ = id_
        chunk.observations = self._obs(obs, lookback)
        chunk.infos = self._infos(infos, lookback)
        chunk.actions = self._actions(columns[Columns.ACTIONS], lookback)
        chunk.rewards = self._rewards(columns[Columns.REWARDS], lookback)
        chunk.extra_model_outputs = {
            name: other(array, lookback)
            for name, array in nested(columns).items()
            if name not in (Columns.ACTIONS, Columns.REWARDS)
        }
        chunk.is_terminated, chunk.is_truncated = terminated, truncated
        chunk._start_time, chunk._last_step_time = begun_s, done_s
        chunk.t_started = t_started
        chunk.t = t_started + len(obs) - 1 - lookback
        chunk._custom_data = {}
        return chunk


def _filler(
    empty: InfiniteLookbackBuffer,
) -> Callable[[Any, int], InfiniteLookbackBuffer]:
    """Returns a function that makes buffers like an empty one that RLlib made, with data in
    them: an array, dicts of arrays, or a list of infos."""
    own = ("data", "lookback", "finalized")
    others = [(name, value) for name, value in vars(empty).items() if name not in own]
    new = InfiniteLookbackBuffer.__new__

    def filled(data: Any, lookback: int) -> InfiniteLookbackBuffer:
        buffer = new(InfiniteLookbackBuffer)
        # one by one: an object whose __dict__ was touched takes four times as long
        buffer.data, buffer.lookback = data, lookback
        buffer.finalized = type(data) is not list
        for name, value in others:
            setattr(buffer, name, value)
        return buffer

    return filled
