# SPDX-License-Identifier: Apache-2.0
"""Data sets: whole episodes, recorded while environments are stepped, and read again.

    with rollouts.Recorder(collector, "minari:cheetah/random-v0") as recorder:
        recorder.record(num_steps=1_000_000)

In reading order: `episodes.py` defines an episode; `step_blocks.py` and `cutter.py` make episodes
of rollouts; `writing_thread.py`, `group_writer.py` and `part_files.py` write them to the disk;
`hdf5_bytes.py`, `hdf5_chunks.py`, `hdf5_episodes.py` and `growing_hdf5.py` make HDF5;
`minari_set.py`, `hdf5_set.py` and `parquet_set.py` are the formats; `recorder.py` combines all;
`set_reading.py` reads sets, also those of other software; `playing.py` plays episodes again.
"""

from __future__ import annotations

from rollouts.datasets.episodes import Episode, Start
from rollouts.datasets.playing import play_again, start_of
from rollouts.datasets.recorder import Recorder
from rollouts.datasets.set_reading import DataSet, open_set

__all__ = ["DataSet", "Episode", "Recorder", "Start", "open_set", "play_again", "start_of"]
