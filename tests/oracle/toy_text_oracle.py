# SPDX-License-Identifier: Apache-2.0
"""Slow, obvious Python forms of what Gymnasium lacks or hides: tables, Catch, NChain, cards.

And whether frequencies fit them.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np
from gymnasium.envs.toy_text import blackjack

# (next state, reward, terminated)
Outcome = tuple[int, float, bool]
# table[state][action][outcome] = probability
Table = dict[int, dict[int, dict[Outcome, float]]]

# a chi-square statistic turned into a standard normal variable; passed with p = 0.0005.
# Seeds are fixed, so that a test passes always or never
MAX_Z = 3.5


def table_of(transitions: Any) -> Table:
    """Gymnasium's P with equal outcomes added up."""
    table: Table = {}
    for state, actions in transitions.items():
        for action, outcomes in actions.items():
            merged: dict[Outcome, float] = defaultdict(float)
            for probability, next_state, reward, terminated in outcomes:
                merged[int(next_state), float(reward), bool(terminated)] += float(probability)
            table.setdefault(int(state), {})[int(action)] = dict(merged)
    return table


def n_chain_table(n: int = 5, slip: float = 0.2, small: float = 2, large: float = 10) -> Table:
    """The rules of classic Gym's NChain-v0."""
    table: Table = {}
    for state in range(n):
        forward = (state + 1, 0.0, False) if state < n - 1 else (state, float(large), False)
        back = (0, float(small), False)
        table[state] = {
            0: {forward: 1 - slip, back: slip},
            1: {back: 1 - slip, forward: slip},
        }
    return table


class SlowCatch:
    """The rules of bsuite's catch with its default board."""

    def __init__(self, ball_column: int, rows: int = 10, columns: int = 5) -> None:
        self.board = np.zeros((rows, columns), np.float32)
        self.ball = [0, ball_column]
        self.paddle = columns // 2

    def observe(self) -> np.ndarray:
        self.board.fill(0)
        self.board[self.ball[0], self.ball[1]] = 1
        self.board[-1, self.paddle] = 1
        return self.board.copy()

    def step(self, action: int) -> tuple[np.ndarray, float, bool]:
        rows, columns = self.board.shape
        self.paddle = min(max(self.paddle + {0: -1, 1: 0, 2: 1}[action], 0), columns - 1)
        self.ball[0] += 1
        if self.ball[0] < rows - 1:
            return self.observe(), 0.0, False
        return self.observe(), 1.0 if self.paddle == self.ball[1] else -1.0, True


# -- frequencies ----------------------------------------------------------------------


def chi_square_z(statistic: float, freedom: int) -> float:
    """Wilson and Hilferty's transformation to a standard normal variable."""
    spread = 2 / (9 * freedom)
    return float(((statistic / freedom) ** (1 / 3) - (1 - spread)) / np.sqrt(spread))


def assert_fits(pairs: list[tuple[Counter, dict[Any, float]]]) -> None:
    """Frequencies fit probabilities, over all pairs of them together."""
    statistic, freedom = 0.0, 0
    for counts, probabilities in pairs:
        assert counts.keys() == probabilities.keys()
        total = sum(counts.values())
        for outcome, probability in probabilities.items():
            expected = total * float(probability)
            statistic += (counts[outcome] - expected) ** 2 / expected
        freedom += len(probabilities) - 1
    if freedom:
        assert abs(chi_square_z(statistic, freedom)) < MAX_Z


# -- cards ------------------------------------------------------------------------------


@contextmanager
def stacked_deck(cards: Iterator[int]) -> Iterator[None]:
    """Lets Gymnasium's Blackjack draw these cards; StopIteration when there are no more."""
    with mock.patch.object(blackjack, "draw_card", lambda _: next(cards)):
        yield


def distribution(play: Callable[[], Any]) -> dict[Any, Fraction]:
    """Exact distribution of play(), which draws cards: every deck that it can meet."""
    chance = {card: Fraction(blackjack.deck.count(card), 13) for card in set(blackjack.deck)}
    result: dict[Any, Fraction] = defaultdict(Fraction)
    unfinished = [((), Fraction(1))]
    while unfinished:
        cards, probability = unfinished.pop()
        try:
            with stacked_deck(iter(cards)):
                result[play()] += probability
        except StopIteration:
            unfinished += [((*cards, card), probability * p) for card, p in chance.items()]
    return dict(result)


def any_hand(total: int, has_ace: bool, num_cards: int) -> list[int]:
    """Some hand with a hard total, with or without an ace, of so many cards."""
    aces = [1] if has_ace else []
    low = 1 if has_ace else 2
    for rest in itertools.combinations_with_replacement(range(low, 11), num_cards - len(aces)):
        if sum(aces) + sum(rest) == total:
            return aces + list(rest)
    raise ValueError((total, has_ace, num_cards))
