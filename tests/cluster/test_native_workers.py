# SPDX-License-Identifier: Apache-2.0
"""The whole path: native CartPole pools and real policies in Ray actors."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from counter_world import assert_balanced

import rollouts
from rollouts import RolloutCoordinator
from rollouts.errors import SpecError
from rollouts.mujoco import Scaled
from rollouts.policy import PolicyOutput, TorchPolicy
from rollouts.returns import Gae
from rollouts.workers import CollectOptions, Fragment, PolicySpec, QueueLimits

pytestmark = pytest.mark.system

TIMEOUT_S = 300.0
STEP_S = 0.02  # time of a step of CartPole
GAE = Gae(gamma=0.97, gae_lambda=0.9)


class LeaningPolicy:
    """Pushes to where the pole leans, which soon fails: a function of the observation alone."""

    def __init__(self, spec: PolicySpec) -> None:
        self.policy_version = 0

    def load_weights(self, weights: Mapping[str, np.ndarray], version: int) -> None:
        self.policy_version = version

    def weights(self) -> dict[str, np.ndarray]:
        return {}

    def act(self, obs: np.ndarray) -> PolicyOutput:
        zeros = np.zeros(len(obs), np.float32)
        return PolicyOutput((obs[:, 2] > 0).astype(np.int64), zeros, zeros)

    def value(self, obs: np.ndarray) -> np.ndarray:
        return np.zeros(len(obs), np.float32)


class CentringPolicy(LeaningPolicy):
    """Drives an inverted pendulum's cart towards its middle: the pole falls."""

    def act(self, obs: np.ndarray) -> PolicyOutput:
        zeros = np.zeros(len(obs), np.float32)
        return PolicyOutput(-obs[:, :1].astype(np.float32), zeros, zeros)


