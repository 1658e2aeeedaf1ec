# SPDX-License-Identifier: Apache-2.0
"""`RolloutsCollector` leaves the buffer, the statistics and itself as Tianshou's Collector does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("tianshou", reason="needs Tianshou: pip install 'rollouts[tianshou]'")

from rollouts.integrations.tianshou import (
    RolloutsAsyncCollector,
    RolloutsCollector,
    RolloutsVectorEnv,
)
from rollouts.integrations.tianshou import collector as our_collector
from tianshou.data import (
    AsyncCollector,
    Batch,
    CachedReplayBuffer,
    Collector,
    PrioritizedVectorReplayBuffer,
    ReplayBuffer,
    VectorReplayBuffer,
)
from tianshou.data.collector import EpisodeRolloutHookMCReturn
from tianshou.env import DummyVectorEnv
from tianshou_cases import (
    OneEnv,
    Remembering,
    assert_equal_buffers,
    assert_equal_stats,
    columns,
    make_actor,
    make_q,
)

from rollouts.errors import EnvError

pytestmark = pytest.mark.system

NUM_ENVS = 5
# steps, episodes, random; the buffers wrap around in the later ones
COLLECTS: tuple[dict[str, Any], ...] = (
    {"n_step": 10, "random": True},
    {"n_step": 200},
    {"n_episode": 12},
    {"n_step": 203},
    {"n_episode": 3},
    {"n_step": 900},
)


def collect_all(
    kind: Callable[..., Any],
    make_policy: Callable[[Any], Any] = make_actor,
    buffer: Any = None,
    env: Any = None,
    collects: tuple[dict[str, Any], ...] = COLLECTS,
    **kwargs: Any,
) -> tuple[Any, list[Any]]:
    """Collects with a collector of that kind, all random numbers seeded."""
    env = env or RolloutsVectorEnv("CartPole-v1", num_envs=NUM_ENVS, seed=3)
    buffer = VectorReplayBuffer(1000, NUM_ENVS) if buffer is None else buffer
    collector = kind(make_policy(env), env, buffer, **kwargs)
    if kind is RolloutsCollector:
        collector.rollout_engine = "torch"
    np.random.seed(0)  # noqa: NPY002 Tianshou's exploration draws from it
    torch.manual_seed(1)
    collector.reset()
    stats = [collector.collect(**one) for one in collects]
    env.close()
    return collector, stats


def assert_same(ours: tuple[Any, list[Any]], theirs: tuple[Any, list[Any]]) -> None:
    """Buffers, statistics and counters of two runs are equal."""
    assert_equal_buffers(ours[0].buffer, theirs[0].buffer)
    for mine, other in zip(ours[1], theirs[1], strict=True):
        assert_equal_stats(mine, other)
    assert ours[0].collect_step == theirs[0].collect_step
    assert ours[0].collect_episode == theirs[0].collect_episode


@pytest.fixture
def blocks_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tianshou's own loop is out of order for RolloutsCollector."""

    def refuse(self: Any, *args: Any, **kwargs: Any) -> None:
        assert type(self) is not RolloutsCollector, "fell back to Tianshou's loop"
        return stock(self, *args, **kwargs)

    stock = Collector._collect
    monkeypatch.setattr(Collector, "_collect", refuse)


@pytest.mark.usefixtures("blocks_only")
@pytest.mark.parametrize(
    "make_buffer",
    [
        lambda: VectorReplayBuffer(1000, NUM_ENVS),
        lambda: VectorReplayBuffer(1000, NUM_ENVS, ignore_obs_next=True),
        lambda: VectorReplayBuffer(1000, NUM_ENVS, stack_num=4, sample_avail=True),
        lambda: VectorReplayBuffer(1500, NUM_ENVS + 2),
        lambda: PrioritizedVectorReplayBuffer(1000, NUM_ENVS, alpha=0.6, beta=0.4),
    ],
    ids=["plain", "ignore_obs_next", "stack_num", "more_buffers", "prioritized"],
)
def test_blocks_equal_single_adds(make_buffer: Callable[[], Any]) -> None:
    ours = collect_all(RolloutsCollector, buffer=make_buffer())
    theirs = collect_all(Collector, buffer=make_buffer())
    assert_same(ours, theirs)
    if isinstance(ours[0].buffer, PrioritizedVectorReplayBuffer):
        index = np.arange(1000)
        mine, other = (one[0].buffer.weight[index] for one in (ours, theirs))
        assert np.array_equal(mine, other)
    np.testing.assert_array_equal(
        ours[0].buffer.sample_indices(0), theirs[0].buffer.sample_indices(0)
    )


