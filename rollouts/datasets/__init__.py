# SPDX-License-Identifier: Apache-2.0
"""Data sets: whole episodes, recorded while environments are stepped, and read again.

    with rollouts.Recorder(collector, "minari:cheetah/random-v0") as recorder:
        recorder.record(num_steps=1_000_000)

In reading order: `episodes.py` what an episode is; `cutter.py` rollouts become episodes;
`writing_thread.py` and `parts.py` how they reach the disk; `hdf5_parts.py`, `minari_set.py` and
`parquet_set.py` in which formats; `recorder.py` the whole; `reading.py` sets as episodes again, other
people's too; `playing.py` episodes played again.
"""

from __future__ import annotations

from rollouts.datasets.episodes import Episode, Start
from rollouts.datasets.playing import play_again, start_of
from rollouts.datasets.reading import DataSet, open_set
from rollouts.datasets.recorder import Recorder

__all__ = ["DataSet", "Episode", "Recorder", "Start", "open_set", "play_again", "start_of"]
