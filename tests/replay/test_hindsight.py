# SPDX-License-Identifier: Apache-2.0
"""Hindsight: goals, rewards and ends equal a slow model's, whatever the episodes."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_model import (
    ACTION_SPACE,
    BOTH,
    CUT,
    OBS_SPACE,
    TERMINATED,
    TRUNCATED,
    Episode,
    World,
    hindsight_steps,
    reward_of,
    runs,
)

from rollouts import SpecError
from rollouts.errors import DTypeError
from rollouts.replay import (
    Acted,
    DenseReward,
    Episodes,
    GoalColumns,
    Hindsight,
    MinSize,
    NStep,
    ReplayBuffer,
    SparseReward,
    TableConfig,
    TransitionBatch,
)

# the step is achieved, and the environment's number is what was desired
GOAL = GoalColumns(achieved_goal=(2, 3), desired_goal=(0, 1))
PLAN = [[(7, TRUNCATED), (3, TERMINATED)], [(5, BOTH), (1, TRUNCATED), (9, TERMINATED)]]

ENDS = st.sampled_from([TERMINATED, TRUNCATED, BOTH])
PLANS = st.lists(
    st.lists(st.tuples(st.integers(1, 9), ENDS), min_size=1, max_size=4), min_size=1, max_size=4
)
KINDS = st.builds(
    Hindsight,
    st.just(GOAL),
    st.sampled_from([SparseReward(1.5), DenseReward(), lambda a, d, info: SparseReward(1.5)(a, d)]),
    st.sampled_from(["future", "final", "episode"]),
    share=st.sampled_from([0.0, 0.5, 1.0]),
    n=st.integers(1, 3),
    discount=st.just(0.5),
    max_length=st.integers(3, 12),
)


def filled(kind: Any, plan: Any = PLAN, steps: int = 60, **options: Any) -> tuple[Any, World]:
    world = World(plan, env_id=list(range(len(plan))))
    buffer = ReplayBuffer(OBS_SPACE, ACTION_SPACE, TableConfig(items=kind), **options)
    buffer.add_batch(world.rollout(steps))
    return buffer, world


def piece_of(kind: Hindsight, episode: Episode, t: int) -> tuple[int, int]:
    """First step and end of the piece with step t."""
    for start, steps in runs(Episodes(kind.max_length), episode, is_over=True):
        if start <= t < start + steps:
            return start, start + steps
    raise AssertionError("no piece has that step")


def goals_of(kind: Hindsight, episode: Episode, t: int) -> list[int]:
    """The goals that step t may get, each as likely."""
    start, end = piece_of(kind, episode, t)
    first = {"future": t + 1, "final": end, "episode": start + 1}[kind.strategy]
    return list(range(first, end + 1))


def check_batch(batch: Any, kind: Hindsight, world: World) -> None:
    """Every sample is a step that happened, towards its own goal or one it may get."""
    episodes = {(e.env_id, e.number): e for e in world.episodes()}
    for b, env in enumerate(batch.env_id):
        _, number, t = (int(x) for x in batch.obs[b])
        # an episode that is still open has whole pieces, too
        episode = episodes[int(env), number]
        _, end = piece_of(kind, episode, t)
        k = min(kind.n, end - t)
        goal = float(batch.obs[b, 0])
        assert batch.num_steps[b] == k
        assert batch.next_obs[b].tolist() == [goal, number, t + k]
        assert batch.action[b] == t
        at_end = t + k == episode.num_steps and episode.how != CUT
        terminated = at_end and episode.how in (TERMINATED, BOTH)
        assert batch.terminated[b] == terminated
        assert batch.truncated[b] == (at_end and episode.how in (TRUNCATED, BOTH))
        assert batch.discount[b] == (0 if terminated else kind.discount**k)
        if batch.relabelled[b]:
            assert goal in goals_of(kind, episode, t)
            rewards = [
                float(kind.reward(np.array([[t + i + 1.0]]), np.array([[goal]]), {})[0])
                for i in range(k)
            ]
        else:
            assert goal == env
            rewards = [reward_of(int(env), number, t + i) for i in range(k)]
        assert batch.reward[b] == sum(r * kind.discount**i for i, r in enumerate(rewards))


@settings(max_examples=60, deadline=None)
@given(PLANS, st.lists(st.integers(1, 12), min_size=1, max_size=4), KINDS, st.integers(0, 99))
def test_samples_equal_the_model(plan: Any, rollouts: list[int], kind: Any, seed: int) -> None:
    world = World(plan, env_id=[3 * i + 2 for i in range(len(plan))])
    table = TableConfig(items=kind)
    with ReplayBuffer(OBS_SPACE, ACTION_SPACE, table, max_batch_length=12, seed=seed) as buffer:
        for steps in rollouts:
            buffer.add_batch(world.rollout(steps))
        expected = sum(
            len(list(hindsight_steps(kind, e, is_over=e.how != CUT))) for e in world.episodes()
        )
        assert buffer.size() == expected
        if not expected:
            return
        batch = buffer.sample(64)
        assert type(batch) is TransitionBatch
        assert batch.relabelled.dtype == np.bool_
        if kind.share in (0.0, 1.0):
            assert (batch.relabelled == bool(kind.share)).all()
        check_batch(batch, kind, world)


@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
def test_each_step_and_each_of_its_goals_are_as_likely(strategy: Any) -> None:
    kind = Hindsight(GOAL, SparseReward(0.5), strategy, share=0.75)
    buffer, world = filled(kind, steps=17, num_threads=2)
    num_samples = 60_000
    batch = buffer.sample(num_samples)
    episodes = {(e.env_id, e.number): e for e in world.done}
    steps: Counter[Any] = Counter()
    goals: dict[Any, Counter[int]] = defaultdict(Counter)
    for env, obs, relabelled in zip(batch.env_id, batch.obs, batch.relabelled, strict=True):
        step = (int(env), int(obs[1]), int(obs[2]))
        steps[step] += 1
        if relabelled:
            goals[step][int(obs[0])] += 1
    assert len(steps) == buffer.size() == sum(e.num_steps for e in world.done)

    def is_near(count: int, total: int, share: float) -> bool:
        # five deviations of a binomial count
        return abs(count - total * share) <= 5 * (total * share * (1 - share)) ** 0.5 + 1e-9

    assert is_near(int(batch.relabelled.sum()), num_samples, 0.75)
    for step, count in steps.items():
        assert is_near(count, num_samples, 1 / len(steps))
        may_be = goals_of(kind, episodes[step[:2]], step[2])
        assert set(goals[step]) == set(may_be)
        total = sum(goals[step].values())
        assert all(is_near(n, total, 1 / len(may_be)) for n in goals[step].values())


def test_an_item_that_is_looked_up_has_the_goal_of_its_last_sample() -> None:
    buffer, _ = filled(Hindsight(GOAL, DenseReward()), seed=4)
    once = buffer.sample(1)
    again = buffer.gather(once.key)
    assert again.obs.tolist() == once.obs.tolist() and again.reward == once.reward
    assert again.relabelled == once.relabelled


def test_the_same_seed_gives_the_same_goals_and_so_does_a_saved_state() -> None:
    kind = Hindsight(GOAL, DenseReward(), "episode")
    ours, _ = filled(kind, seed=7)
    same, _ = filled(kind, seed=7)
    other, _ = filled(kind, seed=8)
    assert (first := ours.sample(50).obs.tolist()) == same.sample(50).obs.tolist()
    assert first != other.sample(50).obs.tolist()
    # as it would have gone on, whatever seed the other was made with
    other.load_state(ours.state())
    assert ours.sample(50).obs.tolist() == other.sample(50).obs.tolist()


def test_items_that_wait_are_saved_with_their_place() -> None:
    kind = Hindsight(GOAL, SparseReward(0.5), "episode", share=1.0, n=2)
    tables = TableConfig(items=kind, limiter=MinSize(1), max_size=100)
    waiting = TableConfig("waiting", Hindsight(GOAL, SparseReward(0.5)), max_size=100)
    world = World(PLAN, env_id=[0, 1])
    buffer = ReplayBuffer(OBS_SPACE, ACTION_SPACE, [tables, waiting])
    buffer.add_batch(world.rollout(6))
    buffer.end_episodes()  # what is left is pending
    assert buffer.stats()["tables"]["replay"]["pending"] > 0
    again = ReplayBuffer(OBS_SPACE, ACTION_SPACE, [tables, waiting])
    again.load_state(buffer.state())
    assert again.flush() == buffer.flush() > 0
    batches = [b.gather(b.store.keys("replay")) for b in (buffer, again)]
    assert batches[0].obs.tolist() == batches[1].obs.tolist()
    assert batches[0].reward.tolist() == batches[1].reward.tolist()


def test_steps_of_an_open_episode_come_when_it_ends() -> None:
    kind = Hindsight(GOAL, SparseReward(0.5), share=1.0)
    world = World([[(8, TERMINATED)]], env_id=[0])
    buffer = ReplayBuffer(OBS_SPACE, ACTION_SPACE, TableConfig(items=kind))
    buffer.add_batch(world.rollout(7))
    assert buffer.size() == 0
    buffer.add_batch(world.rollout(1))
    assert buffer.size() == 8
    # one that is cut has the goals that it came to
    buffer.add_batch(world.rollout(4))
    buffer.end_episodes()
    buffer.flush()
    assert buffer.size() == 12
    goals = {(o[1], o[2]): set() for o in buffer.sample(500).obs.tolist()}
    for obs in buffer.sample(4000).obs.tolist():
        goals[obs[1], obs[2]].add(obs[0])
    assert goals[1.0, 2.0] == {3.0, 4.0}


def test_goals_outlive_the_steps_before_them() -> None:
    # the ring has room for five items: their futures stay, whatever was removed
    kind = Hindsight(GOAL, SparseReward(0.5), "final", share=1.0)
    world = World([[(200, TERMINATED)]], env_id=[0])
    table = TableConfig(items=kind, max_size=5)
    buffer = ReplayBuffer(OBS_SPACE, ACTION_SPACE, table)
    for _ in range(3):
        buffer.add_batch(world.rollout(200))
        batch = buffer.sample(100)
        assert set(batch.obs[:, 2]) <= {195.0, 196.0, 197.0, 198.0, 199.0}
        assert set(batch.obs[:, 0]) == {200.0}


def test_goals_take_no_memory_of_their_own() -> None:
    plan = [[(50, TERMINATED)]]
    plain, _ = filled(NStep(1), plan, steps=250)
    ours, _ = filled(Hindsight(GOAL, DenseReward()), plan, steps=250)
    used = [b.stats()["memory"]["used_bytes"] for b in (plain, ours)]
    assert used[0] == used[1]


def test_priorities_are_of_the_step_and_can_be_set() -> None:
    world = World([[(6, TERMINATED)]], env_id=[0])
    for strategy in ("future", "episode"):
        kind = Hindsight(GOAL, SparseReward(0.5), strategy)  # type: ignore[arg-type]
        table = TableConfig(items=kind, sampler="prioritized", exponent=1.0)
        buffer = ReplayBuffer(OBS_SPACE, ACTION_SPACE, table)
        buffer.add_batch(world.rollout(6), priority=np.arange(6.0)[:, None])
        batch = buffer.sample(500)
        assert (batch.priority == batch.action).all()
        buffer.update_priorities(batch.key, np.where(batch.action == 2, 1.0, 0.0))
        assert set(buffer.sample(100).action) == {2}


def test_a_function_gets_achieved_and_desired_goals_of_relabelled_steps_alone() -> None:
    seen = []

    def reward(achieved: Any, desired: Any, info: Any) -> Any:
        seen.append((achieved.copy(), desired.copy(), info))
        return achieved[:, 0] * 100 + desired[:, 0]

    kind = Hindsight(GOAL, reward, "final", share=0.5, n=2, discount=1.0)
    buffer, _ = filled(kind)
    batch = buffer.sample(40)
    achieved, desired, info = seen[0]
    assert info == {} and achieved.shape == desired.shape == (len(achieved), 1)
    assert len(achieved) == batch.num_steps[batch.relabelled].sum()
    b = int(np.flatnonzero(batch.relabelled & (batch.num_steps == 2))[0])
    goal, _, t = batch.obs[b]
    assert batch.reward[b] == (t + 1) * 100 + goal + (t + 2) * 100 + goal


@pytest.mark.parametrize(
    "returned", [np.zeros(3), np.zeros((40, 1)), np.full(40, "x"), None], ids=str
)
def test_a_function_that_returns_anything_else_is_refused(returned: Any) -> None:
    buffer, _ = filled(Hindsight(GOAL, lambda a, d, info: returned, share=1.0))
    with pytest.raises(SpecError, match="expected \\(40,\\) numbers"):
        buffer.sample(40)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [1, 3, 9])
def test_native_distances_equal_numpys(dtype: str, size: int) -> None:
    space = spaces.Box(-9, 9, (2 * size + 1,), np.dtype(dtype).type)
    goal = GoalColumns((1, size + 1), (size + 1, 2 * size + 1))
    rng = np.random.default_rng(0)
    buffers = []
    sparse, dense = SparseReward(size**0.5), DenseReward()
    functions: list[Any] = [
        sparse,
        dense,
        lambda a, d, i: sparse(a, d),
        lambda a, d, i: dense(a, d),
    ]
    for function in functions:
        table = TableConfig(items=Hindsight(goal, function, share=1.0))
        buffers.append(ReplayBuffer(space, ACTION_SPACE, table, autoreset_mode="disabled"))
    obs = rng.normal(size=(1, 2 * size + 1)).astype(dtype)
    for t in range(50):
        after = rng.normal(size=obs.shape).astype(dtype)
        step = (after, np.zeros(1), np.array([t % 10 == 9]), np.zeros(1, np.bool_), {})
        for buffer in buffers:
            buffer.add_step(Acted(obs, np.zeros(1, np.int64)), step)
        obs = after
    batches = [buffer.sample(500) for buffer in buffers]
    assert (batches[0].reward == batches[2].reward).all()
    assert set(batches[0].reward) == {-1.0, 0.0}
    # sums in the same order, in double
    assert (batches[1].reward == batches[3].reward).all()


def test_views_share_memory_and_have_the_dicts_names() -> None:
    obs = np.arange(12.0).reshape(2, 6)
    columns = GoalColumns(achieved_goal=(4, 5), desired_goal=(5, 6))
    views = columns.views(obs)
    assert list(views) == ["observation", "achieved_goal", "desired_goal"]
    assert views["observation"].tolist() == [[0, 1, 2, 3], [6, 7, 8, 9]]
    views["desired_goal"][:] = 99
    assert (obs[:, 5] == 99).all()
    space = columns.space(spaces.Box(-1, 1, (6,), np.float64))
    assert space.contains({k: np.zeros_like(v[0]) for k, v in views.items()})


def test_columns_are_those_of_gymnasiums_flattened_dict() -> None:
    parts = {"observation": 4, "achieved_goal": 2, "desired_goal": 2}
    space = spaces.Dict({n: spaces.Box(-1, 1, (k,), np.float64) for n, k in parts.items()})
    sample = space.sample()
    flat = gymnasium.spaces.flatten(space, sample)
    views = GoalColumns.of(space).views(flat)
    assert all((views[name] == sample[name]).all() for name in parts)
    with pytest.raises(SpecError, match="expected a Dict of observation"):
        GoalColumns.of(spaces.Box(-1, 1, (3,)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GoalColumns((0, 2), (2, 3)), "as many of both"),
        (lambda: GoalColumns((0, 2), (1, 3)), "share columns"),
        (lambda: GoalColumns((2, 2), (3, 4)), "from 3 to"),
        (lambda: GoalColumns(3, (3, 4)), "expected \\(begin, end\\)"),  # type: ignore[arg-type]
        (lambda: GoalColumns((1, 2), (3, 4)).views(np.zeros((1, 5))), "side by side"),
        (lambda: GoalColumns((1, 2), (3, 4), (0, 1)).views(np.zeros((1, 3))), "have 3 columns"),
        (lambda: SparseReward(-1), "threshold is -1"),
        (lambda: Hindsight(GOAL, DenseReward(), "past"), "strategy is 'past'"),  # type: ignore[arg-type]
        (lambda: Hindsight(GOAL, DenseReward(), share=1.5), "share is 1.5"),
        (lambda: Hindsight(GOAL, DenseReward(), n=3, max_length=2), "max_length is 2"),
        (
            lambda: ReplayBuffer(
                spaces.Box(0, 1, (2, 2)),
                ACTION_SPACE,
                TableConfig(items=Hindsight(GOAL, DenseReward())),
            ),
            "FlattenObservation",
        ),
        (
            lambda: ReplayBuffer(
                spaces.Box(0, 1, (2,)),
                ACTION_SPACE,
                TableConfig(items=Hindsight(GOAL, DenseReward())),
            ),
            "have 2 columns",
        ),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(make: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        make()


def test_what_is_no_goal_and_no_function_is_refused() -> None:
    with pytest.raises(DTypeError, match="expected GoalColumns"):
        Hindsight((0, 1), DenseReward())  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match="expected SparseReward"):
        Hindsight(GOAL, 3)  # type: ignore[arg-type]
