# SPDX-License-Identifier: Apache-2.0
"""Recorded data sets as rollouts of a `ReplayBuffer`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from rollouts.batch import RolloutBatch
from rollouts.datasets.episodes import Episode
from rollouts.datasets.set_reading import DataSet
from rollouts.errors import SpecError
from rollouts.replay.config import TableConfig


def buffer_of(
    make_buffer: Any,
    data: DataSet,
    tables: TableConfig | Sequence[TableConfig] | None,
    options: dict[str, Any],
) -> Any:
    """Makes a buffer of a data set's spaces, and adds its episodes.

    Args:
      make_buffer: The class.
      data: The data set to read.
      tables: As for the buffer; None: transitions, one for each step of the set.
      options: Further keywords of the buffer.

    Raises:
      SpecError: A file is damaged or has other spaces, or the set is empty.
    """
    if not data.num_steps:
        raise SpecError("the data set has no episodes, expected at least one")
    about = data.about
    if tables is None:
        tables = TableConfig(max_size=data.num_steps)
    options.setdefault("stack_num", about.stack_num)
    length = options.setdefault("max_batch_length", 256)
    buffer = make_buffer(about.observation_space, about.action_space, tables, **options)
    try:
        for rollout in rollouts_of(data, length):
            buffer.add_batch(rollout)
    except BaseException:
        buffer.close()
        raise
    return buffer


def rollouts_of(episodes: Iterable[Episode], length: int) -> Iterator[RolloutBatch]:
    """Yields episodes as rollouts (T, 1) of one environment that plays them one after the other.

    An episode that is cut off without an end, as in sets of other software, is truncated there.

    Args:
      episodes: The episodes, in order.
      length: Most steps T.
    """
    for episode in episodes:
        obs, steps = episode.observation, episode.num_steps
        truncated = episode.truncated.copy()
        truncated[-1] |= not episode.terminated[-1]
        for begin in range(0, steps, length):
            end = min(begin + length, steps)
            yield _rollout(episode, obs, truncated, begin, end)


def _rollout(episode: Episode, obs: Any, truncated: Any, begin: int, end: int) -> RolloutBatch:
    rows = slice(begin, end)
    zeros = np.zeros((end - begin, 1), np.float32)
    ended = (episode.terminated | truncated)[rows]
    lengths = np.arange(begin + 1, end + 1, dtype=np.int32)[:, None]
    return RolloutBatch(
        obs=np.ascontiguousarray(obs[rows])[:, None],
        action=episode.action[rows][:, None],
        reward=episode.reward[rows][:, None],
        terminated=episode.terminated[rows][:, None],
        truncated=truncated[rows][:, None],
        bootstrap_value=zeros,
        log_prob=zeros,
        value=zeros,
        last_obs=obs[end][None],
        last_value=zeros[0],
        policy_version=np.zeros((end - begin, 1), np.int64),
        env_id=np.zeros(1, np.int32),
        episode_return=np.cumsum(episode.reward[:end], dtype=np.float64)[rows][:, None],
        episode_length=lengths,
        extras={name: array[rows][:, None] for name, array in episode.infos.items()},
        final_obs=np.ascontiguousarray(obs[1:][rows][ended]),
    )
