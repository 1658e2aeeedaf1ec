# SPDX-License-Identifier: Apache-2.0
"""`MinariEpisodes`: episodes of Minari's other formats, read by Minari."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rollouts.datasets.about import About
from rollouts.datasets.checked import check_episode
from rollouts.datasets.episodes import Episode
from rollouts.support.extras import needs

with needs("datasets", "a Minari data set in another format than HDF5"):
    from minari import MinariDataset


class MinariEpisodes:
    """Episodes of a folder that Minari reads; see `DataSet`."""

    def __init__(self, folder: Path, about: About) -> None:
        """Opens the folder."""
        self.about, self._folder = about, folder
        self._data = MinariDataset(folder)
        self.num_episodes, self.num_steps = self._data.total_episodes, self._data.total_steps

    def __iter__(self) -> Iterator[Episode]:
        """See `DataSet`."""
        for each in self._data:
            episode = Episode(
                frames=np.asarray(each.observations, self.about.observation_space.dtype),
                action=np.asarray(each.actions, self.about.action_space.dtype),
                reward=np.asarray(each.rewards, np.float32),
                terminated=np.asarray(each.terminations, np.bool_),
                truncated=np.asarray(each.truncations, np.bool_),
            )
            yield check_episode(episode, self.about, f"{self._folder}, episode {each.id}")
