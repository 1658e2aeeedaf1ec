# SPDX-License-Identifier: Apache-2.0
"""`ParquetEpisodes`: episodes of Parquet files, from this library or other software."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rollouts.datasets.about import About, from_metadata
from rollouts.datasets.checked import check_episode
from rollouts.datasets.episodes import Episode, Start
from rollouts.datasets.parquet_set import ABOUT, EPISODES
from rollouts.errors import SpecError
from rollouts.support.extras import needs

with needs("datasets", "a data set in Parquet"):
    import pyarrow as pa
    import pyarrow.parquet as pq

Array = NDArray[Any]

_NEEDED = ("episode", "observation", "action", "reward", "terminated", "truncated")


def open_parquet(
    path: Path,
    *,
    columns: Mapping[str, str] = MappingProxyType({}),
    observation_space: gymnasium.Space[Any] | None = None,
    action_space: gymnasium.Space[Any] | None = None,
) -> ParquetEpisodes:
    """Opens a folder of Parquet files, or one file.

    Args:
      path: The folder or the file.
      columns: Our name -> the file's, if a set of other software has other names. Ours are episode,
        observation, action, reward, terminated, truncated; and next_observation, which has the
        final observations. Rows of an episode are in order, and in one file.
      observation_space, action_space: Spaces, if the set does not describe them.

    Raises:
      SpecError: A file, columns or spaces are missing.
    """
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not path.is_dir():
        _opened(path)  # first, so that a file of another kind is not refused for lack of spaces
    about = _about(path if path.is_dir() else path.parent)
    if about is None:
        if observation_space is None or action_space is None:
            raise SpecError(
                f"{path} does not say which spaces its data are of: give observation_space and "
                "action_space"
            )
        about = About(observation_space, action_space)
    return ParquetEpisodes(path, files, about, columns)


class ParquetEpisodes:
    """Episodes of Parquet files, one file in memory at a time; see `DataSet`."""

    def __init__(
        self, path: Path, files: list[Path], about: About, columns: Mapping[str, str]
    ) -> None:
        """Reads the files' schemas and counts."""
        self.about, self._files = about, files
        self._names = {name: columns.get(name, name) for name in (*_NEEDED, "next_observation")}
        self._is_ours = not columns and all(_told(file) is not None for file in files)
        self.num_episodes = self.num_steps = 0
        for file in files:
            told = _told(file)
            if self._is_ours and told is not None:
                self.num_episodes += len(told)
                self.num_steps += sum(each["num_steps"] for each in told)
                continue
            numbers = _column(
                self._table(file, [self._names["episode"]]), self._names["episode"], ()
            )
            self.num_episodes += len(np.unique(numbers))
            self.num_steps += len(numbers)

    def __iter__(self) -> Iterator[Episode]:
        """See `DataSet`."""
        for file in self._files:
            table = self._table(file, None)
            read = self._ours(file, table) if self._is_ours else self._foreign(file, table)
            for number, episode in enumerate(read):
                yield check_episode(episode, self.about, f"{file}, episode {number} of the file")

    def _table(self, file: Path, names: list[str] | None) -> Any:
        present = set(_opened(file).schema_arrow.names)
        missing = [self._names[one] for one in _NEEDED if self._names[one] not in present]
        if missing:
            raise SpecError(
                f"{file} has no column {missing[0]!r}, only {sorted(present)}: say with "
                "columns={'terminated': 'done', ...} what they are called"
            )
        try:
            return pq.read_table(file, columns=names, partitioning=None)
        except (OSError, pa.ArrowException) as error:
            raise SpecError(f"{file} is damaged or cut off ({error})") from error

    def _arrays(self, table: Any) -> dict[str, Array]:
        observation, action = self.about.observation_space, self.about.action_space
        frame = (
            (observation.shape or ())[1:] if self.about.stack_num > 1 else observation.shape or ()
        )
        kinds = {
            "observation": (frame, observation.dtype),
            "next_observation": (frame, observation.dtype),
            "action": (action.shape or (), action.dtype),
        }
        return {
            ours: _column(table, theirs, *kinds.get(ours, ((), None)))
            for ours, theirs in self._names.items()
            if theirs in table.column_names
        } | {
            name: _column(table, name, None)
            for name in self.about.infos
            if name in table.column_names
        }

    def _ours(self, file: Path, table: Any) -> Iterator[Episode]:
        arrays, stack = self._arrays(table), self.about.stack_num
        infos, begin = [name for name in self.about.infos if name in arrays], 0
        for told in _told(file) or ():
            first = begin + stack - 1
            steps = slice(first, first + told["num_steps"])
            end = steps.stop + 1
            state, start = told["state"], told["start"]
            yield Episode(
                frames=arrays["observation"][begin:end],
                **{name: arrays[name][steps] for name in _NEEDED[2:]},
                infos={name: arrays[name][steps] for name in infos},
                stack_num=stack, env_id=told["env_id"],
                start=None if start is None else Start(*start),
                state=None if state is None else base64.b64decode(state),
            )  # fmt: skip
            begin = end

    def _foreign(self, file: Path, table: Any) -> Iterator[Episode]:
        """Reads rows of one step each; next_observation, if it exists, has final observations."""
        arrays = self._arrays(table)
        numbers = arrays["episode"]
        bounds = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1), len(numbers)]
        space, action = self.about.observation_space, self.about.action_space
        for begin, end in itertools.pairwise(bounds):
            rows = {name: array[begin:end] for name, array in arrays.items()}
            terminated = rows["terminated"].astype(np.bool_)
            truncated = rows["truncated"].astype(np.bool_)
            obs = rows["observation"].astype(space.dtype)
            if "next_observation" in rows:
                obs = np.concatenate([obs, rows["next_observation"][-1:].astype(space.dtype)])
            elif terminated[-1]:
                obs = np.concatenate(
                    [obs, obs[-1:]]
                )  # a stand-in: nothing needs the value of a terminated episode's final observation
            elif len(obs) > 1:
                # there is no observation after its last step
                rows = {name: array[:-1] for name, array in rows.items()}
                terminated, truncated = terminated[:-1], truncated[:-1].copy()
                truncated[-1] = True
            else:
                continue
            yield Episode(
                frames=obs, action=rows["action"].astype(action.dtype),
                reward=rows["reward"].astype(np.float32), terminated=terminated,
                truncated=truncated,
            )  # fmt: skip


