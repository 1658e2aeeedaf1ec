# SPDX-License-Identifier: Apache-2.0
"""Makes RLlib's episodes of whole arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymnasium import spaces
from numpy.typing import NDArray
from ray.rllib.core.columns import Columns
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.env.utils.infinite_lookback_buffer import InfiniteLookbackBuffer

Array = NDArray[Any]


class ChunkFactory:
    """Makes chunks of episodes in one pair of spaces.

    Each is a copy of an empty one that RLlib made, filled with arrays: RLlib's constructors walk
    through the spaces again for each of an episode's arrays.
    """

    def __init__(self, obs_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> None:
        """Of these spaces of one environment."""
        self._empty = SingleAgentEpisode(
            "empty", observation_space=obs_space, action_space=action_space, len_lookback_buffer=0
        )
        self._slots = [
            (name, getattr(self._empty, name))
            for name in SingleAgentEpisode.__slots__
            if name not in ("_custom_data", "extra_model_outputs")
        ]
        empty = self._empty
        self._obs = _Filled(empty.observations)
        self._infos = _Filled(empty.infos)
        self._actions = _Filled(empty.actions)
        self._rewards = _Filled(empty.rewards)
        self._other = _Filled(InfiniteLookbackBuffer([]))

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
    ) -> SingleAgentEpisode:
        """Makes a chunk; its arrays are `obs` and `columns` themselves.

        Args:
          id_: Of the episode; all its chunks have the same.
          obs: (lookback + T + 1, ...).
          columns: name -> (lookback + T, ...): actions, rewards, and what the module said.
          infos: lookback + T + 1 dicts.
          t_started: Steps of the episode before the T of this chunk.
          lookback: Steps at the front that an earlier chunk had.
          terminated, truncated: How the episode ended at the last step, if it did.
        """
        chunk = SingleAgentEpisode.__new__(SingleAgentEpisode)
        for name, value in self._slots:
            setattr(chunk, name, value)
        chunk.id_ = id_
        chunk.observations = self._obs(obs, lookback)
        chunk.infos = self._infos(infos, lookback)
        chunk.actions = self._actions(columns[Columns.ACTIONS], lookback)
        chunk.rewards = self._rewards(columns[Columns.REWARDS], lookback)
        chunk.extra_model_outputs = {
            name: self._other(array, lookback)
            for name, array in columns.items()
            if name not in (Columns.ACTIONS, Columns.REWARDS)
        }
        chunk.is_terminated, chunk.is_truncated = terminated, truncated
        chunk.t_started = t_started
        chunk.t = t_started + len(obs) - 1 - lookback
        chunk._custom_data = {}
        return chunk


class _Filled:
    """Makes buffers like an empty one that RLlib made, with data in them."""

    def __init__(self, empty: InfiniteLookbackBuffer) -> None:
        own = ("data", "lookback", "finalized")
        self._others = [(name, value) for name, value in vars(empty).items() if name not in own]

    def __call__(self, data: Array | list[dict[str, Any]], lookback: int) -> InfiniteLookbackBuffer:
        buffer = InfiniteLookbackBuffer.__new__(InfiniteLookbackBuffer)
        # one by one: an object whose __dict__ was touched takes four times as long
        buffer.data, buffer.lookback = data, lookback
        buffer.finalized = not isinstance(data, list)
        for name, value in self._others:
            setattr(buffer, name, value)
        return buffer
