# SPDX-License-Identifier: Apache-2.0
"""Schedulers of levels equal slow formulas of the papers that they follow."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollouts import SpecError
from rollouts.curriculum import LevelReplay, StateArchive, SuccessStages


def slow_probabilities(
    scores: dict[int, float], begun: dict[int, int], count: int, levels: int, **options: float
) -> list[float]:
    """Jiang et al. 2021, equations of sections 3.2 and 3.3, level by level."""
    ranking = sorted(scores, key=lambda level: (-scores[level], level))
    by_score = {level: (1 / (i + 1)) ** (1 / options["beta"]) for i, level in enumerate(ranking)}
    by_age = {level: float(count - begun[level]) for level in scores}
    unseen = [level for level in range(levels) if level not in begun]
    rho = options["rho"]
    total = []
    for level in range(levels):
        replayed = 0.0
        if level in scores:
            replayed = (1 - rho) * by_score[level] / sum(by_score.values())
            replayed += rho * by_age[level] / sum(by_age.values())
        new = 1 / len(unseen) if level in unseen else 0.0
        share = len(unseen) / levels
        total.append(share * new + (1 - share) * replayed)
    return total


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 8),
    st.lists(st.integers(-5, 5), min_size=1, max_size=12),
    st.sampled_from([0.1, 0.5, 1.0]),
    st.sampled_from([0.0, 0.3, 1.0]),
)
def test_levels_have_the_probabilities_of_the_paper(
    levels: int, scores: list[int], beta: float, rho: float
) -> None:
    replay = LevelReplay(levels, temperature=beta, staleness=rho, seed=1)
    known: dict[int, float] = {}
    begun: dict[int, int] = {}
    for count, score in enumerate(scores):
        (level,) = replay.next(1)
        replay.update([level], [score])
        known[int(level)], begun[int(level)] = float(score), count
    expected = slow_probabilities(known, begun, len(scores), levels, beta=beta, rho=rho)
    np.testing.assert_allclose(replay.probabilities(), expected, rtol=1e-12, atol=1e-15)


def test_draws_follow_the_probabilities() -> None:
    replay = LevelReplay(4, temperature=1.0, staleness=0.0, seed=3)
    replay.update([0, 1, 2, 3], [4.0, 3.0, 2.0, 1.0])
    drawn = Counter(replay.next(20_000).tolist())
    for level, weight in enumerate((1, 1 / 2, 1 / 3, 1 / 4)):
        share = weight / (1 + 1 / 2 + 1 / 3 + 1 / 4)
        assert abs(drawn[level] / 20_000 - share) < 5 * (share / 20_000) ** 0.5


def test_levels_that_were_not_played_come_first_and_old_ones_come_back() -> None:
    replay = LevelReplay(5, staleness=1.0, seed=0)
    assert sorted(replay.next(5)) == [0, 1, 2, 3, 4]
    replay.update(range(5), range(5))
    # by age alone, the last one that was begun is the least likely
    youngest = int(np.argmax(replay._begun_at))
    assert np.argmin(replay.probabilities()) == youngest


def test_a_stage_opens_where_the_last_episodes_of_the_newest_succeed() -> None:
    stages = SuccessStages(3, threshold=0.75, window=4, old_share=0.5, seed=0)
    assert set(stages.next(50)) == {0}
    stages.update([0] * 4, [1, 0, 1, 0])
    assert stages.stage == 0
    stages.update([0, 0], [1, 1])  # 1 0 1 1
    assert stages.stage == 1
    stages.update([0] * 8, [1] * 8)  # those are an older stage's
    assert stages.stage == 1
    drawn = Counter(stages.next(4000).tolist())
    assert set(drawn) == {0, 1} and abs(drawn[0] - 2000) < 200
    stages.update([1] * 9, [1] * 9)
    assert stages.stage == 2
    stages.update([2] * 9, [1] * 9)
    assert stages.stage == 2


def test_what_came_after_a_stage_opened_counts_for_none() -> None:
    stages = SuccessStages(3, threshold=1.0, window=2)
    stages.update([0, 0, 0, 0], [1, 1, 1, 1])
    assert stages.stage == 1


def test_the_archive_keeps_the_best_state_and_draws_seldom_seen_cells() -> None:
    archive = StateArchive(max_cells=2, seed=0)
    assert archive.add(["a", "b", "a"], [b"1", b"2", b"3"], [-5.0, -1.0, -4.0]) == 2
    assert archive.add(["a"], [b"4"], -9.0) == 0
    assert archive.add(["c"], [b"5"]) == 0 and "c" not in archive
    assert (archive.visits("a"), archive.visits("b"), archive.visits("c")) == (3, 1, 0)
    cells, states = archive.draw(20_000)
    assert set(zip(cells, states, strict=True)) == {("a", b"3"), ("b", b"2")}
    a, b = (3 + 1) ** -0.5, (1 + 1) ** -0.5
    assert abs(cells.count("a") / 20_000 - a / (a + b)) < 0.02


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LevelReplay(0), "num_levels is 0"),
        (lambda: LevelReplay(3, temperature=0), "temperature is 0"),
        (lambda: LevelReplay(3, staleness=2), "staleness is 2"),
        (lambda: LevelReplay(3).update([3], [0.0]), "numbers from 0 to 2"),
        (lambda: LevelReplay(3).update([1], [np.nan]), "expected finite numbers"),
        (lambda: LevelReplay(3).update([1, 2], [0.0]), "score shape"),
        (lambda: LevelReplay(3).update([1.5], [0.0]), "whole numbers"),
        (lambda: SuccessStages(3, threshold=0), "threshold is 0"),
        (lambda: SuccessStages(3).update([0], [2.0]), "successes from 0 to 1"),
        (lambda: StateArchive().draw(1), "the archive is empty"),
        (lambda: StateArchive().add(["a"], []), "expected as many of each"),
        (lambda: StateArchive().add(["a"], [b""], np.inf), "expected finite numbers"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(call: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        call()