@pytest.mark.usefixtures("blocks_only")
@pytest.mark.parametrize("make_policy", [make_actor, make_q, Remembering])
def test_blocks_equal_tianshous_dummy_vector_env(make_policy: Callable[[Any], Any]) -> None:
    noise = make_policy is make_q
    collects = COLLECTS[1:] if make_policy is Remembering else COLLECTS
    ours = collect_all(RolloutsCollector, make_policy, exploration_noise=noise, collects=collects)
    dummy = DummyVectorEnv([lambda i=i: OneEnv("CartPole-v1", i, 3) for i in range(NUM_ENVS)])
    theirs = collect_all(
        Collector, make_policy, env=dummy, exploration_noise=noise, collects=collects
    )
    assert_same(ours, theirs)


@pytest.mark.usefixtures("blocks_only")
def test_continuous_actions_and_truncation() -> None:
    def env() -> RolloutsVectorEnv:
        return RolloutsVectorEnv("Pendulum-v1", num_envs=3, seed=0)

    collects = ({"n_step": 30, "random": True}, {"n_step": 700})
    ours, theirs = (
        collect_all(kind, buffer=VectorReplayBuffer(900, 3), env=env(), collects=collects)
        for kind in (RolloutsCollector, Collector)
    )
    assert ours[0].buffer.truncated.any()
    assert_same(ours, theirs)


@pytest.mark.usefixtures("blocks_only")
def test_images_are_stored_once_and_info_is_kept() -> None:
    def run(kind: Callable[..., Any]) -> Any:
        env = RolloutsVectorEnv("ALE/Pong-v5", num_envs=2, seed=0, max_episode_steps=12)
        buffer = VectorReplayBuffer(
            60, 2, stack_num=4, ignore_obs_next=True, save_only_last_obs=True
        )
        return collect_all(
            kind, make_random, buffer, env, ({"n_step": 40}, {"n_episode": 3}, {"n_step": 40})
        )

    ours, theirs = run(RolloutsCollector), run(Collector)
    assert ours[0].buffer.obs.shape == (60, 84, 84)
    names = {"env_id", "lives", "raw_reward", "frame_number", "episode_frame_number"}
    assert names == set(ours[0].buffer.info.get_keys())
    assert_same(ours, theirs)


def make_random(env: Any) -> Any:
    """Draws actions from torch's generator, looking at nothing."""

    class Random(Remembering):
        def forward(self, batch: Any, state: Any = None, **kwargs: Any) -> Batch:
            return Batch(act=torch.randint(6, (len(batch.obs),)))

    return Random(env)


@pytest.mark.usefixtures("blocks_only")
def test_episode_hooks_add_their_columns() -> None:
    collects = ({"n_episode": 7}, {"n_episode": 9})
    ours, theirs = (
        collect_all(kind, on_episode_done_hook=EpisodeRolloutHookMCReturn(), collects=collects)
        for kind in (RolloutsCollector, Collector)
    )
    assert "mc_return_to_go" in ours[0].buffer._meta.get_keys()
    assert_same(ours, theirs)
    with pytest.raises(ValueError, match="n_episode"):
        collect_all(
            RolloutsCollector,
            on_episode_done_hook=EpisodeRolloutHookMCReturn(),
            collects=({"n_step": 200},),
        )


def test_step_hooks_see_and_change_every_step() -> None:
    seen = []

    def hook(action_batch: Any, rollout_batch: Any) -> None:
        seen.append(action_batch.dist)
        rollout_batch.rew = rollout_batch.rew * 2

    ours, theirs = (
        collect_all(kind, on_step_hook=hook, collects=({"n_step": 50},))
        for kind in (RolloutsCollector, Collector)
    )
    assert len(seen) == 20
    assert ours[0].buffer.rew.max() == 2
    assert_same(ours, theirs)


def test_other_buffers_and_environments_go_through_tianshous_loop() -> None:
    def dummy(count: int) -> DummyVectorEnv:
        return DummyVectorEnv([lambda i=i: OneEnv("CartPole-v1", i, 3) for i in range(count)])

    ours, theirs = (
        collect_all(kind, env=dummy(NUM_ENVS)) for kind in (RolloutsCollector, Collector)
    )
    assert_same(ours, theirs)
    single = RolloutsVectorEnv("CartPole-v1", num_envs=1, seed=0)
    collector, stats = collect_all(
        RolloutsCollector, buffer=ReplayBuffer(100), env=single, collects=({"n_step": 30},)
    )
    assert len(collector.buffer) == stats[0].n_collected_steps == 30
    cached = CachedReplayBuffer(ReplayBuffer(200), NUM_ENVS, 500)
    collector, stats = collect_all(RolloutsCollector, buffer=cached, collects=({"n_episode": 5},))
    assert len(cached.main_buffer) == stats[0].lens.sum()


def test_both_loops_take_turns_on_one_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    def alternate(self: Any) -> bool:
        self.turn = not getattr(self, "turn", False)
        return self.turn

    monkeypatch.setattr(RolloutsCollector, "_writes_blocks", alternate)
    ours = collect_all(RolloutsCollector)
    assert_same(ours, collect_all(Collector))


