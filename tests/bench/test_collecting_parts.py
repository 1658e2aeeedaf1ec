# SPDX-License-Identifier: Apache-2.0
"""Parts of `rollouts bench collect` without a pool: tasks, drawn actions, a worker that pauses,
and how EnvPool's users act."""

from __future__ import annotations

import itertools
import math
import pickle
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch
from gymnasium import spaces

from comparisons.collecting.envpool_torch import EnvPoolTorch, _arrays
from rollouts.bench import Settings, collect_streams
from rollouts.bench.collect_streams import Coordinated, drawn_actions
from rollouts.bench.collect_task import Task
from rollouts.bench.policy_kinds import PolicyKind, default_policy, read_policy
from rollouts.envs.registry import env_spec


def task_of(env_id: str = "CartPole-v1", policy: str = "8x4", **changes: Any) -> Task:
    settings = Settings(env_id, 6, 6, 1, **changes)
    return Task(settings, env_spec(env_id), 5, read_policy(policy))


@pytest.mark.parametrize(
    ("space", "name"),
    [
        (spaces.Box(0, 255, (4, 84, 84), np.uint8), "cnn"),
        (spaces.Box(-1, 1, (84, 84)), "64x64"),
        (spaces.Box(-1, 1, ()), "64x64"),
        (spaces.Discrete(5), "64x64"),
    ],
)
def test_images_alone_get_a_cnn(space: spaces.Space[Any], name: str) -> None:
    assert default_policy(space).name == name


def test_a_policy_is_equal_to_one_of_its_name() -> None:
    assert read_policy("16x8") == PolicyKind("16x8", (16, 8)) != read_policy("16")


def test_what_makes_a_policy_can_be_sent_to_a_worker() -> None:
    make = pickle.loads(pickle.dumps(task_of().make_policy))
    assert make.keywords == {"kind": PolicyKind("8x4", (8, 4))}


def test_all_contestants_begin_with_equal_networks_and_noise_of_the_seed() -> None:
    policies = [task_of(seed=seed).local_policy(64) for seed in (1, 1, 2)]
    first, same, other = (policy.weights() for policy in policies)
    for name in first:
        assert np.array_equal(first[name], same[name]) and np.array_equal(first[name], other[name])
    chosen = [policy.act(np.zeros((64, 4), np.float32)).action.tolist() for policy in policies]
    assert chosen[0] == chosen[1] != chosen[2]


def test_a_random_policy_has_a_row_for_each_environment() -> None:
    policy = task_of(policy="random").local_policy(9)
    assert policy.act(np.zeros((9, 4), np.float32)).action.shape == (9,)


def test_drawn_actions_are_those_of_the_seed() -> None:
    for env_id in ("CartPole-v1", "Pendulum-v1"):
        first, same, other = (
            np.stack(drawn_actions(task_of(env_id, seed=seed))) for seed in (3, 3, 4)
        )
        assert first.shape[:2] == (5, 6)
        assert np.array_equal(first, same) and not np.array_equal(first, other)


def test_seeds_of_64_bits_are_taken() -> None:
    (first, *_) = drawn_actions(task_of(seed=2**63 + 5))
    assert first.shape == (6,) and set(first.tolist()) <= {0, 1}


# -- the worker of a coordinator ---------------------------------------------------------------


class Fragment:
    num_steps = 30


class FakeCoordinator:
    """Says one after the other of `stats` and counts what is taken."""

    def __init__(self, *stats: tuple[int, int, str]) -> None:
        self._stats = itertools.chain(stats, itertools.repeat(stats[-1]))
        self.taken = self.asked = 0

    def stats(self) -> dict[str, Any]:
        self.asked += 1
        in_flight, queued, state = next(self._stats)
        return {
            "fragments": {"in_flight": in_flight, "queued": queued},
            "outstanding_limit": 2,
            "queue_depth": queued,
            "workers": [{"state": state}],
        }

    def get(self, timeout_s: float) -> Fragment:
        self.taken += 1
        if self.taken > 3:
            raise RuntimeError("the worker is benched")
        return Fragment()


def coordinated(*stats: tuple[int, int, str]) -> tuple[Coordinated, FakeCoordinator]:
    stream = Coordinated.__new__(Coordinated)
    fake = FakeCoordinator(*stats)
    stream._coordinator = fake  # type: ignore[assignment]
    return stream, fake


