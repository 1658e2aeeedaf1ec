# SPDX-License-Identifier: Apache-2.0
"""Toy text against Gymnasium's transition tables; Catch, NChain against slow oracles.

Chance comes from our random streams, so stochastic environments are compared by
distribution: the outcomes of every state and action, and of many episodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.toy_text import blackjack
from lockstep import Policy, get_states, record, set_states
from toy_text_oracle import (
    MAX_Z,
    SlowCatch,
    Table,
    any_hand,
    assert_fits,
    distribution,
    n_chain_table,
    stacked_deck,
    table_of,
)

import rollouts

# the outcomes of every state and action are compared apart from these
NUM_EPISODES = 80
# samples of each state and action that leaves something to chance; one of probability
# 0.1 is missed by all of them in one of 10^9 tries
NUM_SAMPLES = 200


@dataclass(frozen=True)
class Tabular:
    """An id with options, and its states by number."""

    env_id: str
    options: dict[str, Any] = field(default_factory=dict)
    reference_options: dict[str, Any] | None = None
    decode: Callable[[int], tuple[int, ...]] = lambda s: (s,)

    def table(self) -> Table:
        if self.env_id == "NChain-v0":
            return n_chain_table(**self.options)
        return table_of(self.reference().unwrapped.P)

    def reference(self) -> Any:
        options = self.options if self.reference_options is None else self.reference_options
        return reference_of(self.env_id, **options)

    def __str__(self) -> str:
        return "-".join([self.env_id, *(f"{k}={v}" for k, v in self.options.items())])


def reference_of(env_id: str, **options: Any) -> Any:
    """Gymnasium's environment; the two ids of Taxi stand for each other."""
    known = gymnasium.registry
    name = (
        env_id
        if env_id in known or "Taxi" not in env_id
        else next(i for i in ("Taxi-v4", "Taxi-v3") if i in known)
    )
    try:
        return gymnasium.make(name, **options)
    except TypeError as error:
        pytest.skip(f"this Gymnasium has no such option: {error}")


def grid(columns: int) -> Callable[[int], tuple[int, ...]]:
    return lambda s: divmod(s, columns)


def decode_taxi(s: int) -> tuple[int, ...]:
    return s // 100, s // 20 % 5, s // 4 % 5, s % 4, 0, 0


def slippery(env_id: str, columns: int) -> list[Tabular]:
    return [
        Tabular(env_id, {"is_slippery": value}, decode=grid(columns)) for value in (False, True)
    ]


def rainy(env_id: str, **options: Any) -> Tabular:
    return Tabular(env_id, options, decode=decode_taxi)


TABULAR = [
    *slippery("FrozenLake-v1", 4),
    *slippery("FrozenLake8x8-v1", 8),
    Tabular(
        "FrozenLake-v1",
        {"success_rate": 0.7, "reward_goal": 5, "reward_hole": -2, "reward_frozen": -0.5},
        {"success_rate": 0.7, "reward_schedule": (5, -2, -0.5)},
        grid(4),
    ),
    *slippery("CliffWalking-v1", 12),
    Tabular("CliffWalkingSlippery-v1", decode=grid(12)),
    rainy("Taxi-v3"),
    rainy("Taxi-v4"),
    rainy("Taxi-v4", is_rainy=True),
    rainy("Taxi-v4", is_rainy=True, rainy_probability=0.6),
    Tabular("NChain-v0"),
    Tabular("NChain-v0", {"slip": 0.4, "small": 1.5, "large": 7.0}),
]
OURS = ("NChain-v0",)


@pytest.fixture(params=TABULAR, ids=str)
def case(request: pytest.FixtureRequest) -> Tabular:
    tabular: Tabular = request.param
    if tabular.options.get("is_rainy") and "Taxi-v4" not in gymnasium.registry:
        pytest.skip("needs Gymnasium 1.3 or later: before, the rain pushed the taxi through walls")
    return tabular


