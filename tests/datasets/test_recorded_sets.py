# SPDX-License-Identifier: Apache-2.0
"""Sets that `rollouts.Recorder` writes, as this library and Minari read them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import minari
import numpy as np
import pytest
from recorded_sets import Uniform, collector_of, rows_of

import rollouts
from rollouts.datasets import open_set, play_again

ENVS = {
    "CartPole-v1": {},
    "HalfCheetah-v5": {"max_episode_steps": 90},
    "ALE/Pong-v5": {"max_episode_steps": 40},
    "LunarLander-v3": {"max_episode_steps": 120},
}


def _to(kind: str, folder: Path) -> str:
    return {
        "minari": "minari:tests/recorded-v0",
        "parquet": str(folder / "set.parquet"),
        "hdf5": str(folder / "set.hdf5"),
    }[kind]


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return tmp_path


@pytest.mark.parametrize("kind", ["minari", "parquet", "hdf5"])
@pytest.mark.parametrize("id", ENVS)
def test_episodes_are_those_of_a_slow_loop_and_play_again(
    id: str, kind: str, tmp_path: Path
) -> None:
    options: dict[str, Any] = dict(ENVS[id])
    to = _to(kind, tmp_path)
    with (
        collector_of(id, 3, options) as collector,
        rollouts.Recorder(collector, to, states=True) as recorder,
    ):
        recorder.record(num_episodes=5)
    episodes = list(open_set(to))
    assert [each.env_id for each in sorted(episodes, key=lambda one: one.env_id)] == [0, 0, 1, 1, 2]
    with rollouts.make_vec(id, 1, autoreset_mode="disabled", **options) as env:
        assert play_again(episodes, env) == 5
        for each in episodes:
            # the saved state leads to the same steps
            assert each.state is not None
            env.set_state(None, [each.state])
            for step in range(min(each.num_steps, 10)):
                obs = env.step(each.action[step][None])[0]
                np.testing.assert_array_equal(obs[0], each.observation[step + 1])


def test_rows_are_those_of_the_rollouts(tmp_path: Path) -> None:
    with (
        collector_of("CartPole-v1", 4, {}) as collector,
        rollouts.Recorder(collector, tmp_path / "set.hdf5", infos=["log_prob"]) as recorder,
    ):
        batches = [collector.collect() for _ in range(12)]
        for batch in batches:
            recorder.add(batch)
    expected = rows_of(batches)
    episodes = list(open_set(tmp_path / "set.hdf5"))
    assert len(episodes) == sum(len(each) for each in expected.values()) > 10
    seen = dict.fromkeys(expected, 0)
    for each in episodes:
        rows = expected[each.env_id][seen[each.env_id]]
        seen[each.env_id] += 1
        np.testing.assert_array_equal(each.observation, rows["obs"])
        np.testing.assert_array_equal(each.action, rows["action"])
        np.testing.assert_array_equal(each.reward, rows["reward"])
        np.testing.assert_array_equal(each.infos["log_prob"], rows["log_prob"])


@pytest.mark.parametrize("id", ["HalfCheetah-v5", "ALE/Pong-v5"])
def test_minari_reads_the_set_and_its_checks_pass(id: str, tmp_path: Path) -> None:
    with collector_of(id, 2, ENVS[id]) as collector:
        with rollouts.Recorder(
            collector, "minari:tests/recorded-v0", infos=["log_prob"]
        ) as recorder:
            recorder.record(num_episodes=4)
        env = collector.env
        data = minari.load_dataset("tests/recorded-v0")
        assert data.total_episodes == 4 and "tests/recorded-v0" in minari.list_local_datasets()
        assert data.observation_space == env.single_observation_space
        assert data.action_space == env.single_action_space
    # what Minari's own tests check of an episode (check_episode_data_integrity)
    for episode in data.iterate_episodes():
        steps = len(episode)
        assert len(episode.observations) == steps + 1 == len(episode.infos["log_prob"])
        assert all(data.observation_space.contains(one) for one in episode.observations)
        assert len(episode.actions) == steps
        assert all(data.action_space.contains(one) for one in episode.actions)
        assert (
            len(episode.rewards) == len(episode.terminations) == len(episode.truncations) == steps
        )
        assert not (episode.terminations | episode.truncations)[:-1].any()
        assert (episode.terminations | episode.truncations)[-1]
    assert data.total_steps == sum(len(each) for each in data.iterate_episodes())
    with data.recover_environment() as single:
        assert single.observation_space == data.observation_space
        assert single.spec.max_episode_steps == ENVS[id]["max_episode_steps"]


def test_frames_of_stacks_are_stored_once(tmp_path: Path) -> None:
    sizes = {}
    for kind in ("hdf5", "parquet"):
        to = _to(kind, tmp_path)
        with (
            collector_of("ALE/Pong-v5", 2, {"max_episode_steps": 200}) as collector,
            rollouts.Recorder(collector, to, compression="none") as recorder,
        ):
            recorder.record(num_episodes=4)
        whole = Path(to)
        files = [whole] if whole.is_file() else list(whole.glob("*.parquet"))
        sizes[kind] = sum(file.stat().st_size for file in files) / (4 * 200)
    frame = 84 * 84
    assert all(frame < size < 1.15 * frame for size in sizes.values()), sizes


def test_an_episode_that_had_begun_before_is_left_out(tmp_path: Path) -> None:
    with collector_of("HalfCheetah-v5", 2, {"max_episode_steps": 50}) as collector:
        collector.collect()  # 32 of 50 steps
        with rollouts.Recorder(collector, tmp_path / "set.parquet") as recorder:
            for _ in range(5):
                recorder.add(collector.collect())
            # a rollout that nobody recorded
            collector.collect()
            for _ in range(4):
                recorder.add(collector.collect())
    episodes = list(open_set(tmp_path / "set.parquet"))
    assert {each.num_steps for each in episodes} == {50}
    assert recorder.stats()["num_cut"] >= 2
    with rollouts.make_vec(
        "HalfCheetah-v5", 1, autoreset_mode="disabled", max_episode_steps=50
    ) as env:
        play_again(episodes, env)


def test_single_steps_are_recorded_with_infos_of_the_environment(tmp_path: Path) -> None:
    with (
        rollouts.make_vec(
            "ALE/Breakout-v5", 2, seed=5, autoreset_mode="same_step", max_episode_steps=30
        ) as env,
        rollouts.Recorder(env, tmp_path / "set.hdf5", infos=["lives"]) as recorder,
    ):
        recorder.reset()
        lives = []
        for _ in range(70):
            lives.append(recorder.step(env.action_space.sample())[4]["lives"].copy())
    episodes = list(open_set(tmp_path / "set.hdf5"))
    assert len(episodes) == 4 and {each.num_steps for each in episodes} == {30}
    first = next(each for each in episodes if each.env_id == 1)
    assert first.infos["lives"][:29].tolist() == [int(each[1]) for each in lives[:29]]
    with rollouts.make_vec(
        "ALE/Breakout-v5", 1, autoreset_mode="disabled", max_episode_steps=30
    ) as single:
        assert play_again(episodes, single) == 4


def test_agents_have_a_set_for_each_group(tmp_path: Path) -> None:
    with rollouts.make_multi_agent_vec(
        "simple_tag_v3", 2, seed=1, autoreset_mode="same_step"
    ) as env:
        policies = {name: Uniform(group.single_action_space) for name, group in env.groups.items()}
        collector = rollouts.Collector(env, policies, 16, keep_final_obs=True)
        with rollouts.Recorder(collector, tmp_path / "tag.parquet") as recorder:
            recorder.record(num_episodes=4)
        for name, group in env.groups.items():
            data = open_set(recorder.paths[name])
            assert data.num_episodes == 4 * group.num_agents
            assert data.about.observation_space == group.single_observation_space
            assert all(each.start is not None for each in data)


def test_recording_parquet_does_not_import_pandas(tmp_path: Path) -> None:
    text = f"""
import sys
import rollouts
env = rollouts.make_vec("CartPole-v1", 2, seed=1, autoreset_mode="same_step")
with rollouts.Recorder(env, {str(tmp_path / "set.parquet")!r}) as recorder:
    recorder.reset()
    for _ in range(100):
        recorder.step(env.action_space.sample())
env.close()
assert recorder.stats()["num_episodes"] > 0
assert "pandas" not in sys.modules
"""
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
