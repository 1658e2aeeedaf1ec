# SPDX-License-Identifier: Apache-2.0
"""The policies that `rollouts bench-collect` collects with; imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rollouts.bench.runner import action_batches
from rollouts.distributed.worker import PolicySpec
from rollouts.errors import SpecError
from rollouts.policies.protocol import Policy, PolicyOutput
from rollouts.support.extras import needs

with needs("torch", "`rollouts bench-collect`"):
    import torch
    from torch import Tensor, nn

    from rollouts.policy import TorchPolicy

Array = NDArray[Any]
PolicyKind = Literal["network", "random"]

_HIDDEN = 64  # units of both layers that vector observations go through


def make_policy(spec: PolicySpec, *, kind: PolicyKind) -> Policy:
    """Makes "network", a small actor-critic, or "random", whose actions were drawn before.

    The network is two tanh layers of 64 for vectors and, for images (C, H, W), that of Mnih et
    al. 2015. All workers' networks are equal.

    Raises:
      SpecError: unknown kind, or a network for spaces that `TorchPolicy` or this one lacks.
    """
    if kind == "random":
        return RandomPolicy(spec.single_action_space, spec.num_envs, seed=spec.seed)
    if kind != "network":
        raise SpecError(f"policy is {kind!r}, expected one of {get_args(PolicyKind)}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = ActorCritic(spec.single_observation_space, spec.single_action_space)
    return TorchPolicy(module, spec.single_action_space, seed=spec.seed)


class RandomPolicy:
    """Hands out batches of actions drawn once, in turn: collecting costs nothing but steps."""

    def __init__(self, action_space: spaces.Space[Any], num_envs: int, *, seed: int) -> None:
        """Draws the actions of `num_envs` environments."""
        self.policy_version = 0
        zeros = np.zeros(num_envs, np.float32)
        self._outputs = [
            PolicyOutput(actions, zeros, zeros)
            for actions in action_batches(action_space, num_envs, seed=seed)
        ]
        self._calls = 0

    def act(self, obs: Array) -> PolicyOutput:
        """Returns the next batch of actions; `obs` must have num_envs rows."""
        self._calls += 1
        return self._outputs[self._calls % len(self._outputs)]

    def value(self, obs: Array) -> NDArray[np.float32]:
        """Returns zeros (B,)."""
        return np.zeros(len(obs), np.float32)

    def weights(self) -> dict[str, Array]:
        """Returns none."""
        return {}

    def load_weights(self, weights: Mapping[str, Array], version: int) -> None:
        """Takes over the version."""
        self.policy_version = version


class ActorCritic(nn.Module):
    """Maps observations (B, D) or (B, C, H, W) to what `TorchPolicy` expects of a module."""

    def __init__(self, obs_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> None:
        """Raises SpecError where observations are neither vectors nor images."""
        super().__init__()
        shape = obs_space.shape if isinstance(obs_space, spaces.Box) else None
        if shape is None or len(shape) not in (1, 3):
            raise SpecError(
                f"the observation space is {obs_space}, expected a Box of vectors (D,) or images "
                "(C, H, W): measure with the policy 'random'"
            )
        self.scale = 1 / 255 if obs_space.dtype == np.uint8 else 1.0
        self.body, width = _vector_body(shape[0]) if len(shape) == 1 else _image_body(shape)
        num_actions = (
            int(action_space.n)
            if isinstance(action_space, spaces.Discrete)
            else int(np.prod(action_space.shape or ()))
        )
        self.actor = nn.Linear(width, num_actions)
        self.critic = nn.Linear(width, 1)
        box = isinstance(action_space, spaces.Box)
        self.action_shape = action_space.shape if box else None
        self.log_std = nn.Parameter(torch.zeros(action_space.shape or ())) if box else None

    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        hidden = self.body(obs.float() * self.scale)
        actor, value = self.actor(hidden), self.critic(hidden)
        if self.action_shape is None or self.log_std is None:
            return actor, value
        return actor.reshape(-1, *self.action_shape), self.log_std, value


def _vector_body(size: int) -> tuple[nn.Module, int]:
    layers = [nn.Linear(size, _HIDDEN), nn.Tanh(), nn.Linear(_HIDDEN, _HIDDEN), nn.Tanh()]
    return nn.Sequential(*layers), _HIDDEN


def _image_body(shape: tuple[int, ...]) -> tuple[nn.Module, int]:
    convolutions = nn.Sequential(
        nn.Conv2d(shape[0], 32, 8, stride=4),
        nn.ReLU(),
        nn.Conv2d(32, 64, 4, stride=2),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, stride=1),
        nn.ReLU(),
        nn.Flatten(),
    )
    with torch.no_grad():
        width = convolutions(torch.zeros(1, *shape)).shape[1]
    return nn.Sequential(convolutions, nn.Linear(width, 512), nn.ReLU()), 512
