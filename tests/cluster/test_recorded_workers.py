# SPDX-License-Identifier: Apache-2.0
"""Workers that record, and are killed: every fragment that a learner got is made again."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded_run import SHOWN, by_group, replay_all_elsewhere, small_policy

import rollouts
from rollouts import RolloutCoordinator, RunLog
from rollouts.errors import SpecError
from rollouts.run_log.log_reader import open_log
from rollouts.workers import CollectOptions, Fragment

NUM_ENVS, STEPS, TIMEOUT_S = 3, 16, 300.0
NORMALIZED = {"normalize_observation": True, "normalize_reward": True}
IDS: list[tuple[str, dict[str, Any]]] = [
    ("CartPole-v1", {}),
    ("HalfCheetah-v5", {}),
    ("ALE/Pong-v5", {}),
    ("Hopper-v5", NORMALIZED),
    ("simple_tag_v3", {}),
]


def recorded(log: Path, id: str, options: dict[str, Any], kills: int) -> list[Fragment]:
    """Returns the fragments of a run whose workers were killed."""
    fragments: list[Fragment] = []
    with RolloutCoordinator[Any](
        id,
        small_policy,
        num_workers=2,
        num_envs_per_worker=NUM_ENVS,
        rollout_length=STEPS,
        env_options=options,
        record=RunLog(path=log, state_every=4),
        collect=CollectOptions(keep_final_obs=True),
    ) as coordinator:
        coordinator.publish_weights(_weights(id, options))
        for kill in range(kills):
            victim, life = kill % 2, kill // 2
            fragments += _taken_until(coordinator, (victim, life))
            os.kill(coordinator.stats()["workers"][victim]["pid"], signal.SIGKILL)
            fragments += _taken_until(coordinator, (victim, life + 1))
    return fragments


def _taken_until(coordinator: RolloutCoordinator[Any], of: tuple[int, int]) -> list[Fragment]:
    """Takes fragments until one is of a worker's incarnation; the workers never rest."""
    taken: list[Fragment] = []
    while not any((one.worker_id, one.incarnation) == of for one in taken):
        taken += coordinator.get_fragments(1, TIMEOUT_S)
    return taken


def _logged(log: Path) -> dict[tuple[int, int], int]:
    """Returns (worker_id, incarnation) -> the step after its last whole fragment."""
    return {(one.header.worker_id, one.header.incarnation): one.steps()[1] for one in open_log(log)}


def _weights(id: str, options: dict[str, Any]) -> Any:
    from recorded_run import policies_of

    with rollouts.make_vec(id, NUM_ENVS, **options) as env:
        made = policies_of(env)
    if isinstance(made, dict):
        return {name: policy.weights() for name, policy in made.items()}
    return made.weights()


def assert_made_again(log: Path, fragments: list[Fragment], count: int, folder: Path) -> None:
    """Compares random fragments with what the learner got; each that it got is in the log."""
    ends = _logged(log)
    for one in fragments:
        assert one.seq_no * STEPS < ends[one.worker_id, one.incarnation]
    draws = random.Random(0)
    chosen = draws.choices(fragments, k=count)
    assert {one.incarnation for one in fragments} >= {0, 1}
    wanted, expected = [], []
    for number, one in enumerate(chosen):
        column = draws.randrange(NUM_ENVS)
        dump = folder / f"{number}.npz"
        wanted.append(
            {
                "path": str(log),
                "env_id": one.worker_id * NUM_ENVS + column,
                "step": one.seq_no * STEPS + draws.randrange(STEPS),
                "incarnation": one.incarnation,
                "dump": str(dump),
            }
        )
        expected.append((one, column, dump))
    replay_all_elsewhere(wanted)
    for one, column, dump in expected:
        own = np.load(dump)
        payload: Any = one.payload
        batches = by_group(payload if isinstance(payload, dict) else one.batch)
        for name, batch in batches.items():
            agents = batch.reward.shape[1] // NUM_ENVS
            columns: Any = slice(column * agents, (column + 1) * agents) if name else column
            for field in SHOWN:
                shown = own[f"{name}/{field}" if name else field]
                np.testing.assert_array_equal(shown, getattr(batch, field)[:, columns])


def test_fragments_of_killed_workers_are_made_again(ray_session: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    fragments = recorded(log, "HalfCheetah-v5", {}, kills=1)
    assert_made_again(log, fragments, 4, tmp_path)
    with pytest.raises(SpecError, match="which has a log already"):
        recorded(log, "HalfCheetah-v5", {}, kills=1)


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.parametrize(("id", "options"), IDS)
def test_fifty_fragments_of_killed_workers_are_made_again(
    id: str, options: dict[str, Any], ray_session: Any, tmp_path: Path
) -> None:
    fragments = recorded(tmp_path / "log", id, options, kills=4)
    assert_made_again(tmp_path / "log", fragments, 10, tmp_path)
