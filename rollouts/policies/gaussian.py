# SPDX-License-Identifier: Apache-2.0
"""Gaussian actions: with independent noise in each step, or noise that is correlated over steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, pi

import gymnasium
import numpy as np
from numpy.typing import DTypeLike

from rollouts.errors import SpecError
from rollouts.support.extras import needs

with needs("torch", "TorchPolicy"):
    import torch
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class GaussianHead:
    """Continuous actions from (mean, log_std), each dimension independent of the others."""

    dtype: DTypeLike
    outputs: tuple[str, ...] = ("mean", "log_std")

    def sample(self, params: Sequence[Tensor], generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draws mean + std * noise."""
        mean, log_std = params
        noise = torch.empty_like(mean).normal_(generator=generator)
        action = torch.addcmul(mean, log_std.exp().expand_as(mean), noise)
        return action, self._log_density(noise, log_std)

    def most_likely(self, params: Sequence[Tensor]) -> Tensor:
        """Returns the actions (B, *action_shape) of the greatest density."""
        return params[0]

    def evaluate(self, params: Sequence[Tensor], action: Tensor) -> tuple[Tensor, Tensor]:
        """Returns log_prob and entropy (B,) for action (B, *action_shape)."""
        mean, log_std = params
        log_prob = self._log_density((action - mean) / log_std.exp(), log_std)
        entropy = (log_std.expand_as(mean) + 0.5 * (1 + log(2 * pi))).flatten(1).sum(1)
        return log_prob, entropy

    def _log_density(self, noise: Tensor, log_std: Tensor) -> Tensor:
        """Log density (B,) of the action that lies `noise` standard deviations off the mean."""
        per_dimension = -0.5 * noise.square() - log_std - 0.5 * log(2 * pi)
        return per_dimension.flatten(1).sum(1)


@dataclass(frozen=True, slots=True)
class OrnsteinUhlenbeckHead(GaussianHead):
    """Continuous actions mean + std * x of (mean, log_std), as DDPG explores (Lillicrap et al.
    2015): x_0 = e_0 and x_t = (1 - damping) x_(t-1) + e_t, e normally distributed. Assign one to
    `TorchPolicy.head`.

    x begins anew with each episode, and is a pure function of (seed, env_id, episode, step): the
    same in a C++ pool and on a GPU. In both, native code computes it from the noise of earlier
    steps; with damping 0.15, an action needs that of about a hundred steps. The head is refused
    where torch computes the policy of a C++ pool, because torch does not know the episode.
    `log_prob` and entropy are those of e, given the past.

    Attributes:
      damping: The share of the noise that a step forgets, from 0.01 to 1; with 1 it is a
        `GaussianHead`.
    """

    damping: float = 0.15

    @classmethod
    def of(
        cls, action_space: gymnasium.Space[object], damping: float = 0.15
    ) -> OrnsteinUhlenbeckHead:
        """Makes the head of an action space.

        Raises:
          SpecError: The space is no Box of floats, or damping is out of range.
        """
        dtype = np.dtype(action_space.dtype)
        if not isinstance(action_space, gymnasium.spaces.Box) or dtype.kind != "f":
            raise SpecError(f"action space is {action_space}, expected a Box of floats")
        if not 0.01 <= damping <= 1:
            raise SpecError(f"damping is {damping}, expected a share from 0.01 to 1")
        return cls(dtype=dtype, damping=damping)

    def sample(self, params: Sequence[Tensor], generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Refuses, because the noise depends on the episode and step, which are unknown here.

        Raises:
          SpecError: Always.
        """
        raise SpecError(
            "torch was to draw noise that goes on from step to step, expected native code, which "
            "knows the episodes: collect with engine='native', or on a device"
        )