def test_an_environment_that_fails_leaves_a_whole_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    env = RolloutsVectorEnv("CartPole-v1", num_envs=NUM_ENVS, seed=3)
    collector = RolloutsCollector(make_actor(env), env, VectorReplayBuffer(1000, NUM_ENVS))
    collector.rollout_engine = "torch"
    collector.reset()
    step, calls = RolloutsVectorEnv.step_columns, []

    def fail_later(self: Any, *args: Any) -> Any:
        calls.append(1)
        if len(calls) == 8:
            raise EnvError("environment 2 failed")
        return step(self, *args)

    monkeypatch.setattr(RolloutsVectorEnv, "step_columns", fail_later)
    with pytest.raises(EnvError):
        collector.collect(n_step=100)
    assert len(collector.buffer) == 7 * NUM_ENVS
    assert (collector.buffer._lengths == 7).all()
    assert len(collector.buffer[:].obs) == 35
    env.close()


def test_takes_the_type_of_its_statistics_as_tianshous_collector_does() -> None:
    kind = RolloutsCollector[our_collector.CollectStats]
    _, stats = collect_all(kind, collects=({"n_step": 20},))
    assert type(stats[0]) is our_collector.CollectStats


def test_an_episode_longer_than_its_buffer_has_its_true_length() -> None:
    env = RolloutsVectorEnv("Pendulum-v1", num_envs=2, seed=0)
    collector, stats = collect_all(
        RolloutsCollector, buffer=VectorReplayBuffer(60, 2), env=env, collects=({"n_episode": 2},)
    )
    # Tianshou's Collector counts what is left of it in the buffer
    assert stats[0].lens.tolist() == [200, 200]
    assert len(collector.buffer) == 60


def test_statistics_of_other_kinds_are_used() -> None:
    class Counting(our_collector.CollectStats):
        """Counts its own updates."""

        def update_at_step_batch(self, *args: Any, **kwargs: Any) -> None:
            """Counts."""
            self.updates = getattr(self, "updates", 0) + 1
            super().update_at_step_batch(*args, **kwargs)

    _, stats = collect_all(
        RolloutsCollector, collect_stats_class=Counting, collects=({"n_step": 20},)
    )
    assert stats[0].updates == 4


# AsyncCollector cannot take a policy that has nothing to keep in the buffer
@pytest.mark.parametrize(
    ("kind", "make_policy"),
    [
        (RolloutsAsyncCollector, make_actor),
        (RolloutsAsyncCollector, Remembering),
        (AsyncCollector, Remembering),
    ],
)
@pytest.mark.filterwarnings("ignore:Using async setting")
def test_asynchronous_collects_store_whole_transitions(kind: Any, make_policy: Any) -> None:
    env = RolloutsVectorEnv("CartPole-v1", wait_num=3, num_envs=NUM_ENVS, seed=3)
    collects = ({"n_step": 300}, {"n_episode": 8}, {"n_step": 200})
    collector, stats = collect_all(kind, make_policy, env=env, collects=collects)
    assert stats[0].n_collected_steps >= 300
    assert stats[1].n_collected_episodes >= 8
    assert len(collector.buffer) == sum(one.n_collected_steps for one in stats)
    lengths = np.concatenate([one.lens for one in stats])
    assert np.array_equal(np.concatenate([one.returns for one in stats]), lengths)
    done = 0
    for i, one in enumerate(collector.buffer.buffers):
        rows = slice(0, len(one))
        assert (one.info.env_id[rows] == i).all()
        goes_on = ~one.done[rows][:-1]
        assert np.array_equal(one.obs_next[rows][:-1][goes_on], one.obs[rows][1:][goes_on])
        # the true last observation is outside of CartPole's bounds, a reset's is near 0
        last = one.obs_next[rows][one.terminated[rows]]
        assert ((np.abs(last[:, 0]) > 2.4) | (np.abs(last[:, 2]) > 0.2)).all()
        done += int(one.done[rows].sum())
    assert done == len(lengths)


@pytest.mark.filterwarnings("ignore:Using async setting")
def test_asynchronous_collects_keep_state_and_policy_entries() -> None:
    env = RolloutsVectorEnv("CartPole-v1", wait_num=2, num_envs=NUM_ENVS, seed=3)
    collector, _ = collect_all(
        RolloutsAsyncCollector, Remembering, env=env, collects=({"n_step": 300},)
    )
    for one in collector.buffer.buffers:
        rows = slice(0, len(one))
        policy = one.policy[rows]
        assert np.array_equal(policy.seen, one.obs[rows][:, 0])
        count = 0.0
        for state, done in zip(policy.hidden_state[:, 0], one.done[rows], strict=True):
            count += 1
            assert state == count
            count = 0.0 if done else count
        assert one.act[rows].dtype == np.int64
    assert ("policy", "hidden_state") in columns(collector.buffer._meta)
