# SPDX-License-Identifier: Apache-2.0
"""HDF5 files that are written without the library, as the library reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from rollouts.datasets.episodes import Episode, Start
from rollouts.datasets.growing_hdf5 import GrowingHdf5
from rollouts.datasets.hdf5_chunks import checksum
from rollouts.errors import FileError

RNG = np.random.default_rng(3)


def episode(steps: int, *, stack_num: int = 1, dtype: Any = np.float64, **others: Any) -> Episode:
    """An episode of random numbers."""
    shape = (steps + stack_num, 6, 5) if stack_num > 1 else (steps + 1, 3)
    return Episode(
        frames=RNG.integers(0, 9, shape).astype(np.uint8 if stack_num > 1 else dtype),
        action=RNG.normal(size=(steps, 2)).astype(np.float32),
        reward=RNG.normal(size=steps).astype(np.float32),
        terminated=RNG.random(steps) < 0.5,
        truncated=RNG.random(steps) < 0.5,
        stack_num=stack_num,
        **others,
    )


def written(path: Path, episodes: list[Episode], compression: str = "none") -> None:
    file = GrowingHdf5(path, compression, {"note": "größer"})
    file.begin()
    for begin in range(0, len(episodes), 1000):
        part = file.part(begin)
        for each in episodes[begin : begin + 1000]:
            part.add(each)
        file.publish(part, sum(each.num_steps for each in episodes[begin : begin + 1000]))
    file.close()


def check(group: Any, one: Episode) -> None:
    for name, expected in (
        ("observations", one.observation), ("actions", one.action), ("rewards", one.reward),
        ("terminations", one.terminated), ("truncations", one.truncated),
    ):  # fmt: skip
        assert group[name].dtype == expected.dtype
        np.testing.assert_array_equal(group[name][()], expected)
    assert group.attrs["total_steps"] == one.num_steps


# nodes of the list have 8 members, those above 32
@pytest.mark.parametrize("count", [0, 1, 8, 9, 256, 257, 8193])
def test_a_file_of_many_episodes_finds_each(count: int, tmp_path: Path) -> None:
    episodes = [episode(1 + i % 7, env_id=i) for i in range(count)]
    written(tmp_path / "set.hdf5", episodes)
    with h5py.File(tmp_path / "set.hdf5") as file:
        assert file.attrs["note"] == "größer"
        assert len(file) == count
        assert set(file) == {f"episode_{i}" for i in range(count)}
        for i in {0, count // 2, count - 1} & set(range(count)):
            assert file[f"episode_{i}"].attrs["env_id"] == i == file[f"episode_{i}"].attrs["id"]
            check(file[f"episode_{i}"], episodes[i])
        assert "episode_x" not in file


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8, np.int32, np.int64, np.bool_])
def test_numbers_of_each_kind_stay_as_they_are(dtype: Any, tmp_path: Path) -> None:
    one = episode(5, dtype=dtype, start=Start(2**64 - 1, 3, 4), env_id=5, state=b"\x00state")
    written(tmp_path / "set.hdf5", [one])
    with h5py.File(tmp_path / "set.hdf5") as file:
        group = file["episode_0"]
        check(group, one)
        assert group.attrs["stream"].tolist() == [2**64 - 1, 3, 4, 5]
        assert group["state"][()].tobytes() == b"\x00state"
        assert list(group["infos"]) == []


def test_infos_have_a_row_more_than_steps(tmp_path: Path) -> None:
    infos = {"lives": np.arange(4), "größe": np.arange(8.0).reshape(4, 2)}
    written(tmp_path / "set.hdf5", [episode(4, infos=infos)])
    with h5py.File(tmp_path / "set.hdf5") as file:
        found = file["episode_0/infos"]
        assert found["lives"][()].tolist() == [0, 1, 2, 3, 0]
        assert found["größe"][()].tolist() == [[0, 1], [2, 3], [4, 5], [6, 7], [0, 0]]


@pytest.mark.parametrize("compression", ["auto", "gzip", "none"])
@pytest.mark.parametrize("stack_num", [1, 4])
@pytest.mark.parametrize("steps", [1, 7, 700_000])
def test_frames_are_compressed_and_shown_as_stacks(
    compression: str, stack_num: int, steps: int, tmp_path: Path
) -> None:
    # the largest has more chunks than a node of their tree has children
    steps = steps if stack_num > 1 or steps < 1000 else 1000
    one = episode(steps, stack_num=stack_num, dtype=np.uint8)
    written(
        tmp_path / "set.hdf5", [one, episode(2, stack_num=stack_num, dtype=np.uint8)], compression
    )
    with h5py.File(tmp_path / "set.hdf5") as file:
        shown = file["episode_0/observations"]
        assert shown.shape == one.observation.shape
        places = [0, len(shown) // 2, len(shown) - 1]
        for place in places:
            np.testing.assert_array_equal(shown[place], one.observation[place])
        frames = file["episode_0"]["observations" if stack_num == 1 else "frames"]
        np.testing.assert_array_equal(frames[()], one.frames)
        assert frames.compression == {"auto": "gzip", "gzip": "gzip", "none": None}[compression]


def test_noise_that_does_not_shrink_is_kept(tmp_path: Path) -> None:
    noise = RNG.integers(0, 256, (50, 64, 64)).astype(np.uint8)
    one = Episode(noise, *(np.zeros(49, kind) for kind in ("f4", "f4", "?", "?")))
    for compression in ("auto", "gzip"):
        written(tmp_path / f"{compression}.hdf5", [one], compression)
        with h5py.File(tmp_path / f"{compression}.hdf5") as file:
            np.testing.assert_array_equal(file["episode_0/observations"][()], noise)


def test_a_long_description_is_whole(tmp_path: Path) -> None:
    file = GrowingHdf5(tmp_path / "set.hdf5", "none", {"metadata.json": "x" * 300_000})
    file.begin()
    file.close()
    with h5py.File(tmp_path / "set.hdf5") as read:
        assert read.attrs["metadata.json"] == "x" * 300_000


def test_a_reader_finds_the_episodes_of_the_last_part(tmp_path: Path) -> None:
    file = GrowingHdf5(tmp_path / "set.hdf5", "none")
    file.begin()
    seen = []
    for number in range(4):
        with h5py.File(tmp_path / "set.hdf5") as read:
            seen.append(len(read))
        part = file.part(number)
        part.add(episode(30))
        file.publish(part, 30)
    file.close()
    assert seen == [0, 1, 2, 3]


def test_the_library_adds_to_the_file(tmp_path: Path) -> None:
    """Minari adds episodes to its sets, and changes attributes."""
    written(tmp_path / "set.hdf5", [episode(3), episode(4)])
    with h5py.File(tmp_path / "set.hdf5", "a") as file:
        file.create_group("episode_2")["rewards"] = np.ones(3)
        file["episode_1"].attrs["note"] = "added"
        file["episode_0/infos"]["more"] = np.arange(3)
    with h5py.File(tmp_path / "set.hdf5") as file:
        assert len(file) == 3 and file["episode_2/rewards"][()].sum() == 3
        assert file["episode_1"].attrs["note"] == "added"
        assert file["episode_0/infos/more"][()].tolist() == [0, 1, 2]


def test_a_file_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "set.hdf5").write_text("before")
    with pytest.raises(FileError, match=r"set\.hdf5 cannot be written"):
        GrowingHdf5(tmp_path / "set.hdf5", "none").begin()
    assert (tmp_path / "set.hdf5").read_text() == "before"


def test_the_checksum_is_that_of_its_author() -> None:
    assert checksum(b"Four score and seven years ago") == 0x17770551
