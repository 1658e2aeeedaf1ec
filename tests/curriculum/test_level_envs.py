# SPDX-License-Identifier: Apache-2.0
"""Environments begin the levels that a scheduler chooses, at the end of an episode alone."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

import rollouts
from rollouts import SpecError
from rollouts.curriculum import Curriculum, LevelReplay, SuccessStages, first_states
from rollouts.errors import DTypeError

GRAVITIES = [{"gravity": 2.0}, {"gravity": 9.8}, {"gravity": 30.0}]


class InTurn:
    """Levels in their order, and what was said of them."""

    def __init__(self, num_levels: int) -> None:
        self.num_levels, self.at, self.told = num_levels, 0, []

    def next(self, count: int) -> Any:
        drawn = (self.at + np.arange(count)) % self.num_levels
        self.at += count
        return drawn

    def update(self, level: Any, score: Any) -> None:
        self.told += list(zip(level.tolist(), score.tolist(), strict=True))


@pytest.mark.parametrize("device", [None, "cpu-emulation"])
def test_options_change_where_an_episode_ended_alone(device: Any) -> None:
    more = {"device": device} if device else {}
    with rollouts.make_vec("CartPole-v1", 4, autoreset_mode="disabled", seed=1, **more) as env:
        turns = InTurn(3)
        levels = Curriculum(env, GRAVITIES, turns)
        obs = levels.begin()
        assert levels.level.tolist() == [0, 1, 2, 0]
        playing = np.zeros(4, np.bool_)
        for t in range(200):
            action = np.ones(4, np.int64)
            if device:
                import torch

                action = torch.from_numpy(action)
            obs, _, terminated, truncated, _ = env.step(action)
            ended = np.asarray(terminated | truncated)
            before, shown = levels.level.copy(), np.asarray(obs).copy()
            if not ended.any():
                continue
            again = np.asarray(levels.end(ended, np.full(4, float(t))))
            gravity = np.asarray(env.env_options["gravity"])
            assert gravity.tolist() == [GRAVITIES[i]["gravity"] for i in levels.level]
            assert (levels.level[~ended] == before[~ended]).all()
            # the others play on from where they were
            assert (again[~ended] == shown[~ended]).all()
            assert turns.told[-ended.sum() :] == [(int(i), float(t)) for i in before[ended]]
            playing |= ended
        assert playing.all()


@pytest.mark.parametrize("env_id", ["MiniGrid-MultiRoom-N6-v0", "Hopper-v5"])
def test_a_level_that_is_a_state_begins_alike_in_any_environment(env_id: str) -> None:
    with rollouts.make_vec(env_id, 3, autoreset_mode="disabled", max_episode_steps=4) as env:
        states = first_states(env, range(10, 15))
        assert len(states) == 5
        levels = Curriculum(env, states, InTurn(5))
        seen: dict[int, list[Any]] = {}
        obs = levels.begin()
        for _ in range(60):
            for level, row in zip(levels.level, obs, strict=True):
                seen.setdefault(int(level), []).append(row.copy())
            ended = np.zeros(3, np.bool_)
            while not ended.all():
                _, _, terminated, truncated, _ = env.step(np.zeros_like(env.action_space.sample()))
                ended = terminated | truncated
            obs = levels.end(ended, np.zeros(3))
    assert sorted(seen) == [0, 1, 2, 3, 4]
    for rows in seen.values():
        assert all((row == rows[0]).all() for row in rows)
    assert len({rows[0].tobytes() for rows in seen.values()}) == 5


def test_levels_with_high_scores_are_played_again() -> None:
    with rollouts.make_vec("CartPole-v1", 8, autoreset_mode="disabled", seed=1) as env:
        replay = LevelReplay(3, temperature=0.1, staleness=0.0, seed=0)
        levels = Curriculum(env, GRAVITIES, replay)
        levels.begin()
        counts = np.zeros(3)
        for _ in range(600):
            _, _, terminated, truncated, _ = env.step(env.action_space.sample())
            ended = terminated | truncated
            counts += np.bincount(levels.level[ended], minlength=3)
            levels.end(ended, np.where(levels.level == 1, 1.0, 0.0))
        assert counts[1] > 0.9 * counts.sum()


@pytest.mark.parametrize(
    ("make", "levels", "message"),
    [
        ({}, GRAVITIES, "autoreset_mode is 'NextStep', expected 'disabled'"),
        ({"autoreset_mode": "disabled"}, [], "there are no levels"),
        ({"autoreset_mode": "disabled"}, GRAVITIES[:2], "there are 2 levels"),
        (
            {"autoreset_mode": "disabled"},
            [{"gravity": 1.0}, {"length": 1.0}, {"gravity": 1.0}],
            "the same names in each",
        ),
        ({"autoreset_mode": "disabled"}, [{"model": {}}] * 3, "model and reset_mask are none"),
    ],
)
def test_what_cannot_be_is_refused(make: Any, levels: Any, message: str) -> None:
    with rollouts.make_vec("CartPole-v1", 2, **make) as env, pytest.raises(SpecError) as found:
        Curriculum(env, levels, SuccessStages(3))
    assert message in str(found.value)


def test_engines_without_states_or_options_are_refused_from_the_table() -> None:
    from rollouts.envs.hosted import from_env_fns

    functions = [lambda: gymnasium.make("CartPole-v1")] * 2
    with from_env_fns(functions, num_processes=0, autoreset_mode="disabled") as env:
        for levels in (GRAVITIES, [b"1", b"2", b"3"]):
            with pytest.raises(SpecError, match=r"cannot (save environments|tell options)"):
                Curriculum(env, levels, SuccessStages(3))


def test_other_kinds_and_other_shapes_are_refused() -> None:
    with rollouts.make_vec("CartPole-v1", 2, autoreset_mode="disabled") as env:
        with pytest.raises(DTypeError, match="expected all dicts, or all bytes"):
            Curriculum(env, [b"1", {"gravity": 1.0}, 3], SuccessStages(3))  # type: ignore[list-item]
        levels = Curriculum(env, GRAVITIES, SuccessStages(3))
        with pytest.raises(SpecError, match="before begin"):
            levels.end(np.ones(2, np.bool_), np.zeros(2))
        levels.begin()
        with pytest.raises(SpecError, match="expected \\(2,\\) bools"):
            levels.end(np.ones(3, np.bool_), np.zeros(2))
        with pytest.raises(SpecError, match="seeds is 3, expected one for each level, such as"):
            first_states(env, 3)  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match="expected one of make_vec"):
        Curriculum(object(), GRAVITIES, SuccessStages(3))
