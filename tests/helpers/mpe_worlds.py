# SPDX-License-Identifier: Apache-2.0
"""Worlds of MPE: where they lie in a raw state of the pool, and how mpe2 begins an episode in one.

A raw state is the World struct of the scenario's header, then the arrays of its agents, each at a
multiple of 16 bytes, or of 64 from sixteen agents on. mpe2's reset gets our goals and positions
in place of those that it draws, so that all that follows from them, such as colours, is mpe2's
own work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# id -> places for landmarks, and int32 numbers behind them: goals
_PLACES = {
    "simple_v3": (1, 0),
    "simple_spread_v3": (64, 0),
    "simple_tag_v3": (64, 0),
    "simple_adversary_v3": (64, 1),
    "simple_push_v3": (2, 1),
    "simple_crypto_v3": (0, 2),
    "simple_reference_v3": (3, 2),
    "simple_speaker_listener_v4": (3, 1),
    # the leader's four words, which no reset reads
    "simple_world_comm_v3": (96, 4),
}


@dataclass(frozen=True, slots=True)
class World:
    """One environment's world, as views of the bytes that it was made of.

    Attributes:
      landmarks (places, 2): Those in use are the first.
      goals (G,): Numbers that the reset drew, in its order.
      position, velocity (A, 2): Of the agents.
    """

    landmarks: Array
    goals: Array
    position: Array
    velocity: Array


def read_world(env_id: str, state: bytearray, num_agents: int) -> World:
    """The world in a raw state; writing to its arrays changes the state."""
    places, num_goals = _PLACES[env_id]
    unit = 16 if num_agents < 16 else 64

    def aligned(size: int) -> int:
        return -(-size // unit) * unit

    landmarks = np.frombuffer(state, np.float64, 2 * places).reshape(places, 2)
    goals = np.frombuffer(state, np.int32, num_goals, 16 * places)
    # rewards and returns, whether agents are active and have terminated
    status = 2 * aligned(8 * num_agents) + 2 * aligned(num_agents)
    at = aligned(16 * places + 4 * num_goals) + status
    moves = env_id != "simple_crypto_v3"
    arrays = [
        np.frombuffer(state, np.float64, 2 * num_agents, at + index * aligned(16 * num_agents))
        for index in range(2 * moves)
    ] or [np.zeros(2 * num_agents)] * 2
    position, velocity = (array.reshape(num_agents, 2) for array in arrays)
    return World(landmarks, goals, position, velocity)


class _Draws:
    """Stands in for NumPy's Generator: hands out goals and positions in mpe2's order."""

    def __init__(self, goals: Array, positions: Array) -> None:
        self.goals, self.positions = iter(goals.tolist()), iter(positions.tolist())

    def integers(self, _: int) -> int:
        return next(self.goals)

    def uniform(self, _low: float, _high: float, _size: int) -> Array:
        return np.array(next(self.positions))


def begin_reference(env_id: str, reference: Any, world: World) -> dict[str, Array]:
    """Resets mpe2's parallel environment to begin where `world` is; returns its observations."""
    theirs = reference.unwrapped
    num_landmarks = len(theirs.world.landmarks)
    if env_id == "simple_crypto_v3":
        # ours has no positions, since nothing depends on them
        landmarks = np.zeros((num_landmarks, 2))
    else:
        landmarks = world.landmarks[:num_landmarks]
    draws = [world.position, landmarks]
    if env_id == "simple_world_comm_v3":
        # places of food and forests are drawn once more
        draws.append(landmarks[num_landmarks - len(theirs.world.food + theirs.world.forests) :])
    theirs.np_random = _Draws(world.goals, np.concatenate(draws))
    obs, _ = reference.reset()
    return obs