def step_from(
    env_id: str, states: list[tuple[int, ...]], actions: list[int], **options: Any
) -> tuple[np.ndarray, ...]:
    """Observation, reward, terminated, state after one step from each state."""
    with rollouts.make_vec(
        env_id, len(states), seed=1, autoreset_mode="disabled", **options
    ) as env:
        env.reset()
        set_states(env, np.array(states, np.int32))
        obs, reward, terminated, _, _ = env.step(np.array(actions))
        after = get_states(env, np.arange(len(states)), np.int32)
        return obs.copy(), reward.copy(), terminated.copy(), after


def test_outcomes_of_every_state_and_action_are_the_references(case: Tabular) -> None:
    table = case.table()
    pairs = [(s, a) for s in table for a in table[s]]
    repeats = [1 if len(table[s][a]) == 1 else NUM_SAMPLES for s, a in pairs]
    rows = [pair for pair, count in zip(pairs, repeats, strict=True) for _ in range(count)]
    obs, reward, terminated, _ = step_from(
        case.env_id, [case.decode(s) for s, _ in rows], [a for _, a in rows], **case.options
    )
    counts: dict[tuple[int, int], Counter] = {pair: Counter() for pair in pairs}
    outcomes = zip(obs.tolist(), reward.tolist(), terminated.tolist(), strict=True)
    for pair, outcome in zip(rows, outcomes, strict=True):
        counts[pair][outcome] += 1
    assert_fits([(counts[s, a], table[s][a]) for s, a in pairs])


def greedy(table: Table) -> Policy:
    """The best actions by value iteration, with a fifth of random ones."""
    num_actions = len(table[0])
    values = np.zeros(len(table))
    for _ in range(300):
        returns = np.array(
            [
                [
                    sum(p * (r + (not end) * 0.98 * values[s2]) for (s2, r, end), p in one.items())
                    for one in table[s].values()
                ]
                for s in range(len(table))
            ]
        )
        if np.abs(returns.max(axis=1) - values).max() < 1e-4:
            break
        values = returns.max(axis=1)
    best = returns.argmax(axis=1)

    def policy(obs: Any, index: Any, generator: np.random.Generator) -> Any:
        random = generator.integers(num_actions, size=len(obs))
        return np.where(generator.random(len(obs)) < 0.2, random, best[obs])

    return policy


def test_every_step_of_many_episodes_is_in_the_references_table(case: Tabular) -> None:
    table = case.table()
    episodes = record(case.env_id, NUM_EPISODES, greedy(table), np.int32, seed=2, **case.options)
    limit = rollouts.env_spec(case.env_id).max_episode_steps
    for episode in episodes:
        ends = [False] * (len(episode.action) - 1) + [episode.terminated]
        states = episode.obs.tolist()
        steps = zip(
            states, episode.action.tolist(), states[1:], episode.reward.tolist(), ends, strict=False
        )
        assert all((s2, r, end) in table[s][a] for s, a, s2, r, end in steps)
        assert episode.truncated == (len(episode.action) == limit)
    assert any(episode.terminated for episode in episodes) or case.env_id == "NChain-v0"


@pytest.mark.parametrize(
    "env_id", dict.fromkeys(case.env_id for case in TABULAR if case.env_id not in OURS)
)
def test_initial_states_are_distributed_as_the_references(env_id: str) -> None:
    chances = reference_of(env_id).unwrapped.initial_state_distrib
    with rollouts.make_vec(env_id, 100 * np.count_nonzero(chances), seed=3) as env:
        counts = Counter(env.reset()[0].tolist())
    assert_fits([(counts, {s: p for s, p in enumerate(chances.tolist()) if p > 0})])


@pytest.mark.parametrize(
    "env_id",
    [
        "FrozenLake-v1",
        "FrozenLake8x8-v1",
        "CliffWalking-v1",
        "CliffWalkingSlippery-v1",
        "Taxi-v3",
        "Taxi-v4",
        "Blackjack-v1",
    ],
)
def test_spaces_limits_and_defaults_are_gymnasiums(env_id: str) -> None:
    reference = reference_of(env_id)
    spec = rollouts.env_spec(env_id)
    expected = reference.observation_space
    if env_id == "Blackjack-v1":
        # a tuple of Discrete spaces becomes one array
        expected = gymnasium.spaces.MultiDiscrete([int(space.n) for space in expected])
    assert spec.single_observation_space == expected
    assert spec.single_action_space == reference.action_space
    assert spec.max_episode_steps == reference.spec.max_episode_steps
    assert spec.reward_threshold == reference.spec.reward_threshold
    for name, value in reference.spec.kwargs.items():
        assert name == "map_name" or spec.options[name] == value


