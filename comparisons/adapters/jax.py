# SPDX-License-Identifier: Apache-2.0
"""Contestants of `rollouts bench adapter jax`: a policy in JAX, two tanh layers of 64."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

import rollouts
from comparisons.adapters.measuring import Case, Contestant


def _act(weights: Any, obs: Any, key: Any) -> Any:
    hidden = obs.reshape(len(obs), -1).astype(jnp.float32)
    for layer in weights[:-1]:
        hidden = jnp.tanh(hidden @ layer)
    return jax.random.categorical(key, hidden @ weights[-1]).astype(jnp.int32)


def _weights(case: Case) -> Any:
    spec = rollouts.env_spec(case.id)
    sizes = [int(np.prod(spec.single_observation_space.shape or ())), 64, 64]
    sizes.append(int(spec.single_action_space.n))  # type: ignore[attr-defined]
    keys = jax.random.split(jax.random.key(case.seed), len(sizes) - 1)
    pairs = zip(keys, sizes[:-1], sizes[1:], strict=True)
    return [jax.random.normal(key, (rows, cols)) / rows**0.5 for key, rows, cols in pairs]


class _Compiled:
    """The whole rollout is one compiled function."""

    note = "env.xla() in lax.scan"

    def __init__(self, case: Case) -> None:
        self._case = case
        self._env = rollouts.make_vec(
            case.id, case.num_envs, num_threads=case.num_threads, seed=case.seed
        )
        obs, _ = self._env.reset()
        handle, _, _, step = self._env.xla()

        @jax.jit
        def rollout(carry: Any, weights: Any) -> Any:
            def one(carry: Any, _: Any) -> Any:
                handle, obs, key = carry
                key, subkey = jax.random.split(key)
                handle, batch = step(handle, _act(weights, obs, subkey))
                return (handle, batch.obs, key), batch.reward

            return jax.lax.scan(one, carry, length=case.rollout_length)

        self._rollout, self._weights = rollout, _weights(case)
        self._carry = handle, jnp.asarray(obs), jax.random.key(case.seed)

    def collect(self) -> int:
        """T steps of each environment."""
        self._carry, rewards = self._rollout(self._carry, self._weights)
        rewards.block_until_ready()
        return self._case.rollout_length * self._case.num_envs

    def close(self) -> None:
        """Frees the environments."""
        self._env.close()


class _Stepped:
    """A compiled policy, environments stepped from Python."""

    def __init__(self, case: Case, env: Any, note: str) -> None:
        self.note = note
        self._case, self._env, self._weights = case, env, _weights(case)
        self._obs, _ = env.reset(seed=case.seed)
        self._key = jax.random.key(case.seed)
        self._act = jax.jit(_act)

    def collect(self) -> int:
        """T steps of each environment."""
        for _ in range(self._case.rollout_length):
            self._key, subkey = jax.random.split(self._key)
            action = self._act(self._weights, self._obs, subkey)
            self._obs, *_ = self._env.step(np.asarray(action))
        return self._case.rollout_length * self._case.num_envs

    def close(self) -> None:
        """Frees the environments."""
        self._env.close()


def _step(case: Case) -> Contestant:
    env = rollouts.make_vec(case.id, case.num_envs, num_threads=case.num_threads)
    return _Stepped(case, env, "our step, from Python")


def _gymnasium(case: Case) -> Contestant:
    make = functools.partial(gymnasium.make, case.id)
    return _Stepped(case, gymnasium.vector.SyncVectorEnv([make] * case.num_envs), "SyncVectorEnv")


CONTESTANTS: dict[str, Callable[[Case], Contestant]] = {
    "rollouts": _Compiled,
    "rollouts-step": _step,
    "gymnasium": _gymnasium,
}
