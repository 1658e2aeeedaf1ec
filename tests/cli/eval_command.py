# SPDX-License-Identifier: Apache-2.0
"""`rollouts eval` as tests call it, and the same episodes by a loop."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rollouts
from rollouts.cli import main as cli


def evaluate(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    assert cli.main(["eval", *map(str, arguments), "--trust", "--json"]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


def play(
    act: Callable[[Any], Any], env_id: str, counts: list[int], seed: int, **options: Any
) -> tuple[list[float], list[int]]:
    """Slowly and obviously: environment i plays counts[i] episodes."""
    played: list[list[tuple[float, int]]] = [[] for _ in counts]
    with rollouts.make_vec(
        env_id, len(counts), seed=seed, autoreset_mode="same_step", **options
    ) as env:
        obs, _ = env.reset()
        totals, lengths = np.zeros(len(counts)), np.zeros(len(counts), int)
        while any(len(each) < count for each, count in zip(played, counts, strict=True)):
            obs, reward, terminated, truncated, _ = env.step(act(obs))
            totals, lengths = totals + reward, lengths + 1
            for row in np.flatnonzero(terminated | truncated):
                if len(played[row]) < counts[row]:
                    played[row].append((float(totals[row]), int(lengths[row])))
                totals[row], lengths[row] = 0, 0
    flat = [one for each in played for one in each]
    return [total for total, _ in flat], [length for _, length in flat]