# -- Taxi -------------------------------------------------------------------------------


def test_a_fickle_passenger_changes_the_destination_on_the_first_move() -> None:
    # in the middle of the map, passenger in the taxi, to destination 2, fickle or not
    states = [(2, 2, 4, 2, fickle, 0) for fickle in (0, 1) for _ in range(3000)]
    east, drop_off = 2, 5
    obs, reward, terminated, after = step_from("Taxi-v4", states, [east] * len(states))
    assert (obs[:3000] == (2 * 5 + 3) * 20 + 4 * 4 + 2).all()
    counts = Counter((obs[3000:] % 4).tolist())
    assert_fits([(counts, {stop: 1 / 3 for stop in (0, 1, 3)})])
    assert (reward == -1).all() and not terminated.any()
    # once, and not while the taxi stands or the passenger waits
    assert not after[:, 4].any()
    waiting = step_from("Taxi-v4", [(2, 2, 1, 2, 1, 0)], [east])
    standing = step_from("Taxi-v4", [(2, 2, 4, 2, 1, 0), (0, 1, 4, 2, 1, 0)], [drop_off, east])
    assert waiting[3].tolist() == [[2, 3, 1, 2, 1, 0]]
    assert standing[3].tolist() == [[2, 2, 4, 2, 1, 0], [0, 1, 4, 2, 1, 0]]


@pytest.mark.parametrize(
    ("options", "chance"),
    [
        ({}, 0),
        ({"fickle_passenger": True}, 0.3),
        ({"fickle_passenger": True, "fickle_probability": 0.6}, 0.6),
    ],
)
def test_as_many_passengers_are_fickle_as_gymnasiums(
    options: dict[str, Any], chance: float
) -> None:
    num_envs = 5000
    with rollouts.make_vec("Taxi-v4", num_envs, seed=4, **options) as env:
        env.reset()
        fickle = get_states(env, np.arange(num_envs), np.int32)[:, 4]
    deviation = np.sqrt(chance * (1 - chance) / num_envs)
    assert abs(fickle.mean() - chance) <= MAX_Z * deviation


# -- Blackjack --------------------------------------------------------------------------

STICK, HIT = 0, 1
RULES = [{"natural": n, "sab": s} for n, s in [(False, True), (True, False), (False, False)]]


def native_state(player: list[int], dealer: list[int]) -> tuple[int, ...]:
    hands = [(sum(hand), int(1 in hand), len(hand)) for hand in (player, dealer)]
    return (*hands[0], *hands[1], dealer[0])


@pytest.mark.parametrize("rules", RULES, ids=str)
@pytest.mark.parametrize("action", [STICK, HIT])
def test_blackjack_hands_are_played_with_gymnasiums_odds(rules: dict, action: int) -> None:
    players = [[1, 10], [10, 1], [10, 9], [5, 6, 10], [1, 6], [2, 3], [1, 2, 10, 8], [10, 5]]
    dealers = [[10, 6], [1, 5], [10, 1], [1, 10], [10, 10], [9, 3], [7, 10]]
    hands = [(player, dealer) for player in players for dealer in dealers]

    reference = blackjack.BlackjackEnv(**rules)

    def play(player: list[int], dealer: list[int]) -> Any:
        reference.player, reference.dealer = list(player), list(dealer)
        obs, reward, terminated, _, _ = reference.step(action)
        return tuple(int(one) for one in obs), reward, terminated

    exact = [distribution(lambda hand=hand: play(*hand)) for hand in hands]
    rows = [native_state(*hand) for hand in hands for _ in range(1000)]
    obs, reward, terminated, _ = step_from("Blackjack-v1", rows, [action] * len(rows), **rules)
    pairs = []
    for index, probabilities in enumerate(exact):
        found = slice(1000 * index, 1000 * (index + 1))
        outcomes = zip(
            map(tuple, obs[found].tolist()),
            reward[found].tolist(),
            terminated[found].tolist(),
            strict=True,
        )
        pairs.append((Counter(outcomes), probabilities))
    assert_fits(pairs)


