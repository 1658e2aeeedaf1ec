# SPDX-License-Identifier: Apache-2.0
"""Every kind of item equals a slow model, whatever the episodes and however they arrive."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
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
    n_steps,
    reward_of,
    runs,
)

import rollouts
from rollouts import ReplayWarning
from rollouts.replay import (
    Acted,
    Episodes,
    GoalColumns,
    Hindsight,
    NStep,
    ReplayBuffer,
    Sequences,
    SparseReward,
    TableConfig,
)
from rollouts.replay.items import most_items

ENDS = st.sampled_from([TERMINATED, TRUNCATED, BOTH])
PLANS = st.lists(
    st.lists(st.tuples(st.integers(1, 9), ENDS), min_size=1, max_size=4), min_size=1, max_size=4
)
ROLLOUTS = st.lists(st.integers(1, 12), min_size=1, max_size=5)
KINDS = st.one_of(
    st.builds(NStep, st.integers(1, 6), st.just(0.5)),
    st.builds(
        Sequences,
        st.integers(1, 6),
        st.integers(1, 8),
        end_of_episode=st.sampled_from(["write", "truncate", "pad"]),
    ),
    st.builds(Episodes, st.integers(1, 8)),
    # none of which gets another goal
    st.builds(
        Hindsight,
        st.just(GoalColumns((2, 3), (0, 1))),
        st.just(SparseReward(0)),
        st.sampled_from(["future", "final", "episode"]),
        share=st.just(0.0),
        n=st.integers(1, 3),
        discount=st.just(0.5),
        max_length=st.integers(3, 8),
    ),
)


def all_items(buffer: ReplayBuffer, table: str) -> Any:
    return buffer.gather(buffer.store.keys(table), table=table)


def found_transitions(batch: Any) -> list[tuple[Any, ...]]:
    return sorted(
        (tuple(o), int(a), float(r), float(d), tuple(n), bool(te), bool(tr), int(k))
        for o, a, r, d, n, te, tr, k in zip(
            batch.obs.tolist(),
            batch.action,
            batch.reward,
            batch.discount,
            batch.next_obs.tolist(),
            batch.terminated,
            batch.truncated,
            batch.num_steps,
            strict=True,
        )
    )


def found_runs(batch: Any) -> list[tuple[float, float, int, int]]:
    """(env_id, episode, first step, steps) of each sequence."""
    first = batch.obs[0].tolist()
    return sorted(
        (env, episode, int(t), int(k))
        for (env, episode, t), k in zip(first, batch.num_steps, strict=True)
    )


def check_sequences(batch: Any, episodes: dict[tuple[int, int], Episode]) -> None:
    """Every row of every sequence is what happened, and zero after its end."""
    for b, k in enumerate(batch.num_steps):
        env, number, start = (int(x) for x in batch.obs[0, b])
        episode = episodes[env, number]
        for t in range(len(batch.reward)):
            inside = t < k
            assert batch.valid[t, b] == inside
            ends = inside and start + t + 1 == episode.num_steps
            assert batch.reward[t, b] == (reward_of(env, number, start + t) if inside else 0)
            assert batch.action[t, b] == (start + t if inside else 0)
            assert batch.terminated[t, b] == (ends and episode.how in (TERMINATED, BOTH))
            assert batch.truncated[t, b] == (ends and episode.how in (TRUNCATED, BOTH))
        for t in range(len(batch.obs)):
            expected = (env, number, start + t) if t <= k else (0, 0, 0)
            assert tuple(batch.obs[t, b]) == expected
            assert batch.first[t, b] == (t <= k and start + t == 0)


def check(buffer: ReplayBuffer, kind: Any, world: World) -> None:
    episodes = [(e, e.how != CUT) for e in world.episodes()]
    batch = all_items(buffer, "replay")
    if isinstance(kind, NStep | Hindsight):
        make: Any = n_steps if isinstance(kind, NStep) else hindsight_steps
        expected = [x for e, over in episodes for x in make(kind, e, is_over=over)]
        assert found_transitions(batch) == sorted(expected)
        return
    expected_runs = sorted(
        (e.env_id, e.number, start, steps)
        for e, over in episodes
        for start, steps in runs(kind, e, is_over=over)
    )
    if not expected_runs:
        assert buffer.size() == 0
        return
    assert found_runs(batch) == expected_runs
    check_sequences(batch, {(e.env_id, e.number): e for e, _ in episodes})


@settings(max_examples=150, deadline=None)
@given(PLANS, ROLLOUTS, KINDS)
def test_items_of_rollouts_equal_the_model(plan: Any, rollouts: list[int], kind: Any) -> None:
    world = World(plan, env_id=[5 * i + 2 for i in range(len(plan))])
    tables = [TableConfig(items=kind), TableConfig("other", NStep(2, 0.5))]
    with ReplayBuffer(OBS_SPACE, ACTION_SPACE, tables, max_batch_length=12) as buffer:
        for steps in rollouts:
            buffer.add_batch(world.rollout(steps))
        check(buffer, kind, world)
        stats = buffer.stats()
        assert stats["steps"]["produced"] == sum(rollouts) * len(plan)
        assert stats["episodes_cut"] == 0


@pytest.mark.parametrize("mode", ["same_step", "next_step", "disabled"])
@settings(max_examples=60, deadline=None)
@given(plan=PLANS, num_steps=st.integers(1, 30), kind=KINDS)
def test_items_of_steps_equal_the_model(mode: str, plan: Any, num_steps: int, kind: Any) -> None:
    world = World(plan, env_id=list(range(len(plan))))
    rows = len(plan)
    resets_next = np.zeros(rows, np.bool_)
    table = TableConfig(items=kind)
    with ReplayBuffer(OBS_SPACE, ACTION_SPACE, table, autoreset_mode=mode) as buffer:
        obs = world.obs()
        for _ in range(num_steps):
            action, true_next = world.action(), np.zeros_like(obs)
            reward, ends = np.zeros(rows), np.zeros((2, rows), np.bool_)
            for i in range(rows):
                if not resets_next[i]:
                    reward[i], *ends[:, i], true_next[i] = world.step_env(i)
            ended = ends.any(axis=0)
            info: dict[str, Any] = {}
            next_obs = world.obs()
            if mode == "same_step":
                final = np.full(rows, None, object)
                for i in np.flatnonzero(ended):
                    final[i] = true_next[i]
                info = {"final_obs": final, "_final_obs": ended} if ended.any() else {}
            else:
                next_obs = np.where(ended[:, None], true_next, next_obs)
            if mode == "next_step":
                resets_next = ended
            buffer.add_step(Acted(obs, action), (next_obs, reward, *ends, info))
            obs = world.obs() if mode == "disabled" else next_obs
        check_steps(buffer, kind, world, resets_next)


@settings(max_examples=60, deadline=None)
@given(plan=PLANS, rollouts=ROLLOUTS, kind=KINDS)
def test_a_rollout_gives_the_items_of_its_steps_in_their_order(
    plan: Any, rollouts: list[int], kind: Any
) -> None:
    world = World(plan, env_id=list(range(len(plan))))
    tables = [TableConfig(items=kind), TableConfig("other", NStep(2, 0.5))]
    with (
        ReplayBuffer(OBS_SPACE, ACTION_SPACE, tables) as whole,
        ReplayBuffer(OBS_SPACE, ACTION_SPACE, tables, autoreset_mode="same_step") as stepped,
    ):
        for length in rollouts:
            rollout = world.rollout(length)
            inserted = whole.add_batch(rollout)
            assert sum(add_steps(stepped, rollout)) == inserted
        for table in ("replay", "other"):
            keys = whole.store.keys(table)
            assert keys.tolist() == stepped.store.keys(table).tolist()
            one, other = (b.gather(keys, table=table) for b in (whole, stepped))
            for name in ("obs", "action", "reward", "num_steps", "env_id", "policy_version"):
                np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def add_steps(buffer: ReplayBuffer, rollout: Any) -> Iterator[int]:
    """Adds a rollout's steps one by one, as an environment in same-step mode gives them."""
    finals = iter(rollout.final_obs)
    following = [*rollout.obs[1:], rollout.last_obs]
    for t, next_obs in enumerate(following):
        final = np.full(len(rollout.env_id), None, object)
        for b in np.flatnonzero(rollout.terminated[t] | rollout.truncated[t]):
            final[b] = next(finals)
        outcome = (rollout.reward[t], rollout.terminated[t], rollout.truncated[t])
        yield buffer.add_step(
            Acted(rollout.obs[t], rollout.action[t], rollout.policy_version[t]),
            (next_obs, *outcome, {"final_obs": final, "env_id": rollout.env_id}),
        )


