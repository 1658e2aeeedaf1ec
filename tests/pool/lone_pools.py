# SPDX-License-Identifier: Apache-2.0
"""The model of test_protocol_properties.py: environments in pools of one, stepped at once."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import rollouts


class Row(NamedTuple):
    """A batch's row of one environment."""

    obs: bytes
    reward: float
    terminated: bool
    truncated: bool
    episode_return: float
    episode_length: int
    final_obs: bytes | None


class Saved(NamedTuple):
    """A state, and what the model must know of the moment it was saved at."""

    state: bytes
    now: Row
    ended: bool


def first_row(obs: bytes) -> Row:
    return Row(obs, 0.0, False, False, 0.0, 0, None)


def rows_of_batch(batch: rollouts.StepBatch) -> dict[int, Row]:
    """Rows by env_id, in the batch's order."""
    ended = batch.terminated | batch.truncated
    rows = {}
    for i, one in enumerate(batch.env_id.tolist()):
        final = batch.final_obs is not None and ended[i]
        rows[one] = Row(
            batch.obs[i].tobytes(),
            *(column[i].item() for column in batch[1:4]),
            *(column[i].item() for column in batch[5:7]),
            batch.final_obs[i].tobytes() if final else None,
        )
    assert len(rows) == len(batch.env_id)
    return rows


def rows_of_five(five: tuple[Any, ...]) -> dict[int, Row]:
    """As rows_of_batch, of what recv and step return."""
    obs, *columns, info = five
    finals = info.get("final_obs", [None] * len(obs))
    rows = {}
    for i, one in enumerate(info["env_id"].tolist()):
        rows[one] = Row(
            obs[i].tobytes(),
            *(column[i].item() for column in columns),
            info["episode_return"][i].item(),
            info["episode_length"][i].item(),
            None if finals[i] is None else finals[i].tobytes(),
        )
    return rows


@functools.lru_cache(maxsize=4096)
def lone_pool(env_id: str, one: int, mode: str, limit: int) -> rollouts.VectorEnv:
    """Kept for later examples: to make the pools took all of this test's time."""
    return rollouts.make_vec(
        env_id, 1, num_threads=1, autoreset_mode=mode, max_episode_steps=limit, env_id_offset=one
    )


class Model:
    """One environment, stepped the moment it is told to."""

    def __init__(self, env_id: str, one: int, mode: str, limit: int, seed: int) -> None:
        self.pool = lone_pool(env_id, one, mode, limit)
        self.first_seed: int | None = seed  # that of the pool under test, until episode 0 begins
        self.started = self.ended = False
        self.now = first_row(b"")  # the row that an observation without a step would show

    def step(self, action: int) -> Row:
        self.pool.send([action])
        (row,) = rows_of_batch(self.pool.recv_batch()).values()
        self.ended = row.terminated or row.truncated
        new_episode = self.ended and self.pool.autoreset_mode.name == "SAME_STEP"
        self.now = first_row(row.obs) if new_episode else row
        return row

    def reset(self, seed: int | None) -> Row:
        obs, info = self.pool.reset(seed=self.first_seed if seed is None else seed)
        self.first_seed = None
        assert info["episode_length"] == [0]
        self.started, self.ended = True, False
        self.now = first_row(obs[0].tobytes())
        return self.now

    def observe(self) -> Row:
        return self.now._replace(reward=0.0, terminated=False, truncated=False, final_obs=None)

    def save(self) -> Saved:
        return Saved(self.pool.get_state()[0], self.now, self.ended)

    def load(self, saved: Saved) -> None:
        self.pool.set_state(None, [saved.state])
        self.first_seed = None
        self.started, self.now, self.ended = True, saved.now, saved.ended
