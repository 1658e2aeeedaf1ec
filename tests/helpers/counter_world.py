# SPDX-License-Identifier: Apache-2.0
"""A world in which every step says where it comes from, so that loss and repetition are visible."""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rollouts.batch import RolloutBatch
from rollouts.errors import EnvError
from rollouts.workers import Fragment, WorkerConfig

WAIT_S = 300.0
FIELDS = ("env_id", "seed", "episode", "t", "step")


class CounterPolicy:
    """Chooses a function of the observation and the weights."""

    def __init__(self) -> None:
        self.policy_version = 0
        self.offset = 0

    def load_weights(self, weights: Mapping[str, np.ndarray], version: int) -> None:
        self.offset = int(weights["offset"][0])
        self.policy_version = version

    def act(self, obs: np.ndarray) -> np.ndarray:
        return obs[:, FIELDS.index("step")] % 7 + self.offset


class CounterEnv:
    """Only what a worker closes."""

    is_closed = False

    def close(self) -> None:
        self.is_closed = True


class CounterCollector:
    """Collects steps of `num_envs` counters; obs[t, i] holds FIELDS as int64.

    Options in config.env_options:
      pad          float32 numbers added to each step, to make fragments large
      hang         (worker_id, incarnation, seq_no, path): in the middle of that fragment, creates
                   the file and never goes on
      fail_once    path: in the middle of the first fragment that finds this file, writes the
                   fragment's number into it and raises
      sleep_s      seconds that a step takes
      slow         (worker_id, seconds): that worker's steps take so long
      env_error    (incarnations, seq_no): as `fail`, with an EnvError
      fail_worker  the one worker that fails; all do without it
      fail         (incarnations, seq_no): those incarnations raise in the middle of that fragment
    """

    def __init__(self, config: WorkerConfig, make_policy: Any) -> None:
        self.env = CounterEnv()
        self.policy = make_policy(config)
        self._config = config
        self._options = config.env_options
        self._env_id = config.env_id_offset + np.arange(config.num_envs)
        slow_id, slow_s = self._options.get("slow", (None, 0.0))
        is_slow = slow_id == config.worker_id
        self._step_s = slow_s if is_slow else self._options.get("sleep_s", 0.0)
        self._steps = 0
        self._fragments = 0

    def collect(self) -> RolloutBatch:
        config, shape = self._config, (self._config.rollout_length, self._config.num_envs)
        obs = np.empty((*shape, len(FIELDS)), np.int64)
        action, ended = np.empty(shape, np.int64), np.empty(shape, np.bool_)
        for t in range(config.rollout_length):
            if t == config.rollout_length // 2:
                self._misbehave()
            time.sleep(self._step_s)
            obs[t] = self._observe()
            action[t] = self.policy.act(obs[t])
            self._steps += 1
            ended[t] = self._observe()[:, FIELDS.index("t")] == 0
        self._fragments += 1
        zeros, rows = np.zeros(shape, np.float32), np.zeros(config.num_envs, np.float32)
        pad = np.zeros((*shape, self._options.get("pad", 1)), np.float32)
        return RolloutBatch(
            obs=obs,
            action=action,
            reward=zeros,
            terminated=ended,
            truncated=np.zeros(shape, np.bool_),
            bootstrap_value=zeros,
            log_prob=zeros,
            value=zeros,
            last_obs=self._observe(),
            last_value=rows,
            policy_version=np.full(shape, self.policy.policy_version, np.int64),
            env_id=self._env_id.astype(np.int32),
            episode_return=np.zeros(shape),
            episode_length=np.zeros(shape, np.int32),
            extras={"pad": pad},
        )

    def _observe(self) -> np.ndarray:
        length = 3 + self._env_id % 4
        obs = np.empty((len(self._env_id), len(FIELDS)), np.int64)
        obs[:, 0] = self._env_id
        obs[:, 1] = self._config.env_seed
        obs[:, 2], obs[:, 3] = np.divmod(self._steps, length)
        obs[:, 4] = self._steps
        return obs

    def _misbehave(self) -> None:
        here = (self._config.worker_id, self._config.incarnation, self._fragments)
        *where, path = self._options.get("hang", (None,))
        if tuple(where) == here:
            Path(path).write_text(str(os.getpid()))
            threading.Event().wait()
        if (order := Path(self._options.get("fail_once", os.devnull))).is_file() and not here[1]:
            order.write_text(str(self._fragments))
            raise ValueError("the counter broke")
        if self._options.get("fail_worker", here[0]) != here[0]:
            return
        for option, error in (
            ("fail", ValueError("the counter broke")),
            ("env_error", EnvError("env 1 broke")),
        ):
            incarnations, seq_no = self._options.get(option, ((), None))
            if here[1] in incarnations and seq_no == here[2]:
                raise error


