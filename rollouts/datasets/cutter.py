# SPDX-License-Identifier: Apache-2.0
"""`Cutter`: turns blocks of steps into whole episodes; open episodes wait for their ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollouts.datasets.episodes import Episode, Start
from rollouts.errors import SpecError

Array = NDArray[Any]

# arrays of a block that are cut without changes; infos follow under their own names
STEPS = ("action", "reward", "terminated", "truncated")


@dataclass(frozen=True, slots=True, eq=False)
class StreamRows:
    """The random streams of E environments after a block's last step: (E,) arrays.

    Attributes:
      seed, stream_id: See `Start`.
      number: Number of the environment's episode after the block.
      over: (T, E) bool: steps at which an environment's episode ended, for the agents of all
        groups.
    """

    seed: list[int]
    stream_id: list[int]
    number: NDArray[np.int64]
    over: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class StepBlock:
    """T steps of B rows as they were collected, with single frames if observations are stacks.

    Attributes:
      obs             (T, B, *obs_shape)       for stacks: index (T + 1, B, S) int32 into frames
      frames          (F, *frame_shape)        None if observations are not stacks
      steps           name -> (T, B, ...)      STEPS and infos
      final_obs       (E, *obs_shape)          final observations of ended cells, in C order
      episode_length  (T, B) int32
      env_id          (B,) int32
      active          (T, B) bool or None      the agent took part in the step
      streams         random streams after the block, or None
    """

    obs: Array
    frames: Array | None
    steps: Mapping[str, Array]
    final_obs: Array
    episode_length: NDArray[np.int32]
    env_id: NDArray[np.int32]
    active: NDArray[np.bool_] | None = None
    streams: StreamRows | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""
        frames = 0 if self.frames is None else self.frames.nbytes
        steps = sum(array.nbytes for array in self.steps.values())
        return self.obs.nbytes + frames + steps + self.final_obs.nbytes


@dataclass(slots=True)
class _Open:
    """An open episode: pieces (block, first row, row after the last) of one column."""

    pieces: list[tuple[StepBlock, int, int]] = field(default_factory=list)
    length: int = 0
    start: Start | None = None


class Cutter:
    """Cuts blocks into episodes; rows are identified by env_id.

    An episode whose first step was not seen is left out, and so is one that has a gap.

    Attributes:
      num_cut: Number of episodes that were left out because of a gap after recorded steps.
    """

    def __init__(self, stack_num: int) -> None:
        """Takes the number of frames in an observation; 1 if observations are not stacks."""
        self.num_cut = 0
        self._stack_num = stack_num
        self._open: dict[int, _Open] = {}

    def cut(self, block: StepBlock) -> Iterator[Episode]:
        """Yields the episodes that end in a block, column by column."""
        ended = block.steps["terminated"] | block.steps["truncated"]
        # index of each ended cell's final observation
        places = np.cumsum(ended.reshape(-1)).reshape(ended.shape) - 1
        numbers = _numbers(block.streams)
        counts = ended if block.active is None else ended & block.active
        columns, rows = np.nonzero(counts.T)
        bounds = np.searchsorted(columns, np.arange(ended.shape[1] + 1))
        for column, env_id in enumerate(block.env_id.tolist()):
            ends = rows[bounds[column] : bounds[column + 1]].tolist()
            begin = 0
            for end in ends:
                one = self._take(block, column, env_id, begin, end + 1, numbers)
                if one is not None:
                    final = block.final_obs[places[end, column]]
                    yield self._whole(one, column, final)
                self._open[env_id] = _Open()
                begin = end + 1
            self._take(block, column, env_id, begin, len(ended), numbers)

    def _take(
        self,
        block: StepBlock,
        column: int,
        env_id: int,
        begin: int,
        stop: int,
        numbers: NDArray[np.int64] | None,
    ) -> _Open | None:
        """Adds rows to the open episode of a column; None if there is none or it has a gap."""
        if block.active is not None:
            there = np.flatnonzero(block.active[begin:stop, column])
            begin, stop = (begin + there[0], begin + there[-1] + 1) if len(there) else (stop, stop)
        one = self._open.setdefault(env_id, _Open())
        if begin == stop:
            return one if one.pieces else None
        if int(block.episode_length[begin, column]) != one.length + 1:
            self.num_cut += 1 if one.pieces else 0
            one = self._open[env_id] = _Open()
            if int(block.episode_length[begin, column]) != 1:
                # marks the gap: -1, the length expected next, never comes, so that all rows up to
                # the next first step are left out
                one.length = -2
                return None
        if one.length == -2:
            return None
        if not one.pieces and numbers is not None and block.streams is not None:
            env = column * numbers.shape[1] // len(block.env_id)
            seed, stream = block.streams.seed[env], block.streams.stream_id[env]
            one.start = Start(seed, stream, int(numbers[begin, env]))
        one.pieces.append((block, begin, stop))
        one.length += stop - begin
        return one

    def _whole(self, one: _Open, column: int, final: Array) -> Episode:
        first = one.pieces[0][0]
        steps = {
            name: joined(
                [block.steps[name][begin:stop, column] for block, begin, stop in one.pieces]
            )
            for name in first.steps
        }
        infos = {name: array for name, array in steps.items() if name not in STEPS}
        return Episode(
            frames=self._frames(one, column, final),
            action=steps["action"],
            reward=steps["reward"],
            terminated=steps["terminated"],
            truncated=steps["truncated"],
            infos=infos,
            stack_num=self._stack_num,
            env_id=int(first.env_id[column]),
            start=one.start,
        )

    def _frames(self, one: _Open, column: int, final: Array) -> Array:
        """The observations including the final one; for stacks their frames, each once."""
        if self._stack_num == 1:
            rows = [block.obs[begin:stop, column] for block, begin, stop in one.pieces]
            return np.concatenate([*rows, final[None]])
        block, begin, _ = one.pieces[0]
        assert block.frames is not None
        ahead = self._stack_num - 1
        frames = np.empty((ahead + one.length + 1, *block.frames.shape[1:]), block.frames.dtype)
        _copy_frames(block, block.obs[begin, column, :-1], frames[:ahead])
        done = ahead
        for block, begin, stop in one.pieces:
            assert block.frames is not None
            index = block.obs[begin:stop, column]
            # the same frame has the same number within a block
            _check_goes_on(index[1:, :-1], index[:-1, 1:])
            _check_goes_on(block.frames[index[0, :-1]], frames[done - ahead : done])
            _copy_frames(block, index[:, -1], frames[done : done + len(index)])
            done += len(index)
        _check_goes_on(final[:-1], frames[done - ahead : done])
        frames[done] = final[-1]
        return frames


def _copy_frames(block: StepBlock, index: Array, out: Array) -> None:
    """Copies frames of a block to their place, without an array in between."""
    assert block.frames is not None
    # only the mode "clip" writes to `out` directly; the index is never out of range
    np.take(block.frames, index, axis=0, out=out, mode="clip")


def _check_goes_on(found: Array, expected: Array) -> None:
    """Raises SpecError unless an observation is the previous one moved on by one new frame."""
    if not np.array_equal(found, expected):
        raise SpecError(
            "an observation is no stack that goes on from the one before, so frames cannot be "
            "stored once: expected environments whose option stack_num says how they stack"
        )


def _numbers(streams: StreamRows | None) -> NDArray[np.int64] | None:
    """(T, E): the number of the episode to which each step belongs."""
    if streams is None:
        return None
    behind = np.cumsum(streams.over[::-1], 0)[::-1]
    numbers: NDArray[np.int64] = streams.number - behind
    return numbers


def joined(parts: list[Array]) -> Array:
    """Concatenates arrays; a single one that is contiguous is returned as it is."""
    return np.ascontiguousarray(parts[0]) if len(parts) == 1 else np.concatenate(parts)
