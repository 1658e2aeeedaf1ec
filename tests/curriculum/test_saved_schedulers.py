# SPDX-License-Identifier: Apache-2.0
"""Schedulers that go on from a checkpoint draw what they would have drawn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rollouts.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from rollouts.curriculum import LevelReplay, StateArchive, SuccessStages
from rollouts.errors import SpecError


def told(scheduler: Any, rounds: int) -> list[int]:
    """The levels that are drawn while scores come in."""
    drawn: list[int] = []
    for at in range(rounds):
        levels = scheduler.next(4)
        drawn += levels.tolist()
        scheduler.update(levels, (levels + at) % 3 / 2)
    return drawn


def through_a_file(folder: Path, state: dict[str, Any]) -> Any:
    made = Checkpoint(
        id="CartPole-v1", weights={"w": torch.zeros(1)}, program="", training={"levels": state}
    )
    save_checkpoint(folder / "run.pt", made)
    return load_checkpoint(folder / "run.pt").training["levels"]


SCHEDULERS: list[Callable[[int], Any]] = [
    lambda seed: LevelReplay(12, seed=seed),
    lambda seed: SuccessStages(12, threshold=0.3, window=5, seed=seed),
]


@pytest.mark.parametrize("make", SCHEDULERS)
def test_a_scheduler_goes_on_from_a_checkpoint(make: Any, tmp_path: Path) -> None:
    first, second = make(1), make(2)
    told(first, 20)
    second.load_state_dict(through_a_file(tmp_path, first.state_dict()))
    assert told(second, 20) == told(first, 20)


def test_an_archive_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    first, second = StateArchive(seed=1), StateArchive(seed=2)
    for at in range(30):
        first.add([(at % 7, "x"), at % 5], [b"a%d" % at, b"\x00"], [at % 4, 0.5])
    second.load_state_dict(through_a_file(tmp_path, first.state_dict()))
    assert len(second) == len(first) and (3, "x") in second and second.visits(2) == 6
    for _ in range(3):
        assert second.draw(9) == first.draw(9)
        assert second.add([(0, "x")], [b"better"], 9.0) == first.add([(0, "x")], [b"better"], 9.0)


@pytest.mark.parametrize("make", [*SCHEDULERS, lambda seed: StateArchive(seed=seed)])
def test_another_state_is_refused_and_changes_nothing(make: Any) -> None:
    one = make(1)
    before = repr(one.state_dict())
    for wrong in ({}, None, {**one.state_dict(), "more": 1}):
        with pytest.raises(SpecError, match="expected"):
            one.load_state_dict(wrong)
    with pytest.raises(SpecError, match="random is 'x', expected"):
        one.load_state_dict({**one.state_dict(), "random": "x"})
    assert repr(one.state_dict()) == before


def test_a_state_of_other_levels_is_refused() -> None:
    with pytest.raises(SpecError, match=r"is_scored has shape \(3,\), expected \(4,\)"):
        LevelReplay(4).load_state_dict(LevelReplay(3).state_dict())
    stages = SuccessStages(9, threshold=0.1, window=1)
    stages.update(np.array([0]), np.array([1.0]))
    with pytest.raises(SpecError, match="stage"):
        SuccessStages(1).load_state_dict(stages.state_dict())
    small = StateArchive(max_cells=1)
    large = StateArchive()
    large.add([1, 2], [b"", b""])
    with pytest.raises(SpecError, match="at most max_cells=1"):
        small.load_state_dict(large.state_dict())
