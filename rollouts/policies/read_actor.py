# SPDX-License-Identifier: Apache-2.0
"""`ReadActor`: the outputs of a Tianshou policy's actor, as logits or as a Gaussian."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rollouts.errors import SpecError
from rollouts.policies.foreign import Wrapped
from rollouts.policies.trace import random_rows
from rollouts.support.extras import needs

with needs("torch", "rollouts.policies.read_actor"):
    import torch
    from torch import Tensor
    from torch.distributions import Categorical, Independent, Normal

Array = NDArray[Any]

_COMPARED_ROWS = 12
_TOLERANCE = 1e-5


class ReadActor(Wrapped):
    """Returns (logits,), or (mean, log_std) of the environment's actions, as the policy's dist_fn
    interprets the outputs of its actor.

    Attributes:
      is_gaussian: Whether the outputs are (mean, log_std).
    """

    def __init__(self, policy: Any, space: gymnasium.Space[Any]) -> None:
        """Finds out what the actor's outputs mean, by calling dist_fn with some outputs.

        Args:
          policy: Tianshou's ProbabilisticActorPolicy, which has `actor` and `dist_fn`.
          space: Space of one observation.

        Raises:
          SpecError: The actor is recurrent, or dist_fn makes a distribution that is not supported.
        """
        super().__init__(policy.actor)
        self._scaling: tuple[Tensor, Tensor] | None = None
        obs = torch.from_numpy(random_rows(space, _COMPARED_ROWS, np.random.default_rng(0)))
        with torch.no_grad():
            outputs = _some_outputs(self._outputs(obs))
            dist = _distribution(policy, outputs)
            self.is_gaussian = not isinstance(dist, Categorical)
            self._says_probs = not self.is_gaussian and not _agree(
                dist.logits, outputs[0].log_softmax(-1)
            )
            found = self._params(outputs)
            if self.is_gaussian:
                agrees = _agree(dist.mean, found[0]) and _agree(dist.stddev, found[1].exp())
            else:
                agrees = _agree(dist.probs, found[0].softmax(-1))
        if not agrees:
            raise SpecError(
                f"dist_fn makes a {type(dist).__name__} of something else than the logits, "
                "probabilities or (mean, std) that the actor says"
            )

    def scale(self, middle: Array, half: Array) -> None:
        """Scales means and log stds to the actions that the environment gets.

        Args:
          middle, half: (*action_shape) float32; the environment gets middle + half * action.
        """
        self._scaling = torch.from_numpy(middle), torch.from_numpy(half)

    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        """Inputs of the distribution for obs (B, *obs_shape)."""
        return self._params(self._outputs(obs))

    def _params(self, outputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        if not self.is_gaussian:
            return (outputs[0].log() if self._says_probs else outputs[0],)
        mean, log_std = outputs[0], outputs[1].log()
        if self._scaling is None:
            return mean, log_std
        middle, half = self._scaling
        return mean * half + middle, log_std + half.log()

    def _outputs(self, obs: Tensor) -> tuple[Tensor, ...]:
        try:
            outputs, state = self.module(obs, state=None, info={})
        except SpecError:
            raise
        except Exception as error:
            raise SpecError(
                f"the actor fails for observations of shape {tuple(obs.shape)}: "
                f"{type(error).__name__}: {error}"
            ) from error
        if state is not None:
            raise SpecError("the actor is recurrent, whose states Tianshou's loop carries")
        return outputs if isinstance(outputs, tuple) else (outputs,)


def _some_outputs(like: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Other outputs of these shapes, small and large, to show how dist_fn treats them."""
    rng = np.random.default_rng(1)
    first, *rest = (torch.from_numpy(3 * rng.normal(size=each.shape)).to(each) for each in like)
    is_one = bool(torch.allclose(like[0].sum(-1), torch.ones(len(like[0]))))
    if is_one and bool((like[0] >= 0).all()):
        first = first.softmax(-1)
    return (first, *(each.abs() / 3 + 0.2 for each in rest))


def _distribution(policy: Any, outputs: tuple[Tensor, ...]) -> Any:
    """The distribution that dist_fn makes from an actor's outputs: a Categorical or a Normal."""
    try:
        dist = policy.dist_fn(outputs[0] if len(outputs) == 1 else outputs)
    except Exception as error:
        raise SpecError(f"dist_fn fails: {type(error).__name__}: {error}") from error
    base = dist.base_dist if isinstance(dist, Independent) else dist
    is_pair = type(base) is Normal and len(outputs) == 2
    if type(base) is not Categorical and not is_pair:
        raise SpecError(
            f"dist_fn makes a {type(base).__name__}, expected a Categorical of logits or "
            "probabilities, or a Normal of (mean, std)"
        )
    return base


def _agree(theirs: Tensor, ours: Tensor) -> bool:
    if theirs.shape != ours.shape:
        return False
    return bool(torch.allclose(theirs, ours, rtol=_TOLERANCE, atol=_TOLERANCE))
