# SPDX-License-Identifier: Apache-2.0
"""One pass over the columns of a rollout, beside a slow reference."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from recorded_run import policies_of

import rollouts
from rollouts.run_log import tape
from rollouts.run_log.fragment_sums import SeenColumns, Summary, sum_of, sum_up

Array = np.ndarray[Any, Any]

STEPS, ROWS = 5, 7
WORD = (1 << 64) - 1

# cells of 1, 3, 2, 6, 4, 8, 12, 16, 40 and 21 bytes; numbers of each width; pictures in a stack
SHAPES: list[tuple[tuple[int, ...], str]] = [
    ((), "u1"),
    ((3,), "u1"),
    ((), "f2"),
    ((3,), "f2"),
    ((), "f4"),
    ((), "i8"),
    ((3,), "f4"),
    ((8,), "f2"),
    ((5,), "f8"),
    ((3, 7), "u1"),
    ((4, 40, 50), "u1"),
    ((4, 41, 51), "u1"),
]


@dataclass(frozen=True)
class Rollout:
    """The part of a RolloutBatch that is looked at."""

    obs: Array
    last_obs: Array
    reward: Array
    terminated: Array
    truncated: Array
    extras: dict[str, Array] = field(default_factory=dict)

    @classmethod
    def drawn(cls, shape: tuple[int, ...], dtype: str, seed: int = 0) -> Rollout:
        rng = np.random.default_rng(seed)
        obs = rng.integers(0, 100, (STEPS + 1, ROWS, *shape)).astype(dtype)
        ends = rng.random((2, STEPS, ROWS)) < 0.2
        reward = rng.normal(size=(STEPS, ROWS)).astype(np.float32)
        active = rng.random((STEPS, ROWS)) < 0.8
        return cls(obs[:-1], obs[-1], reward, *ends, {"active": active})


def mixed(lane: int, word: int) -> int:
    product = (lane ^ word) * 0x9E3779B185EBCA87 & WORD
    return (product << 29 | product >> 35) & WORD


def words_of(cell: Array) -> list[int]:
    data, size = cell.tobytes(), cell.nbytes
    if size < 8:
        each = 4 if size == 4 else 2 - size % 2
        return [int.from_bytes(data[at : at + each], "little") for at in range(0, size, each)]
    starts = [*range(0, size - 7, 8), *([size - 8] if size % 8 else [])]
    return [int.from_bytes(data[at : at + 8], "little") for at in starts]


def expected_digest(rollout: Rollout, row: int) -> int:
    """Makes the digest of one column word by word."""
    cells = [*rollout.obs[:, row], rollout.last_obs[row]]
    lanes = [lane + 1 for lane in range(len(words_of(cells[0])))]
    is_stack = cells[0].ndim == 3 and cells[0].nbytes >= 4096 and cells[0][0].nbytes % 8 == 0
    for t, cell in enumerate(cells):
        words = words_of(cell)
        seen = range(len(words))
        if is_stack and 0 < t < len(cells) - 1:
            seen = seen[-(cell[-1].nbytes // 8) :]
        for lane in seen:
            lanes[lane] = mixed(lanes[lane], words[lane])
    outcome = 0
    for t in range(len(rollout.reward)):
        reward = int(rollout.reward[t, row].view(np.uint32))
        ends = int(rollout.terminated[t, row]) | int(rollout.truncated[t, row]) << 8
        outcome = mixed(outcome, reward | ends << 32)
        if "active" in rollout.extras:
            outcome = mixed(outcome, int(rollout.extras["active"][t, row]))
    for lane in lanes:
        outcome = mixed(outcome, lane)
    return outcome


@pytest.mark.parametrize(("shape", "dtype"), SHAPES)
@pytest.mark.parametrize("has_agents", [False, True])
def test_a_digest_is_that_of_the_reference(
    shape: tuple[int, ...], dtype: str, has_agents: bool
) -> None:
    drawn = Rollout.drawn(shape, dtype)
    drawn = drawn if has_agents else replace(drawn, extras={})
    expected = [expected_digest(drawn, row) for row in range(ROWS)]
    assert SeenColumns.of(drawn).digest.tolist() == expected


@pytest.mark.parametrize(("shape", "dtype"), [each for each in SHAPES if len(each[0]) < 3])
def test_any_changed_byte_shows_in_its_column_alone(shape: tuple[int, ...], dtype: str) -> None:
    drawn = Rollout.drawn(shape, dtype)
    before = SeenColumns.of(drawn).digest.copy()
    changed = [drawn.obs, drawn.reward, drawn.terminated, drawn.truncated, drawn.extras["active"]]
    for array in [*(each for one in changed for each in one), drawn.last_obs]:
        rows = array.reshape(ROWS, -1).view(np.uint8)
        # a boolean has one bit that means something
        bit = 1 if array.dtype == np.bool_ else 0x40
        for row, byte in np.ndindex(rows.shape):
            rows[row, byte] ^= bit
            after = SeenColumns.of(drawn).digest
            assert np.flatnonzero(after != before).tolist() == [row]
            rows[row, byte] ^= bit


def test_a_changed_pixel_of_the_newest_picture_shows() -> None:
    drawn = Rollout.drawn((4, 40, 50), "u1")
    before = SeenColumns.of(drawn).digest.copy()
    drawn.obs[3, 2, 3, 39, 49] ^= 1
    assert np.flatnonzero(SeenColumns.of(drawn).digest != before).tolist() == [2]


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("shape", [(), (3,), (8,)])
def test_an_observation_that_is_not_finite_is_found(
    shape: tuple[int, ...], dtype: str, number: float
) -> None:
    drawn = Rollout.drawn(shape, dtype)
    drawn.obs[0].flat[0] = np.finfo(dtype).max
    assert SeenColumns.of(drawn).is_obs_finite.all()
    drawn.obs[2, 3, ...].flat[-1] = number
    drawn.last_obs[5, ...].flat[0] = number
    assert np.flatnonzero(~SeenColumns.of(drawn).is_obs_finite).tolist() == [3, 5]


def test_whole_numbers_are_always_finite() -> None:
    drawn = Rollout.drawn((2,), "i4")
    drawn.obs[:] = np.float32(np.nan).view(np.int32)
    assert SeenColumns.of(drawn).is_obs_finite.all()


def test_the_largest_reward_is_found_by_its_magnitude() -> None:
    drawn = Rollout.drawn((3,), "f4")
    assert SeenColumns.of(drawn).largest_reward.tolist() == np.abs(drawn.reward).max(0).tolist()
    drawn.reward[2, 1], drawn.reward[4, 2], drawn.reward[0, 3] = -1e30, np.nan, -np.inf
    found = SeenColumns.of(drawn).largest_reward
    assert found[1] == np.float32(1e30) and np.isnan(found[2]) and np.isposinf(found[3])


def test_arrays_that_do_not_fit_are_refused() -> None:
    drawn = Rollout.drawn((3,), "f4")
    for wrong in (
        replace(drawn, last_obs=drawn.last_obs[1:]),
        replace(drawn, last_obs=drawn.last_obs.astype("f8")),
        replace(drawn, reward=drawn.reward[1:]),
        replace(drawn, extras={"active": drawn.terminated[:, 1:]}),
    ):
        with pytest.raises(rollouts.SpecError, match=r"obs has shape \(5, 7, 3\), expected"):
            SeenColumns.of(wrong)


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("id", ["CartPole-v1", "Pendulum-v1", "HalfCheetah-v5", "simple_spread_v3"])
def test_the_pools_threads_find_what_one_pass_finds(
    id: str, num_threads: int, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[tuple[Any, Any]] = []
    monkeypatch.setattr(tape.Tape, "end", lambda _, batches, wrote: found.append((batches, wrote)))
    options: dict[str, Any] = {"seed": 3, "autoreset_mode": "same_step"}
    with rollouts.make_vec(id, 70, num_threads=num_threads, **options) as env:
        collector = rollouts.Collector(env, policies_of(env), 20, record=tmp_path / "log")
        collector.collect()
        collector.close()
    ((batches, wrote),) = found
    for name, batch in batches.items():
        expected, seen = SeenColumns.of(batch), wrote[name].seen
        for array in ("digest", "largest_reward", "is_obs_finite"):
            np.testing.assert_array_equal(getattr(seen, array), getattr(expected, array))
        assert wrote[name].num_chosen.tolist() == [20] * batch.reward.shape[1]
        if batch.action.dtype.kind == "f":
            assert wrote[name].action_bytes is None
        else:
            np.testing.assert_array_equal(wrote[name].action_bytes, batch.action)


def batch_of(drawn: Rollout) -> Any:
    """The rollout with what is summed beside its columns."""
    return SimpleNamespace(
        **asdict(drawn),
        episode_return=np.ones((STEPS, ROWS)),
        episode_length=np.ones((STEPS, ROWS), np.int32),
        final_obs=np.zeros((2, 3), np.float32),
    )


def test_the_sum_of_a_fragment_tells_all_that_it_is_of() -> None:
    batches = {name: batch_of(Rollout.drawn((3,), "f4")) for name in ("red", "blue")}
    first, blue, changed = sum_of(batches), batches["blue"], set()
    for array in (blue.obs, blue.episode_return[-1], blue.episode_length[-1], blue.final_obs):
        array.flat[1] += 1
        changed.add(sum_of(batches))
        array.flat[1] -= 1
    assert sum_of(batches) == first and len(changed | {first}) == 5
    blue.episode_return[:-1] += 1  # what adds up
    assert sum_of(batches) == first


def test_what_is_known_of_columns_is_known_of_their_group() -> None:
    batch = batch_of(Rollout.drawn((3,), "f4"))
    batch.reward[1, 2] = -7

    def known() -> Summary:
        return sum_up({"": batch}, {"": SeenColumns.of(batch)})[1][""]

    assert known() == (7, True)
    batch.last_obs[3] = np.inf
    assert known() == (7, False)
    batch.reward[0, 0] = np.nan
    assert np.isnan(known().largest_reward)
