# SPDX-License-Identifier: Apache-2.0
"""`Hdf5Set`: episodes of an HDF5 file in Minari's layout, from this library or other software."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollouts.datasets.about import METADATA, About, from_metadata
from rollouts.datasets.checked import check_episode
from rollouts.datasets.episodes import Episode, Start
from rollouts.errors import SpecError
from rollouts.support.extras import needs

with needs("datasets", "a data set in HDF5"):
    import h5py

Array = NDArray[Any]


def open_hdf5(path: Path) -> Hdf5Set:
    """Opens FILE.hdf5, even while it is written.

    Raises:
      SpecError: It is not an HDF5 file, or has no description.
    """
    with _opened(path) as file:
        text = file.attrs.get(METADATA)
    if text is None:
        raise SpecError(
            f"{path} does not say which spaces its data are of: expected a file of "
            f"rollouts.Recorder, or the folder of a Minari data set, with its {METADATA}"
        )
    found = json.loads(text)
    return Hdf5Set(path, from_metadata(found, path), found)


class Hdf5Set:
    """Episodes of the groups episode_0, episode_1 and so on; see `DataSet`."""

    def __init__(self, path: Path, about: About, metadata: Mapping[str, Any]) -> None:
        """Reads the number of episodes."""
        self.about, self._path = about, path
        if metadata.get("jpeg_encoding", True) and _has_pictures(about):
            raise SpecError(
                f"{path} has pictures as JPEG: read them with minari.load_dataset, which decodes "
                "them, and add its episodes yourself"
            )
        with _opened(path) as file:
            present = [name for name in file if name.startswith("episode_")]
            self.num_episodes = int(metadata.get("total_episodes", len(present)))
            if len(present) < self.num_episodes:
                raise SpecError(
                    f"{path} has {len(present)} episodes, its {METADATA} says {self.num_episodes}: "
                    "the set is not complete"
                )
        total = metadata.get("total_steps")
        self.num_steps = int(total) if total is not None else self._count()

    def __iter__(self) -> Iterator[Episode]:
        """See `DataSet`."""
        with _opened(self._path) as file:
            for number in range(self.num_episodes):
                yield check_episode(
                    self._read(file, number), self.about, f"{self._path}, episode {number}"
                )

    def _count(self) -> int:
        with _opened(self._path) as file:
            names = (f"episode_{number}" for number in range(self.num_episodes))
            return sum(int(file[name].attrs["total_steps"]) for name in names)

    def _read(self, file: Any, number: int) -> Episode:
        name = f"episode_{number}"
        try:
            group = file[name]
            stacked = "frames" in group
            arrays = {one: group[one][()] for one in (
                "frames" if stacked else "observations", "actions", "rewards", "terminations",
                "truncations",
            )}  # fmt: skip
            length = len(arrays["rewards"])
            infos = {
                one: each[()][:length]
                for one, each in group.get("infos", {}).items()
                if isinstance(each, h5py.Dataset) and len(each) >= length
            }
            stream = group.attrs.get("stream")
            return Episode(
                frames=arrays["frames" if stacked else "observations"],
                action=arrays["actions"], reward=np.asarray(arrays["rewards"], np.float32),
                terminated=arrays["terminations"].astype(np.bool_),
                truncated=arrays["truncations"].astype(np.bool_),
                infos=infos, stack_num=self.about.stack_num if stacked else 1,
                env_id=int(group.attrs.get("env_id", 0) if stream is None else stream[3]),
                start=None if stream is None else Start(*(int(one) for one in stream[:3])),
                state=group["state"][()].tobytes() if "state" in group else None,
            )  # fmt: skip
        except (KeyError, OSError, TypeError, AttributeError, ValueError) as error:
            raise SpecError(
                f"{self._path} has no {name} that can be read ({error}): the file is damaged, or "
                "its observations and actions are no single arrays"
            ) from error


def _opened(path: Path) -> Any:
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise SpecError(f"{path} is no HDF5 file that can be read ({error})") from error


def _has_pictures(about: About) -> bool:
    """Tells if Minari treats the observations or actions as images."""
    from gymnasium.spaces import Box

    return any(
        isinstance(one, Box) and len(one.shape) in (2, 3) and min(one.shape[:2]) >= 32
        and one.dtype == np.uint8 and bool((one.low == 0).all() and (one.high == 255).all())
        for one in (about.observation_space, about.action_space)
    )  # fmt: skip
