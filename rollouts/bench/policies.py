# SPDX-License-Identifier: Apache-2.0
"""The policies that `rollouts bench collect` collects with; imports torch."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rollouts.bench.policy_kinds import PolicyKind
from rollouts.bench.random_policy import make_random_policy
from rollouts.errors import SpecError
from rollouts.policies.protocol import Policy
from rollouts.support.extras import needs
from rollouts.workers.worker_config import PolicySpec

with needs("torch", "`rollouts bench collect`"):
    import torch
    from torch import Tensor, nn

    from rollouts.policy import TorchPolicy
    from rollouts.recurrent import RecurrentTorchPolicy

Array = NDArray[Any]

_MEMORY = 64  # units of the layer and of the GRU of "gru"


def make_policy(spec: PolicySpec, *, kind: PolicyKind) -> Policy:
    """Makes a small actor-critic, or "random", which repeats actions that were drawn before.

    All workers' networks are equal; `ActorCritic` and, for "gru", `RecurrentActorCritic` describe
    them.

    Raises:
      SpecError: There is no such network for these spaces.
    """
    if kind.name == "random":
        return make_random_policy(spec)
    spaces_of_one = spec.single_observation_space, spec.single_action_space
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if kind.name == "gru":
            memory = RecurrentActorCritic(*spaces_of_one)
            return RecurrentTorchPolicy(memory, spec.single_action_space, seed=spec.seed)
        module = ActorCritic(*spaces_of_one, kind)
    return TorchPolicy(module, spec.single_action_space, seed=spec.seed)


class ActorCritic(nn.Module):
    """Maps observations (B, D) or (B, C, H, W) to the outputs that `TorchPolicy` expects.

    One body, see `make_body`, with one linear layer for the actor and one for the critic.
    """

    def __init__(
        self,
        obs_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        kind: PolicyKind,
    ) -> None:
        """Raises SpecError where this kind does not take such observations."""
        super().__init__()
        self.scale = 1 / 255 if obs_space.dtype == np.uint8 else 1.0
        self.body, width = make_body(obs_space, kind)
        self.heads = _Heads(width, action_space)

    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        outputs: tuple[Tensor, ...] = self.heads(self.body(obs.float() * self.scale))
        return outputs


class RecurrentActorCritic(nn.Module):
    """A tanh layer, a GRU cell and the heads: a module for `RecurrentTorchPolicy`."""

    def __init__(self, obs_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> None:
        """Raises SpecError where observations are not vectors."""
        super().__init__()
        self.body, width = make_body(obs_space, PolicyKind("gru", (_MEMORY,)))
        self.cell = nn.GRUCell(width, _MEMORY)
        self.heads = _Heads(_MEMORY, action_space)

    def initial_state(self) -> tuple[Tensor]:
        return (torch.zeros(_MEMORY),)

    def forward(self, obs: Tensor, state: tuple[Tensor]) -> tuple[Any, ...]:
        hidden = self.cell(self.body(obs.float()), state[0])
        return *self.heads(hidden), (hidden,)


def make_body(obs_space: spaces.Space[Any], kind: PolicyKind) -> tuple[nn.Module, int]:
    """Makes the layers before the heads; returns them and their width.

    For vectors (D,) they are tanh layers with the widths `kind.hidden`; for "cnn" they are those of
    Mnih et al. 2015.

    Raises:
      SpecError: Observations are not vectors, or for "cnn" not images (C, H, W).
    """
    shape = obs_space.shape if isinstance(obs_space, spaces.Box) else None
    expected = (3, "images (C, H, W)") if kind.name == "cnn" else (1, "vectors (D,)")
    if shape is None or len(shape) != expected[0]:
        raise SpecError(
            f"the observation space is {obs_space}, expected a Box of {expected[1]} for the policy "
            f"{kind.name!r}: measure vectors with 64x64, images with cnn, others with random"
        )
    return _image_body(shape) if kind.name == "cnn" else _vector_body(shape[0], kind.hidden)


class _Heads(nn.Module):
    def __init__(self, width: int, action_space: spaces.Space[Any]) -> None:
        super().__init__()
        self.actor = nn.Linear(width, _num_outputs(action_space))
        self.critic = nn.Linear(width, 1)
        box = isinstance(action_space, spaces.Box)
        self.action_shape = action_space.shape if box else None
        self.log_std = nn.Parameter(torch.zeros(action_space.shape or ())) if box else None

    def forward(self, hidden: Tensor) -> tuple[Tensor, ...]:
        actor, value = self.actor(hidden), self.critic(hidden)
        if self.action_shape is None or self.log_std is None:
            return actor, value
        return actor.reshape(-1, *self.action_shape), self.log_std, value


def _num_outputs(action_space: spaces.Space[Any]) -> int:
    """Size of the actor's layer: number of logits, or of means of a Box."""
    if isinstance(action_space, spaces.Discrete):
        return int(action_space.n)
    if isinstance(action_space, spaces.MultiDiscrete):
        return int(np.sum(action_space.nvec))
    return int(np.prod(action_space.shape or ()))


def _vector_body(size: int, hidden: tuple[int, ...]) -> tuple[nn.Module, int]:
    widths = [size, *hidden]
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.Tanh()]
    return nn.Sequential(*layers), widths[-1]


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