class ActorCritic(torch.nn.Module):
    """One linear layer for both heads."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)
        torch.nn.init.zeros_(self.layer.weight)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out = self.layer(obs)
        return out[:, :2], out[:, 2]


def make_torch_policy(spec: PolicySpec) -> TorchPolicy:
    # the same seed in every worker: RolloutWorker must see to it that their noise differs
    return TorchPolicy(ActorCritic(), spec.single_action_space)


def start(make_policy: Any, **kwargs: Any) -> RolloutCoordinator:
    settings = {
        "id": "CartPole-v1",
        "num_workers": 2,
        "num_envs_per_worker": 4,
        "rollout_length": 64,
    } | kwargs
    return RolloutCoordinator(make_policy=make_policy, **settings)


def data_by_env(
    num_fragments: int,
    make_policy: Any = LeaningPolicy,
    weights: Mapping[str, np.ndarray] | None = None,
    **kwargs: Any,
) -> dict[int, dict[str, np.ndarray]]:
    """Collects `num_fragments` of every worker; returns arrays (T, ...) by env_id."""
    columns: dict[int, dict[str, list[np.ndarray]]] = defaultdict(lambda: defaultdict(list))
    counts: dict[int, int] = defaultdict(int)
    with start(make_policy, **kwargs) as coordinator:
        coordinator.publish_weights(weights or {})
        while len(counts) < max(1, kwargs["num_workers"]) or min(counts.values()) < num_fragments:
            (fragment,) = coordinator.get_fragments(1, TIMEOUT_S)
            counts[fragment.worker_id] += 1
            if counts[fragment.worker_id] > num_fragments:
                continue
            for column, env_id in enumerate(fragment.batch.env_id):
                for name in ("obs", "action", "reward", "terminated", "truncated"):
                    array = getattr(fragment.batch, name)[:, column]
                    columns[int(env_id)][name].append(array)
                for name, array in fragment.batch.extras.items():
                    columns[int(env_id)][name].append(array[:, column])
    return {
        env_id: {name: np.concatenate(parts) for name, parts in arrays.items()}
        for env_id, arrays in columns.items()
    }


@pytest.mark.parametrize(
    "layout",
    [
        # one has nothing to share; the last one shows batches of it
        pytest.param({"num_workers": 1, "num_envs_per_worker": 6}, marks=pytest.mark.slow),
        {"num_workers": 2, "num_envs_per_worker": 3},
        {"num_workers": 1, "num_envs_per_worker": 6, "batch_size": 2},
    ],
)
def test_data_do_not_depend_on_the_number_of_workers(
    ray_session: object, layout: dict[str, Any]
) -> None:
    whole, own = CollectOptions(returns=GAE), {**layout}
    parts = CollectOptions(returns=GAE, batch_size=own.pop("batch_size", None))
    expected = data_by_env(4, num_workers=0, num_envs_per_worker=6, seed=3, collect=whole)
    got = data_by_env(4, seed=3, collect=parts, **own)
    assert sorted(got) == sorted(expected) == list(range(6))
    for env_id, arrays in expected.items():
        assert arrays["terminated"].any() and arrays["target"].any()
        for name, array in arrays.items():
            np.testing.assert_array_equal(got[env_id][name], array, err_msg=f"{env_id} {name}")


# one has nothing to share, and three share as two do
@pytest.mark.parametrize(
    "num_workers", [pytest.param(n, marks=() if n == 2 else pytest.mark.slow) for n in (1, 2, 3)]
)
def test_fused_rollouts_do_not_depend_on_the_number_of_workers(
    ray_session: object, num_workers: int
) -> None:
    """Sampled actions, too: their noise is a function of whose they are, not of who draws it."""
    torch.manual_seed(0)
    weights = {name: tensor.numpy() for name, tensor in ActorCritic().state_dict().items()}
    collect = CollectOptions(engine="native", outputs=("entropy", "logits"), returns=GAE)
    settings = {"seed": 3, "collect": collect}
    expected = data_by_env(
        4, make_torch_policy, weights, num_workers=0, num_envs_per_worker=6, **settings
    )
    got = data_by_env(
        4,
        make_torch_policy,
        weights,
        num_workers=num_workers,
        num_envs_per_worker=6 // num_workers,
        **settings,
    )
    assert sorted(got) == sorted(expected) == list(range(6))
    for env_id, arrays in expected.items():
        assert 0 < arrays["action"].mean() < 1
        assert {"entropy", "logits", "advantage", "target"} <= {*arrays}
        for name, array in arrays.items():
            np.testing.assert_array_equal(got[env_id][name], array, err_msg=f"{env_id} {name}")
    # and no two environments draw the same
    assert len({arrays["action"].tobytes() for arrays in got.values()}) == 6


def test_workers_randomise_their_models(ray_session: object) -> None:
    options = {"model": {"body_mass": Scaled(0.2, 5), "opt.gravity": [0, 0, -5.0]}}
    settings = {"id": "InvertedPendulum-v5", "seed": 3, "env_options": options}
    expected = data_by_env(2, CentringPolicy, num_workers=0, num_envs_per_worker=4, **settings)
    got = data_by_env(2, CentringPolicy, num_workers=2, num_envs_per_worker=2, **settings)
    files = data_by_env(
        2, CentringPolicy, num_workers=0, num_envs_per_worker=4, **(settings | {"env_options": {}})
    )
    assert sorted(got) == sorted(expected) == list(range(4))
    for env_id, arrays in expected.items():
        assert arrays["terminated"].any()
        assert not np.array_equal(arrays["obs"], files[env_id]["obs"])
        for name, array in arrays.items():
            np.testing.assert_array_equal(got[env_id][name], array, err_msg=f"{env_id} {name}")


def assert_continuous(fragments: list[Fragment]) -> None:
    """Checks that every step follows from the one before, over fragment borders too."""
    lives = defaultdict(list)
    for fragment in fragments:
        lives[fragment.worker_id, fragment.incarnation].append(fragment)
    for life in lives.values():
        assert [fragment.seq_no for fragment in life] == list(range(len(life)))
        for before, after in pairwise(life):
            np.testing.assert_array_equal(before.batch.last_obs, after.batch.obs[0])
        obs = np.concatenate([f.batch.obs for f in life] + [life[-1].batch.last_obs[None]])
        ended = np.concatenate([f.batch.terminated | f.batch.truncated for f in life])
        position, speed = obs[..., 0], obs[..., 1]
        # observations are float32, of positions below 2.4 + 0.02 * speed
        np.testing.assert_allclose(
            position[1:][~ended], (position + STEP_S * speed)[:-1][~ended], atol=1e-6
        )


def take_until_each_has(
    num_fragments: int, coordinator: RolloutCoordinator, lives: set[tuple[int, int]]
) -> list[Fragment]:
    """Takes fragments until there are `num_fragments` of each (worker_id, incarnation)."""
    fragments: list[Fragment] = []
    counts = dict.fromkeys(lives, 0)
    while min(counts.values()) < num_fragments:
        (fragment,) = coordinator.get_fragments(1, TIMEOUT_S)
        fragments.append(fragment)
        life = (fragment.worker_id, fragment.incarnation)
        if life in counts:
            counts[life] += 1
    return fragments


def test_sigkill_leaves_every_trajectory_whole(ray_session: object) -> None:
    with start(LeaningPolicy) as coordinator:
        coordinator.publish_weights({})
        fragments = take_until_each_has(3, coordinator, {(0, 0), (1, 0)})
        for worker_id in (0, 1):
            os.kill(coordinator.stats()["workers"][worker_id]["pid"], signal.SIGKILL)
            fragments += take_until_each_has(5, coordinator, {(worker_id, 1)})
        assert_continuous(fragments)
        # the second life opens with other episodes than the first
        first_obs = {(f.worker_id, f.incarnation): f.batch.obs[0] for f in fragments[::-1]}
        assert (first_obs[0, 0] != first_obs[0, 1]).any(axis=1).all()
        stats = coordinator.stats()
        assert_balanced(stats)
        assert stats["restarts"] == 2


def test_torch_policies_follow_the_learner_and_sample_apart(ray_session: object) -> None:
    with start(make_torch_policy, queue=QueueLimits(credits_per_worker=1)) as coordinator:
        module = ActorCritic()
        learner = TorchPolicy(module, rollouts.env_spec("CartPole-v1").single_action_space)
        coordinator.publish_weights(learner.weights())
        fragments = take_until_each_has(1, coordinator, {(0, 0), (1, 0)})
        first = [next(f.batch for f in fragments if f.worker_id == w) for w in (0, 1)]
        assert (first[0].action != first[1].action).any(axis=0).all()
        batch = coordinator.get(num_fragments=2, timeout_s=TIMEOUT_S)
        assert batch.obs.shape == (64, 8, 4)
        # from a bias that leaves no doubt
        with torch.no_grad():
            module.layer.bias.copy_(torch.tensor([0.0, 50.0, 7.0]))
        version = coordinator.publish_weights(learner.weights())
        while batch.policy_version.min() < version:
            batch = coordinator.get(timeout_s=TIMEOUT_S)
        assert (batch.action == 1).all()
        assert (batch.value == 7.0).all()


def test_wrong_option_is_an_error_at_once(ray_session: object) -> None:
    with pytest.raises(SpecError, match="nonsense"):
        start(LeaningPolicy, env_options={"nonsense": 0})
    with pytest.raises(SpecError, match="No-v1"):
        RolloutCoordinator(
            "No-v1", LeaningPolicy, num_workers=1, num_envs_per_worker=1, rollout_length=1
        )
    with pytest.raises(SpecError, match="make_policy must be a function"):
        start(None)  # type: ignore[arg-type]
