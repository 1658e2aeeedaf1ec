# SPDX-License-Identifier: Apache-2.0
"""Outputs of native rollouts on request: entropy and the head's inputs, as torch has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Categorical, Independent, Normal

import rollouts
from rollouts.errors import SpecError
from rollouts.policies.native import Head, NativePolicy

STEPS, NUM_ENVS = 12, 21


class Actor(nn.Module):
    """One trunk and as many outputs as the head reads; some logits may be masked."""

    def __init__(self, inputs: int, sizes: tuple[int, ...], *, masks: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.trunk = nn.Sequential(nn.Linear(inputs, 24), nn.Tanh())
        self.heads = nn.ModuleList(nn.Linear(24, size) for size in sizes)
        self.masks = masks

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = self.trunk(obs)
        outputs = [head(hidden) for head in self.heads]
        if self.masks:
            outputs[0] = torch.where(obs[:, :1] > 0, outputs[0] - torch.inf, outputs[0])
            outputs[0] = torch.cat([outputs[0][:, :1], self.heads[0](hidden)[:, 1:]], -1)
        return tuple(outputs)


def arrays_of(env: rollouts.VectorEnv, **more: Any) -> dict[str, Any]:
    """The arrays that `collect` writes, and `more`: shapes behind (T, B) of float32."""
    space, observed = env.single_action_space, env.single_observation_space
    dtypes: dict[str, Any] = {
        "reward": np.float32, "log_prob": np.float32, "value": np.float32,
        "bootstrap_value": np.float32, "terminated": np.bool_, "truncated": np.bool_,
        "episode_return": np.float64, "episode_length": np.int32,
    }  # fmt: skip
    shape = (STEPS, NUM_ENVS)
    arrays: dict[str, Any] = {name: np.empty(shape, dtype) for name, dtype in dtypes.items()}
    arrays["obs"] = np.empty((STEPS + 1, NUM_ENVS, *(observed.shape or ())), observed.dtype)
    arrays["obs"][0], _ = env.reset()
    dtype = np.int64 if isinstance(space, gymnasium.spaces.Discrete) else space.dtype
    arrays["action"] = np.empty((*shape, *(space.shape or ())), dtype)
    arrays["last_value"] = np.empty(NUM_ENVS, np.float32)
    return arrays | {name: np.full((*shape, *tail), 7, np.float32) for name, tail in more.items()}


def categorical(logits: torch.Tensor) -> Any:
    return Categorical(logits=logits).entropy()


def gaussian(mean: torch.Tensor, log_std: torch.Tensor) -> Any:
    return Independent(Normal(mean, log_std.exp()), 1).entropy()


def nothing(logits: torch.Tensor) -> Any:
    return torch.zeros(len(logits))


CASES: dict[str, tuple[str, Head, tuple[int, ...], bool, Callable[..., Any]]] = {
    "categorical": ("CartPole-v1", Head("categorical"), (2,), False, categorical),
    "masked": ("CartPole-v1", Head("categorical"), (2,), True, categorical),
    "gaussian": ("HalfCheetah-v5", Head("gaussian"), (6, 6), False, gaussian),
    "likeliest": ("Pendulum-v1", Head("gaussian", deterministic=True), (1, 1), False, gaussian),
    "tanh_gaussian": ("HalfCheetah-v5", Head("tanh_gaussian"), (6, 6), False, gaussian),
    "epsilon_greedy": (
        "CartPole-v1",
        Head("epsilon_greedy", epsilon=0.3),
        (2,),
        False,
        nothing,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_entropy_and_inputs_are_torchs(case: str) -> None:
    env_id, head, sizes, masks, entropy_of = CASES[case]
    with rollouts.make_vec(env_id, NUM_ENVS, seed=3, autoreset_mode="same_step") as env:
        space = env.single_observation_space
        actor = Actor(int(np.prod(space.shape or ())), sizes, masks=masks)
        if np.dtype(space.dtype) == np.float64:
            actor.trunk.insert(0, _ToFloat())
        policy = NativePolicy.from_torch(actor, env.single_action_space, space, head=head, seed=5)
        arrays = arrays_of(env, inputs=(sum(sizes),), entropy=())
        env.collect(policy, arrays)
        obs = torch.from_numpy(arrays["obs"][:-1].reshape(STEPS * NUM_ENVS, -1))
        with torch.no_grad():
            outputs = actor(obs)
            expected = entropy_of(*outputs).numpy().reshape(STEPS, NUM_ENVS)
        said = torch.cat(outputs, -1).numpy().reshape(STEPS, NUM_ENVS, -1)
        np.testing.assert_allclose(arrays["inputs"], said, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(arrays["entropy"], expected, rtol=1e-5, atol=1e-5)
        assert masks == bool(np.isinf(said).any())


class _ToFloat(nn.Module):
    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return obs.float()


def test_asking_for_entropy_changes_nothing_else() -> None:
    found = []
    for more in ({}, {"entropy": (), "inputs": (2,)}):
        with rollouts.make_vec("CartPole-v1", NUM_ENVS, seed=3, autoreset_mode="same_step") as env:
            policy = NativePolicy.from_torch(Actor(4, (2,)), env.single_action_space, seed=5)
            arrays = arrays_of(env, **more)
            env.collect(policy, arrays)
            found.append(arrays)
    for name, array in found[0].items():
        np.testing.assert_array_equal(found[1][name], array, name)


def test_an_array_for_entropy_of_another_shape_is_refused_before_anything_moves() -> None:
    with rollouts.make_vec("CartPole-v1", NUM_ENVS, seed=3, autoreset_mode="same_step") as env:
        policy = NativePolicy.from_torch(Actor(4, (2,)), env.single_action_space, seed=5)
        arrays = arrays_of(env)
        first = arrays["obs"][0].copy()
        for wrong in (
            np.empty((STEPS, NUM_ENVS), np.float64),
            np.empty((STEPS, NUM_ENVS + 1), np.float32),
            np.empty((STEPS, NUM_ENVS, 2), np.float32),
        ):
            with pytest.raises(SpecError, match="rollout array entropy has shape"):
                env.collect(policy, arrays | {"entropy": wrong})
        env.collect(policy, arrays)
        np.testing.assert_array_equal(arrays["obs"][0], first)
        assert (arrays["episode_length"][0] == 1).all()
