# SPDX-License-Identifier: Apache-2.0
"""Episodes that were built in bulk, as RLlib's recording and its clocks see them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip(
    "ray.tune", exc_type=ImportError, reason="RLlib is not installed: pip install 'rollouts[rllib]'"
)
pytest.importorskip("pyarrow", reason="ray.data is not installed")

from ray.rllib.algorithms.ppo import PPOConfig
from rllib_cases import ByPool, ByTorch, config_of
from rollouts.integrations import rllib

from rollouts.errors import SpecError


def recording(path: Path, *, episodes: bool) -> Any:
    config = config_of("CartPole-v1", runner=rllib.RolloutsOfflineEnvRunner, max_episode_steps=13)
    return config.offline_data(
        output=path.as_posix(), output_write_episodes=episodes, output_compress_columns=[]
    )


def read(path: Path) -> list[dict[str, Any]]:
    from pyarrow import parquet

    files = sorted((path / "cartpole-v1").rglob("*.parquet"))
    return [row for file in files for row in parquet.read_table(file).to_pylist()]


@pytest.mark.system
def test_steps_are_recorded_in_bulk(rllib_ray: None, tmp_path: Path) -> None:
    runner = rllib.RolloutsOfflineEnvRunner(config=recording(tmp_path, episodes=False))
    sampled = runner.sample(num_timesteps=80)
    assert runner.slow_reason == ""
    runner.stop()
    rows = read(tmp_path)
    assert len(rows) == sum(map(len, sampled)) == 80
    written = [
        (
            np.asarray(row["obs"]).tolist(),
            row["actions"],
            row["rewards"],
            np.asarray(row["new_obs"]).tolist(),
        )
        for row in rows
    ]
    seen = [
        (
            e.get_observations(t).tolist(),
            int(e.get_actions(t)),
            float(e.get_rewards(t)),
            e.get_observations(t + 1).tolist(),
        )
        for e in sampled
        for t in range(len(e))
    ]
    assert sorted(written) == sorted(seen)
    ends = sum(row["terminateds"] or row["truncateds"] for row in rows)
    assert ends == sum(episode.is_done for episode in sampled) > 0


def test_whole_episodes_are_recorded_as_rllib_s_own_loop_makes_them(tmp_path: Path) -> None:
    runner = rllib.RolloutsOfflineEnvRunner(config=recording(tmp_path, episodes=True))
    assert "recorded" in runner.slow_reason
    sampled = rllib.RolloutsEnvRunner.sample(runner, num_episodes=5)
    # as lists, which is what RLlib writes
    assert len(sampled) == 5 and not any(episode.is_numpy for episode in sampled)


def test_runners_that_would_write_nothing_refuse(tmp_path: Path) -> None:
    config = config_of("CartPole-v1").offline_data(output=tmp_path.as_posix())
    with pytest.raises(SpecError, match="RolloutsOfflineEnvRunner"):
        rllib.RolloutsEnvRunner(config=config)
    agents = PPOConfig().environment("simple_spread_v3").offline_data(output=tmp_path.as_posix())
    agents.multi_agent(policies={"p"}, policy_mapping_fn=lambda agent, episode, **_: "p")
    with pytest.raises(SpecError, match="several agents, which RLlib cannot record"):
        rllib.RolloutsMultiAgentEnvRunner(config=agents)


@pytest.mark.parametrize("runner", [ByPool, ByTorch])
def test_chunks_say_how_long_they_took(runner: Any) -> None:
    sampler = runner(config=config_of("CartPole-v1", max_episode_steps=13))
    for _ in range(3):
        begin = time.perf_counter()
        chunks = sampler.sample(num_timesteps=80)
        longest = time.perf_counter() - begin
        assert all(0.0 < chunk.get_duration_s() <= longest for chunk in chunks)


def test_chunks_of_several_agents_say_how_long_they_took() -> None:
    config = PPOConfig().environment("simple_spread_v3", env_config={"max_episode_steps": 11})
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=3)
    config.multi_agent(policies={"p"}, policy_mapping_fn=lambda agent, episode, **_: "p")
    sampler = rllib.RolloutsMultiAgentEnvRunner(config=config)
    begin = time.perf_counter()
    chunks = sampler.sample(num_timesteps=60)
    longest = time.perf_counter() - begin
    assert all(0.0 < chunk.get_duration_s() <= longest for chunk in chunks)
    assert any(chunk.is_done for chunk in chunks)
