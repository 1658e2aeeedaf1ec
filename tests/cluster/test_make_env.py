# SPDX-License-Identifier: Apache-2.0
"""Workers that collect from environments of the user's own: `CollectOptions(make_env=...)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

import rollouts
from rollouts import RolloutCoordinator
from rollouts.policy import PolicyOutput
from rollouts.workers import CollectOptions, Inference

pytestmark = pytest.mark.system

HANG_S = 300.0


class Walk(gymnasium.Env[Any, Any]):
    """Observes (steps, action before); ends after five steps."""

    observation_space = gymnasium.spaces.Box(0, 10, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {"seed": seed}

    def step(self, action: Any) -> Any:
        self.steps += 1
        obs = np.array([self.steps, action], np.float32)
        return obs, float(action), self.steps == 5, False, {}


class Echo:
    """Chooses the number of the step, modulo 3."""

    policy_version = 0

    def act(self, obs: Any) -> PolicyOutput:
        zeros = np.zeros(len(obs), np.float32)
        return PolicyOutput((obs[:, 0] % 3).astype(np.int64), zeros, zeros, {})

    def value(self, obs: Any) -> Any:
        return np.zeros(len(obs), np.float32)

    def load_weights(self, weights: Any, version: int) -> None:
        self.policy_version = version


def make_env(config: Any) -> rollouts.VectorEnv:
    return rollouts.from_env_fns(
        [Walk] * config.num_envs,
        num_processes=2,
        batch_size=config.collect.batch_size,
        seed=config.env_seed,
        env_id_offset=config.env_id_offset,
        autoreset_mode="same_step",
    )


def coordinator(make_env: Any = make_env, **options: Any) -> RolloutCoordinator:
    collect = CollectOptions(make_env=make_env, batch_size=options.pop("batch_size", None))
    settings = {"num_envs_per_worker": 4, "rollout_length": 10, "collect": collect, **options}
    return RolloutCoordinator("walk", lambda spec: Echo(), **settings)


def check(batch: Any, num_envs: int) -> None:
    assert batch.obs.shape == (10, num_envs, 2)
    assert batch.terminated.sum() == 2 * num_envs
    assert batch.episodes().lengths.tolist() == [5] * 2 * num_envs
    np.testing.assert_array_equal(batch.reward, batch.obs[..., 0] % 3)


@pytest.mark.parametrize("batch_size", [None, 2])
def test_local_worker_collects_from_processes(batch_size: int | None) -> None:
    with coordinator(num_workers=0, batch_size=batch_size) as local:
        local.publish_weights({})
        check(local.get(1), 4)
        check(local.get(1), 4)


def test_ray_workers_collect_from_processes(ray_session: Any) -> None:
    with coordinator(num_workers=2) as remote:
        remote.publish_weights({})
        seen: set[int] = set()
        for _ in range(4):
            batch = remote.get(1, timeout_s=HANG_S)
            check(batch, 4)
            seen |= set(batch.env_id.tolist())
        assert seen <= set(range(8)) and len(seen) >= 4


def wrong_offset(config: Any) -> Any:
    return rollouts.from_env_fns([Walk] * 4, env_id_offset=3, autoreset_mode="same_step")


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"make_env": 3}, "must be a function"),
        (
            {"num_workers": 2, "inference": Inference()},
            "inference cannot be had of environments in Python",
        ),
        ({"make_env": wrong_offset}, r"\(4, 3\), expected \(4, 0\)"),
    ],
)
def test_environments_that_cannot_work_are_refused(options: Any, what: str) -> None:
    make: Callable[[], Any] = lambda: coordinator(**{"num_workers": 0, **options})  # noqa: E731
    with pytest.raises(rollouts.SpecError, match=what):
        make()