def make_policy(spec: Any) -> Any:
    return CounterPolicy()


def weights(offset: int = 0) -> dict[str, np.ndarray]:
    return {"offset": np.array([offset])}


def assert_exactly_once(fragments: Iterable[Fragment]) -> None:
    """Checks that each incarnation's steps come whole, in order, once, and from one life."""
    lives = defaultdict(list)
    for fragment in fragments:
        lives[fragment.worker_id, fragment.incarnation].append(fragment)
    seeds = set()
    for life in lives.values():
        assert [fragment.seq_no for fragment in life] == list(range(len(life)))
        obs = np.concatenate([fragment.batch.obs for fragment in life])
        steps = np.arange(len(obs))
        for column in range(obs.shape[1]):
            env_id, seed, episode, t, step = obs[:, column].T
            assert (step == steps).all()
            assert (env_id == env_id[0]).all()
            assert (seed == seed[0]).all()
            length = 3 + env_id[0] % 4
            assert (episode == steps // length).all()
            assert (t == steps % length).all()
            # no environment lives twice with the same seed
            assert (env_id[0], seed[0]) not in seeds
            seeds.add((env_id[0], seed[0]))


def wait_until(is_true: Callable[[], bool], tell: Callable[[], Any] = lambda: "") -> None:
    """Looks again and again until `is_true`, at most WAIT_S; a failure has what `tell` returns."""
    deadline = time.monotonic() + WAIT_S
    while not is_true():
        assert time.monotonic() < deadline, f"it has not come to be within {WAIT_S} s {tell()}"
        threading.Event().wait(0.01)


class StepChecker:
    """Checks fragments as they come, in memory that does not grow with their number.

    Within one incarnation fragments come in order and once; one may be missing where its arrays
    were lost. Each row of a fragment must hold the steps that its numbers say, of one life.
    """

    def __init__(self) -> None:
        self.num_steps = self.num_fragments = self.num_missing = 0
        self._next: dict[tuple[int, int], int] = {}
        self._seed: dict[tuple[int, int], int] = {}

    def add(self, *fragments: Fragment) -> None:
        for fragment in fragments:
            life = (fragment.worker_id, fragment.incarnation)
            expected = self._next.get(life, 0)
            assert fragment.seq_no >= expected, f"{life} came twice or out of order"
            self.num_missing += fragment.seq_no - expected
            self._next[life] = fragment.seq_no + 1
            self._check_steps(fragment)
            self.num_fragments += 1
            self.num_steps += fragment.num_steps

    def _check_steps(self, fragment: Fragment) -> None:
        obs, life = fragment.batch.obs, (fragment.worker_id, fragment.incarnation)
        steps, rows, _ = obs.shape
        env_id, seed, _, _, step = np.moveaxis(obs, -1, 0)
        assert fragment.num_steps == steps * rows
        assert (env_id == fragment.worker_id * rows + np.arange(rows)).all()
        assert (step == fragment.seq_no * steps + np.arange(steps)[:, None]).all()
        check_counters(obs)
        # one seed in all of a life, and another in every other life of the same worker
        if life not in self._seed:
            assert int(seed[0, 0]) not in {
                other for (worker_id, _), other in self._seed.items() if worker_id == life[0]
            }
            self._seed[life] = int(seed[0, 0])
        assert (seed == self._seed[life]).all()


def check_counters(obs: np.ndarray) -> None:
    """Checks that each column of (T, B, fields) is one stretch of one environment's life."""
    env_id, seed, episode, t, step = np.moveaxis(obs, -1, 0)
    assert (env_id == env_id[0]).all() and (seed == seed[0]).all()
    assert (step == step[0] + np.arange(len(step))[:, None]).all()
    length = 3 + env_id % 4
    assert (episode == step // length).all() and (t == step % length).all()


def assert_balanced(stats: dict[str, Any]) -> None:
    for account in (stats["env_steps"], stats["fragments"]):
        discarded = sum(account["discarded"].values())
        assert account["produced"] == account["delivered"] + account["queued"] + discarded
    fragments = stats["fragments"]
    interrupted = sum(fragments["interrupted"].values())
    assert fragments["requested"] == fragments["produced"] + fragments["in_flight"] + interrupted
