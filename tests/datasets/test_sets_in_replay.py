# SPDX-License-Identifier: Apache-2.0
"""`ReplayBuffer.from_minari` and `from_parquet`, and batches mixed of recorded and fresh data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import minari
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from recorded_sets import collector_of

import rollouts
from rollouts.datasets import open_set
from rollouts.errors import SpecError
from rollouts.replay import Episodes, Mixture, NStep, ReplayBuffer, TableConfig


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return tmp_path


def _record(to: Any, id: str = "CartPole-v1", **options: Any) -> Any:
    with (
        collector_of(id, 2, options) as collector,
        rollouts.Recorder(collector, to, infos=["log_prob"]) as recorder,
    ):
        recorder.record(num_episodes=6)
    return list(open_set(to))


def _check_transitions(buffer: ReplayBuffer, episodes: Any) -> None:
    """Every transition of the buffer is one of the episodes, and all are there."""
    steps = sum(each.num_steps for each in episodes)
    assert buffer.size() == steps
    known = {
        each.observation[t].tobytes(): (each, t) for each in episodes for t in range(each.num_steps)
    }
    batch = buffer.sample(4 * steps)
    for row in range(0, 4 * steps, 7):
        each, t = known[np.ascontiguousarray(batch.obs[row]).tobytes()]
        np.testing.assert_array_equal(batch.next_obs[row], each.observation[t + 1])
        np.testing.assert_array_equal(batch.action[row], each.action[t])
        assert batch.reward[row] == each.reward[t]
        assert batch.terminated[row] == each.terminated[t]


@pytest.mark.parametrize("kind", ["minari", "parquet", "hdf5"])
def test_a_buffer_has_every_transition_of_a_set(kind: str, tmp_path: Path) -> None:
    to = {"minari": "minari:tests/replayed-v0"}.get(kind, str(tmp_path / f"set.{kind}"))
    episodes = _record(to)
    if kind == "parquet":
        buffer = ReplayBuffer.from_parquet(to, extras={"log_prob": np.float32(0)})
    else:
        name = "tests/replayed-v0" if kind == "minari" else to
        buffer = ReplayBuffer.from_minari(name, extras={"log_prob": np.float32(0)})
    with buffer:
        _check_transitions(buffer, episodes)
        known = {each.observation[0].tobytes(): each.infos["log_prob"][0] for each in episodes}
        batch = buffer.sample(2000)
        for row in range(2000):
            if (key := batch.obs[row].tobytes()) in known:
                assert batch.extras["log_prob"][row] == known[key]


def test_stacks_of_frames_are_kept_once_in_the_buffer(tmp_path: Path) -> None:
    to = tmp_path / "pong.hdf5"
    episodes = _record(to, "ALE/Pong-v5", max_episode_steps=300)
    with ReplayBuffer.from_minari(to) as buffer:
        steps = sum(each.num_steps for each in episodes)
        assert buffer.stats()["memory"]["used_bytes"] < 1.2 * steps * 84 * 84
        batch = buffer.sample(300)
        known = {
            each.observation[t].tobytes(): each.observation[t + 1].tobytes()
            for each in episodes
            for t in range(each.num_steps)
        }
        same = sum(
            known[np.ascontiguousarray(obs).tobytes()] == np.ascontiguousarray(after).tobytes()
            for obs, after in zip(batch.obs, batch.next_obs, strict=True)
        )
        # equal stacks may be followed by different ones
        assert same > 290


@pytest.mark.parametrize("format", ["hdf5", "arrow", "parquet"])
def test_a_set_of_minari_itself_is_read(format: str) -> None:
    env = gymnasium.make("CartPole-v1", max_episode_steps=30)
    collector = minari.DataCollector(env, data_format=format)
    collector.reset(seed=3)
    for _ in range(100):
        *_, terminated, truncated, _ = collector.step(env.action_space.sample())
        if terminated or truncated:
            collector.reset()
    data = collector.create_dataset("tests/theirs-v0", algorithm_name="random")
    with ReplayBuffer.from_minari("tests/theirs-v0", TableConfig(items=NStep(1))) as buffer:
        assert buffer.size() == data.total_steps
        episodes = list(open_set("minari:tests/theirs-v0"))
        for each, other in zip(episodes, data.iterate_episodes(), strict=True):
            np.testing.assert_array_equal(each.observation, other.observations)
            np.testing.assert_array_equal(each.action, other.actions)
        _check_transitions(buffer, episodes)


def _foreign(path: Path, **columns: Any) -> Any:
    rng = np.random.default_rng(0)
    obs = rng.random((20, 3), np.float32)
    arrays = {
        "episode_index": np.repeat([4, 9], 10),
        "state": list(obs),
        "act": rng.integers(0, 2, 20),
        "r": rng.random(20),
        "done": np.arange(20) % 10 == 9,
        "cut": np.zeros(20, bool),
        **columns,
    }
    pq.write_table(pa.table({name: list(each) for name, each in arrays.items()}), path)
    return obs


NAMES = {
    "episode": "episode_index",
    "observation": "state",
    "action": "act",
    "reward": "r",
    "terminated": "done",
    "truncated": "cut",
}
SPACES: Any = {
    "observation_space": gymnasium.spaces.Box(0, 1, (3,)),
    "action_space": gymnasium.spaces.Discrete(2),
}


def test_parquet_of_somebody_else_is_read_by_the_names_of_its_columns(tmp_path: Path) -> None:
    obs = _foreign(tmp_path / "theirs.parquet")
    episodes = list(open_set(tmp_path / "theirs.parquet", columns=NAMES, **SPACES))
    assert [each.num_steps for each in episodes] == [10, 10]
    np.testing.assert_array_equal(episodes[1].observation[:10], obs[10:])
    with ReplayBuffer.from_parquet(
        tmp_path / "theirs.parquet", TableConfig(items=Episodes(10)), columns=NAMES, **SPACES
    ) as buffer:
        assert buffer.size() == 2


def test_a_truncated_episode_without_its_final_observation_loses_its_last_step(
    tmp_path: Path,
) -> None:
    done = np.arange(20) == 9
    _foreign(tmp_path / "theirs.parquet", done=done, cut=np.arange(20) == 19)
    episodes = list(open_set(tmp_path / "theirs.parquet", columns=NAMES, **SPACES))
    assert [each.num_steps for each in episodes] == [10, 9]
    assert episodes[1].truncated.tolist() == [False] * 8 + [True]


def test_a_batch_has_the_stated_share_of_each_replay(tmp_path: Path) -> None:
    _record(tmp_path / "set.parquet")
    with ReplayBuffer.from_parquet(
        tmp_path / "set.parquet", TableConfig(sampler="prioritized")
    ) as (offline):
        fresh = ReplayBuffer(
            offline.single_observation_space,
            offline.single_action_space,
            TableConfig(sampler="prioritized"),
        )
        with collector_of("CartPole-v1", 4, {}) as collector:
            batch = collector.collect()
        batch.reward[:] = 7
        fresh.add_batch(batch)
        mixture = Mixture([(offline, 0.25), (fresh, 0.75)])
        assert mixture.counts(10) == [2, 8] and sum(mixture.counts(256)) == 256
        drawn = mixture.sample(64)
        assert (drawn.reward[:16] == 1).all() and (drawn.reward[16:] == 7).all()
        assert mixture.update_priorities(drawn.key, np.full(64, 0.5)) == 64
        tensors = mixture.sample(8, device="cpu")
        assert tensors.obs.shape == (8, 4) and str(tensors.obs.dtype) == "torch.float32"
        with mixture.prefetch(32) as ahead:
            assert (ahead.get().reward[:8] == 1).all()
        fresh.close()


def test_sequences_are_mixed_along_their_second_axis(tmp_path: Path) -> None:
    from rollouts.replay import Sequences

    _record(tmp_path / "set.parquet")
    tables = TableConfig(items=Sequences(5, end_of_episode="pad"))
    buffers = [ReplayBuffer.from_parquet(tmp_path / "set.parquet", tables, seed=s) for s in (1, 2)]
    mixture = Mixture([(each, 0.5) for each in buffers])
    batch = mixture.sample(6)
    assert batch.obs.shape == (6, 6, 4) and batch.reward.shape == (5, 6) and batch.key.shape == (6,)
    mixture.close()


def test_shares_that_do_not_sum_to_one_are_refused() -> None:
    with pytest.raises(SpecError, match="sum to 1"):
        Mixture([(None, 0.5), (None, 0.6)])