@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_a_pools_batches_give_what_its_steps_give(mode: str) -> None:
    def run(receives_batches: bool) -> Any:
        options: dict[str, Any] = {"seed": 1, "env_id_offset": 5, "max_episode_steps": 30}
        with (
            rollouts.make_vec("CartPole-v1", 3, autoreset_mode=mode, **options) as env,
            ReplayBuffer(
                env.single_observation_space,
                env.single_action_space,
                TableConfig(items=NStep(2, 0.5)),
                autoreset_mode=env.autoreset_mode,
            ) as buffer,
        ):
            rng, (obs, _) = np.random.default_rng(0), env.reset()
            for _ in range(100):
                action = rng.integers(2, size=3)
                if receives_batches:
                    env.send(action)
                    step: Any = env.recv_batch()
                else:
                    step = env.step(action)
                buffer.add_step(Acted(obs, action, policy_version=4), step)
                obs = step[0]
            assert set(all_items(buffer, "replay").env_id) == {5, 6, 7}
            return buffer.state()

    np.testing.assert_array_equal(run(True), run(False))


def check_steps(buffer: ReplayBuffer, kind: Any, world: World, resets_next: Any) -> None:
    """As `check`; an environment about to be reset has no row of its next episode yet."""
    assert all(world.t[i] == 0 for i in np.flatnonzero(resets_next))
    check(buffer, kind, world)


