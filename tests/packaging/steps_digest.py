# SPDX-License-Identifier: Apache-2.0
"""Prints digests of what environments return, for two machines to be compared.

Run as a program: `steps_digest.py STEPS ASYNC_STEPS`. A line per id with the SHA-256 of
observations, rewards and ends. Actions are computed without a function that could differ.
"""

from __future__ import annotations

import hashlib
import sys
from typing import Any

import gymnasium
import numpy as np

import rollouts

NUM_ENVS = 32
CLASSIC = ("CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0")
TOY_TEXT = (
    "FrozenLake-v1",
    "FrozenLake8x8-v1",
    "CliffWalking-v1",
    "CliffWalkingSlippery-v1",
    "Taxi-v3",
    "Taxi-v4",
    "Blackjack-v1",
    "Catch-v0",
    "NChain-v0",
)


def actions_for(space: gymnasium.Space[Any], t: int, env_ids: np.ndarray) -> np.ndarray:
    """Actions of step t: a function of the step and the environment alone."""
    mixed = (np.uint64(t) * np.uint64(2654435761) + env_ids.astype(np.uint64)) * np.uint64(40503)
    mixed = (mixed >> np.uint64(7)) % np.uint64(1021)
    if isinstance(space, gymnasium.spaces.Discrete):
        return (mixed % np.uint64(space.n)).astype(space.dtype)
    assert isinstance(space, gymnasium.spaces.Box)
    share = mixed.astype(np.float32).reshape(-1, *[1] * len(space.shape)) / np.float32(1020)
    return (space.low + (space.high - space.low) * share).astype(space.dtype)


def digest_of_steps(env_id: str, steps: int) -> str:
    digest = hashlib.sha256()
    with rollouts.make_vec(env_id, NUM_ENVS, num_threads=2, seed=3) as env:
        env_ids = np.arange(NUM_ENVS)
        obs, _ = env.reset()
        digest.update(obs.tobytes())
        for t in range(steps):
            action = actions_for(env.single_action_space, t, env_ids)
            for array in env.step(action)[:4]:
                digest.update(array.tobytes())
    return digest.hexdigest()


def digest_of_async_steps(env_id: str, steps: int) -> str:
    """Makes at least `steps` steps by send and recv; returns a digest per environment."""
    digests = [hashlib.sha256() for _ in range(NUM_ENVS)]
    times = np.zeros(NUM_ENVS, np.int64)
    each = -(-steps // NUM_ENVS)
    with rollouts.make_vec(env_id, NUM_ENVS, batch_size=8, num_threads=3, seed=4) as env:
        env.async_reset()
        going = NUM_ENVS
        while going:
            obs, reward, terminated, truncated, info = env.recv(min_envs=1, max_envs=8)
            env_ids = info["env_id"].copy()
            for row, env_id_ in enumerate(env_ids.tolist()):
                if times[env_id_] <= each:
                    for array in (obs, reward, terminated, truncated):
                        digests[env_id_].update(array[row].tobytes())
            left = env_ids[times[env_ids] < each]
            going -= len(env_ids) - len(left)
            if len(left):
                action = [
                    actions_for(env.single_action_space, int(times[i]), np.array([i]))[0]
                    for i in left
                ]
                env.send(np.stack(action), left)
            times[env_ids] += 1
    assert times.sum() - NUM_ENVS >= steps  # each was reset once
    return hashlib.sha256(b"".join(digest.digest() for digest in digests)).hexdigest()


def main() -> None:
    steps, async_steps = int(sys.argv[1]), int(sys.argv[2])
    for env_id in (*CLASSIC, *TOY_TEXT):
        print(env_id, digest_of_steps(env_id, steps), flush=True)
    # ALE's functions are found by names that have libstdc++'s types in them: on Linux alone
    if sys.platform == "linux":
        print("ALE/Pong-v5", digest_of_steps("ALE/Pong-v5", steps // 20), flush=True)
    for env_id in ("Acrobot-v1", "Taxi-v3"):
        print("async", env_id, digest_of_async_steps(env_id, async_steps), flush=True)


if __name__ == "__main__":
    main()