def test_a_worker_has_paused_when_all_its_fragments_are_queued() -> None:
    # one on its way, none on its way and one missing, and then all
    slow = [(1, 1, "ready")] * 2 + [(0, 1, "ready")] * 2
    stream, fake = coordinated(*slow, (0, 2, "ready"))
    stream.pause()
    assert fake.taken == 0


def test_a_full_queue_is_no_pause_while_a_fragment_is_on_its_way() -> None:
    # each look but the last asks once more, whether the worker is lost
    stream, fake = coordinated(*[(1, 2, "ready")] * 4, (0, 3, "ready"))
    stream.pause()
    assert fake.asked == 5


def test_what_waited_is_no_part_of_the_stream() -> None:
    stream, fake = coordinated((0, 2, "ready"))
    stream.resume()
    # both that waited, and the first that took its time
    assert fake.taken == 3


def test_a_worker_that_is_lost_says_why() -> None:
    stream, fake = coordinated((0, 1, "benched"))
    with pytest.raises(RuntimeError, match="is benched"):
        stream.pause()
    assert fake.taken == 4


def test_a_worker_that_never_pauses_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect_streams, "_PAUSE_TIMEOUT_S", 0.0)
    stream, _ = coordinated((1, 0, "ready"))
    with pytest.raises(TimeoutError, match=r"did not finish within 0\.0 s"):
        stream.pause()


def test_fragments_are_counted_in_env_steps() -> None:
    stream, _ = coordinated((0, 0, "ready"))
    assert stream.collect() == 30


# -- a torch loop over EnvPool -----------------------------------------------------------------


class CountingEnv:
    """Observes (steps, row) and remembers its actions."""

    def __init__(self) -> None:
        self.actions: list[Any] = []

    def step(self, actions: Any) -> tuple[Any, ...]:
        self.actions.append(actions.copy())
        t = len(self.actions)
        obs = np.array([[t, row] for row in range(3)], np.float32)
        reward = np.arange(3, dtype=np.float32) + 10 * t
        return obs, reward, np.array([t == 2] * 3), np.array([t == 1] * 3), {}


def torch_loop(space: spaces.Space[Any], module: Any) -> tuple[EnvPoolTorch, CountingEnv]:
    loop, env = EnvPoolTorch.__new__(EnvPoolTorch), CountingEnv()
    loop.num_envs, loop._env, loop._module = 3, env, module
    loop._obs = torch.tensor([[0.0, row] for row in range(3)])
    loop._bounds = (space.low, space.high) if isinstance(space, spaces.Box) else None
    loop._arrays = _arrays(4, loop._obs, space)
    return loop, env


def test_a_torch_loop_keeps_each_step_in_its_row() -> None:
    sure = torch.tensor([0.0, 1000.0])
    loop, env = torch_loop(spaces.Discrete(2), lambda obs: (sure.expand(3, 2), obs.sum(1, True)))
    assert loop.collect() == 12
    arrays = loop._arrays
    assert arrays["obs"][:, 1].tolist() == [[t, 1] for t in range(4)]
    assert (arrays["action"] == 1).all() and arrays["action"].dtype == torch.int64
    assert arrays["log_prob"].abs().max() == 0
    assert arrays["value"].tolist() == [[t + row for row in range(3)] for t in range(4)]
    assert arrays["reward"].tolist() == [[10 * t + row for row in range(3)] for t in range(1, 5)]
    assert arrays["truncated"].any(1).tolist() == [True, False, False, False]
    assert arrays["terminated"].any(1).tolist() == [False, True, False, False]
    assert arrays["last_value"].tolist() == [4, 5, 6]
    assert [actions.tolist() for actions in env.actions] == [[1, 1, 1]] * 4


def test_actions_of_a_box_are_kept_as_drawn_and_played_clipped() -> None:
    space = spaces.Box(-1, 1, (2,), np.float32)
    mean = torch.tensor([5.0, -0.5])
    loop, env = torch_loop(
        space, lambda obs: (mean.expand(3, 2), torch.full((2,), -20.0), torch.zeros(3, 1))
    )
    loop.collect()
    np.testing.assert_allclose(loop._arrays["action"][2, 1], mean, atol=1e-6)
    np.testing.assert_allclose(env.actions[2][1], [1, -0.5], atol=1e-6)
    # two dimensions of a density, each at most 1 / (e^-20 sqrt(2 pi))
    most = 2 * (20 - 0.5 * math.log(2 * math.pi))
    log_prob = loop._arrays["log_prob"]
    assert log_prob.shape == (4, 3) and (log_prob <= most + 1e-4).all()
    assert loop._arrays["action"].shape == (4, 3, 2)
