# SPDX-License-Identifier: Apache-2.0
"""Recorded fragments are made again bit for bit, in every cell that records."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import own_envs
import pytest
from recorded_run import SHOWN, assert_same, policies_of, replay_elsewhere

import rollouts
from rollouts.errors import EnvError, SpecError

pytestmark = pytest.mark.system

NUM_ENVS, STEPS, FRAGMENTS = 5, 12, 7
NORMALIZED = {"normalize_observation": True, "normalize_reward": True}
CELLS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("CartPole-v1", {}, {}),
    ("CartPole-v1", {}, {"engine": "torch"}),
    ("CartPole-v1", {}, {"prefetch": 1}),
    ("CartPole-v1", {"max_episode_steps": 7}, {"keep_final_obs": True}),
    ("Blackjack-v1", {}, {}),
    ("LunarLander-v3", {}, {}),
    ("MiniGrid-Empty-5x5-v0", {}, {}),
    ("HalfCheetah-v5", {}, {"prefetch": 1}),
    ("Hopper-v5", NORMALIZED, {}),
    ("Hopper-v5", NORMALIZED, {"engine": "torch", "keep_final_obs": True}),
    ("Hopper-v5", {"frame_stack": 3, "time_aware": True}, {}),
    ("simple_tag_v3", {}, {}),
    ("simple_tag_v3", {"max_episode_steps": 9}, {"engine": "torch", "keep_final_obs": True}),
]


def record(log: Any, id: str, options: dict[str, Any], collect: dict[str, Any]) -> list[Any]:
    """Returns the rollouts of a run that was recorded."""
    env: Any = rollouts.make_vec(
        id, NUM_ENVS, seed=3, autoreset_mode="same_step", num_threads=2, env_id_offset=20, **options
    )
    collector = rollouts.Collector(env, policies_of(env), STEPS, record=log, **collect)
    made = [collector.collect() for _ in range(FRAGMENTS)]
    collector.close()
    return made


@pytest.mark.parametrize(("id", "options", "collect"), CELLS)
def test_every_fragment_is_made_again(
    id: str, options: dict[str, Any], collect: dict[str, Any], tmp_path: Path
) -> None:
    made = record(rollouts.RunLog(path=tmp_path, state_every=3), id, options, collect)
    for number, batch in enumerate(made):
        again = rollouts.replay_run(tmp_path, env_id=22, step=number * STEPS + 4)
        assert (again.first_step, again.num_steps) == (number * STEPS, STEPS)
        assert_same(again, batch)


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_atari_is_made_again_in_another_process(engine: str, tmp_path: Path) -> None:
    made = record(tmp_path / "log", "ALE/Pong-v5", {}, {"engine": engine})
    own = replay_elsewhere(tmp_path, 23, 5 * STEPS, tmp_path / "own.npz")
    for name in SHOWN:
        np.testing.assert_array_equal(own[name], getattr(made[5], name)[:, 3])


def test_what_a_learner_does_to_its_rollout_does_not_reach_the_log(tmp_path: Path) -> None:
    env = rollouts.make_vec("CartPole-v1", NUM_ENVS, seed=3, autoreset_mode="same_step")
    with env:
        collector = rollouts.Collector(env, policies_of(env), STEPS, record=tmp_path)
        for _ in range(3):
            batch = collector.collect()
            for array in (batch.obs, batch.reward, batch.action):
                array[:] = 0
        collector.close()
    assert rollouts.replay_run(tmp_path, env_id=0, step=2 * STEPS).is_verified


@pytest.mark.skipif(not own_envs.has_compiler(), reason="no C++ compiler")
@pytest.mark.parametrize("register", [own_envs.register_vault, own_envs.register_herd])
def test_environments_of_ones_own_are_made_again(register: Any, tmp_path: Path) -> None:
    own_envs.keep_between_runs()
    id = register()
    made = record(tmp_path, id, {}, {})
    assert_same(rollouts.replay_run(tmp_path, env_id=21, step=STEPS * 4), made[4])
    header = own_envs.HEADERS / ("vault.h" if "Vault" in id else "herd.h")
    replay_elsewhere(tmp_path, 21, STEPS * 4, tmp_path / "own.npz", "--header", str(header))


def test_python_environments_without_a_seed_are_refused(tmp_path: Path) -> None:
    env = rollouts.from_env_fns([Walk], num_processes=0, autoreset_mode="same_step")
    with env, pytest.raises(SpecError, match=r"without a seed.* give from_env_fns"):
        rollouts.Collector(env, policies_of(env), STEPS, record=tmp_path / "log")
    assert not list(tmp_path.iterdir())


class Walk(gymnasium.Env[np.ndarray, int]):
    """A random walk that ends at 3; one that came to 100 fails."""

    observation_space = gymnasium.spaces.Box(-200, 200, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(3, start=-1)

    def __init__(self, fails_at: int | None = None) -> None:
        self.fails_at, self.now, self.count = fails_at, 0.0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.now = 0.0
        return np.float32([self.now]), {}

    def step(self, action: int) -> Any:
        self.count += 1
        if self.count == self.fails_at:
            raise RuntimeError("the motor is gone")
        self.now += float(self.np_random.normal())
        return np.float32([self.now]), self.now, abs(self.now) > 3, False, {}


def make_walks(header: Any = None) -> rollouts.VectorEnv:
    """Makes environments as the run had them, with its seed and offset."""
    return rollouts.from_env_fns(
        [Walk, Walk, lambda: Walk(fails_at=30)],
        num_processes=0,
        seed=4,
        autoreset_mode="same_step",
        env_id_offset=6,
    )


def test_an_error_in_python_environments_names_the_command_that_shows_it(tmp_path: Path) -> None:
    env = make_walks()
    collector = rollouts.Collector(env, policies_of(env), STEPS, record=tmp_path)
    made = [collector.collect() for _ in range(2)]
    with pytest.raises(EnvError, match=r"replay-run .* --env 8 --step 29` shows it") as raised:
        collector.collect()
    assert "the motor is gone" in str(raised.value)
    # new episodes, in environments that save no states
    collector.collect()
    collector.close()
    assert_same(rollouts.replay_run(tmp_path, env_id=7, step=15, make_env=make_walks), made[1])
    with pytest.raises(SpecError, match=r"how to make its environments.* give make_env"):
        rollouts.replay_run(tmp_path, env_id=7, step=15)
    with pytest.raises(EnvError, match="the motor is gone"):
        rollouts.replay_run(tmp_path, env_id=8, step=29, make_env=make_walks)
    with pytest.raises(SpecError, match="only steps before it can be made again"):
        rollouts.replay_run(tmp_path, env_id=7, step=3 * STEPS + 1, make_env=make_walks)


KILLED = """
import sys, rollouts
sys.path.insert(0, {helpers!r})
from recorded_run import policies_of
env = rollouts.make_vec("HalfCheetah-v5", 4, seed=3, autoreset_mode="same_step")
log = rollouts.RunLog(path={log!r}, state_every=4, max_bytes=1 << 20)
collector = rollouts.Collector(env, policies_of(env), 16, record=log)
for number, batch in enumerate(collector):
    print(number, flush=True)
"""


def test_a_killed_process_leaves_a_log_that_is_read(tmp_path: Path) -> None:
    helpers = str(Path(__file__).parents[1] / "helpers")
    code = KILLED.format(helpers=helpers, log=str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        for line in run.stdout:
            if int(line) >= 800:
                os.kill(run.pid, signal.SIGKILL)
                break
    from rollouts.run_log.log_reader import open_log

    (log,) = open_log(tmp_path)
    first, end = log.steps()
    # old parts made room, and what the thread had not written is missing
    assert first > 0
    assert end - first > 16 * 100
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 1 << 20
    chooses = random.Random(0)
    for _ in range(3):
        step = chooses.randrange(first, end)
        assert rollouts.replay_run(tmp_path, env_id=2, step=step).is_verified