def test_cut_episodes_give_what_is_left_and_bootstrap_from_the_last_observation() -> None:
    world = World([[(100, TERMINATED)]] * 2, env_id=[0, 1])
    with ReplayBuffer(OBS_SPACE, ACTION_SPACE, TableConfig(items=NStep(3, 0.5))) as buffer:
        buffer.add_batch(world.rollout(6))
        assert buffer.size() == 2 * 3
        buffer.end_episodes([1, 77])
        assert buffer.stats()["tables"]["replay"]["pending"] == 3
        assert buffer.flush() == 3
        batch = all_items(buffer, "replay")
        last = batch.num_steps < 3
        assert batch.env_id[last].tolist() == [1, 1]
        # the one that the last step led to, also where its n steps are just there
        assert batch.next_obs[batch.env_id == 1, 2].tolist() == [3, 4, 5, 6, 6, 6]
        assert batch.next_obs[last, 2].tolist() == [6, 6]
        assert batch.discount[last].tolist() == [0.25, 0.5]
        assert batch.reward[last].tolist() == [
            reward_of(1, 0, 4) + 0.5 * reward_of(1, 0, 5),
            reward_of(1, 0, 5),
        ]
        assert buffer.stats()["episodes_cut"] == 1


def test_observations_that_do_not_continue_cut_the_episode() -> None:
    world = World([[(100, TERMINATED)]] * 2, env_id=[0, 1])
    with ReplayBuffer(OBS_SPACE, ACTION_SPACE, TableConfig(items=NStep(4, 0.5))) as buffer:
        buffer.add_batch(world.rollout(5))
        world.number[1], world.t[1] = 1, 0  # somebody reset environment 1
        with pytest.warns(ReplayWarning, match="3 of table 'replay'"):
            buffer.add_batch(world.rollout(5))
        batch = all_items(buffer, "replay")
        assert (batch.obs[:, 1] == batch.next_obs[:, 1]).all()
        assert buffer.stats()["episodes_cut"] == 1
        whole = [Episode(0, 0, 9, CUT), Episode(1, 1, 4, CUT)]
        expected = [x for e in whole for x in n_steps(NStep(4, 0.5), e, is_over=False)]
        expected += list(n_steps(NStep(4, 0.5), Episode(1, 0, 5, CUT), is_over=True))
        assert found_transitions(batch) == sorted(expected)


def test_a_failed_environment_leaves_no_transition_of_the_step_it_failed_in() -> None:
    world = World([[(100, TERMINATED)]] * 2, env_id=[0, 1])
    table = TableConfig(items=NStep(2, 0.5))
    with ReplayBuffer(OBS_SPACE, ACTION_SPACE, table, autoreset_mode="same_step") as buffer:
        for step in range(6):
            obs, action = world.obs(), world.action()
            reward = np.array([world.step_env(i)[0] for i in range(2)])
            failed = np.array([False, step == 3])
            if step == 3:
                world.number[1], world.t[1] = 1, 0
            ends = failed.copy()
            info = {"_env_error": failed}
            outcome = (world.obs(), reward, np.zeros(2, bool), ends, info)
            buffer.add_step(Acted(obs, action), outcome)
        batch = all_items(buffer, "replay")
        ones = [Episode(0, 0, 5, CUT), Episode(1, 1, 1, CUT)]
        expected = [x for e in ones for x in n_steps(NStep(2, 0.5), e, is_over=False)]
        expected += list(n_steps(NStep(2, 0.5), Episode(1, 0, 3, CUT), is_over=True))
        assert found_transitions(batch) == sorted(expected)


@given(kind=KINDS, plan=PLANS, rollouts=ROLLOUTS, cuts=st.sets(st.integers(0, 4)))
@settings(max_examples=300, deadline=None)
def test_no_rollout_brings_more_than_the_most(
    kind: Any, plan: Any, rollouts: list[int], cuts: set[int]
) -> None:
    world = World(plan, list(range(len(plan))))
    counts = []
    with ReplayBuffer(OBS_SPACE, ACTION_SPACE, TableConfig(items=kind)) as buffer:
        for number, steps in enumerate(rollouts):
            if number in cuts:
                # as where a worker's fragment before this one is missing
                buffer.end_episodes()
            counts.append(buffer.add_batch(world.rollout(steps)))
    # each rollout alone, and several in a row, whose open items count once
    for begin in range(len(rollouts)):
        for end in range(begin + 1, len(rollouts) + 1):
            most = most_items(kind, sum(rollouts[begin:end]), len(plan))
            assert sum(counts[begin:end]) <= most


@pytest.mark.parametrize("n", [1, 3])
def test_the_most_transitions_of_a_rollout_can_come(n: int) -> None:
    # as many steps as can be open come before those of an episode that ends
    world = World([[(n + 4, TERMINATED)]], [0])
    with ReplayBuffer(OBS_SPACE, ACTION_SPACE, TableConfig(items=NStep(n))) as buffer:
        assert buffer.add_batch(world.rollout(n)) == 0
        assert buffer.add_batch(world.rollout(4)) == most_items(NStep(n), 4, 1)