def _about(folder: Path) -> About | None:
    path = folder / ABOUT
    if not path.exists():
        return None
    try:
        return from_metadata(json.loads(path.read_text()), path)
    except ValueError as error:
        raise SpecError(f"{path} is no JSON ({error}): the file is damaged or foreign") from error


def _opened(file: Path) -> Any:
    try:
        return pq.ParquetFile(file)
    except (OSError, pa.ArrowException) as error:
        raise SpecError(f"{file} is no Parquet file that can be read ({error})") from error


def _told(file: Path) -> list[dict[str, Any]] | None:
    text = (_opened(file).schema_arrow.metadata or {}).get(EPISODES)
    found: list[dict[str, Any]] | None = None if text is None else json.loads(text)
    return found


def _column(table: Any, name: str, shape: tuple[int, ...] | None, dtype: Any = None) -> Array:
    """A column as an array (rows, *shape); None: the lists of the column, of one length, give it.

    Bytes are converted to `dtype`, or to uint8 without one.
    """
    column = table.column(name).combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.array([], column.type.storage_type)
    if pa.types.is_binary(column.type) or pa.types.is_fixed_size_binary(column.type):
        flat = np.frombuffer(b"".join(column.to_pylist()), dtype or np.uint8)
        return _shaped(name, flat, len(column), shape)
    if not pa.types.is_list(column.type) and not pa.types.is_fixed_size_list(column.type):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    flat = np.asarray(column.flatten().to_numpy(zero_copy_only=False))
    return _shaped(name, flat, len(column), shape)


def _shaped(name: str, flat: Array, rows: int, shape: tuple[int, ...] | None) -> Array:
    size = int(np.prod(shape)) if shape is not None else flat.size // max(rows, 1)
    if flat.size != rows * size:
        raise SpecError(
            f"column {name!r} has {flat.size} numbers in {rows} rows, expected {size} each: the "
            "data are of another space"
        )
    return flat.reshape(rows, *(shape if shape is not None else (size,)))