@pytest.mark.parametrize("rules", RULES, ids=str)
def test_blackjack_follows_gymnasium_card_by_card_through_many_episodes(rules: dict) -> None:
    def policy(obs: Any, index: Any, generator: np.random.Generator) -> Any:
        return np.where(generator.random(len(obs)) < 0.5, HIT, STICK)

    reference = gymnasium.make("Blackjack-v1", **rules).unwrapped
    reference.reset()
    rewards = Counter()
    for episode in record("Blackjack-v1", NUM_EPISODES, policy, np.int32, seed=5, **rules):
        player, dealer, shows = episode.state[0][:3], episode.state[0][3:6], episode.state[0][6]
        reference.player = any_hand(*player)
        reference.dealer = [int(shows), int(dealer[0] - shows)]
        assert episode.obs[0].tolist() == list(reference._get_obs())
        for step, action in enumerate(episode.action):
            before, after = episode.state[step], episode.state[step + 1]
            cards = [after[0] - before[0]] if action == HIT else []
            if action == STICK:
                # the dealer drew to 17, and not beyond it
                drew = blackjack.sum_hand(reference.dealer) < 17
                assert (after[5] > 2) == drew
                if drew:
                    reference.dealer = [int(shows), *any_hand(*after[3:6])][1:]
            with stacked_deck(iter(cards)):
                obs, reward, terminated, _, _ = reference.step(int(action))
            last = step == len(episode.action) - 1
            if action == HIT:
                assert episode.obs[step + 1].tolist() == list(obs)
            else:
                assert episode.obs[step + 1].tolist() == episode.obs[step].tolist()
            assert episode.reward[step] == reward
            assert terminated == last == (episode.terminated and last)
        rewards[float(episode.reward[-1])] += 1
    assert {-1.0, 0.0, 1.0} <= rewards.keys()
    assert (1.5 in rewards) == rules["natural"]


def test_blackjack_deals_first_hands_with_gymnasiums_odds() -> None:
    reference = gymnasium.make("Blackjack-v1").unwrapped

    def deal() -> Any:
        reference.dealer = blackjack.draw_hand(None)
        reference.player = blackjack.draw_hand(None)
        return tuple(int(one) for one in reference._get_obs())

    exact = distribution(deal)
    # every first observation is expected ten times or more
    with rollouts.make_vec("Blackjack-v1", 20_000, seed=6) as env:
        counts = Counter(map(tuple, env.reset()[0].tolist()))
    assert_fits([(counts, {one: float(p) for one, p in exact.items()})])


# -- Catch ------------------------------------------------------------------------------


def test_catch_follows_the_slow_oracle_through_many_episodes() -> None:
    def policy(obs: Any, index: Any, generator: np.random.Generator) -> Any:
        return generator.integers(3, size=len(obs))

    rewards = Counter()
    for episode in record("Catch-v0", NUM_EPISODES, policy, np.int32, seed=7):
        oracle = SlowCatch(int(episode.obs[0][0].argmax()))
        np.testing.assert_array_equal(episode.obs[0], oracle.observe())
        for step, action in enumerate(episode.action.tolist()):
            obs, reward, terminated = oracle.step(action)
            np.testing.assert_array_equal(episode.obs[step + 1], obs)
            assert episode.reward[step] == reward
            assert terminated == (step == len(episode.action) - 1)
        assert episode.terminated and not episode.truncated
        rewards[reward] += 1
    assert rewards.keys() == {-1.0, 1.0}


def test_catch_drops_the_ball_from_every_column_alike() -> None:
    with rollouts.make_vec("Catch-v0", 5000, seed=8) as env:
        counts = Counter(env.reset()[0][:, 0].argmax(axis=1).tolist())
    assert_fits([(counts, dict.fromkeys(range(5), 0.2))])


def test_n_chain_begins_at_the_start_and_is_truncated_after_1000_steps() -> None:
    spec = rollouts.env_spec("NChain-v0")
    assert spec.max_episode_steps == 1000
    with rollouts.make_vec("NChain-v0", 10, seed=9) as env:
        assert env.reset()[0].tolist() == [0] * 10
