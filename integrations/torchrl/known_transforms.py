# SPDX-License-Identifier: Apache-2.0
"""Transforms whose keys can be computed for a rollout that was made without them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from tensordict import TensorDictBase
from torch import Tensor
from torchrl.envs import Compose, DoubleToFloat, RewardSum, StepCounter, TransformedEnv

from rollouts.errors import SpecError

from .env import RolloutsEnv

Array = npt.NDArray[Any]

_RETURN, _STEPS = "episode_reward", "step_count"


class KnownTransforms(NamedTuple):
    """The transforms between a collector and a RolloutsEnv.

    Attributes:
      env: The environment whose steps are transformed.
      sums: Whether RewardSum() is there, which adds "episode_reward".
      counts: Whether StepCounter() is there, which adds "step_count".
      casts: Whether DoubleToFloat() is there, which makes float64 observations float32.
    """

    env: RolloutsEnv
    sums: bool = False
    counts: bool = False
    casts: bool = False

    def columns(
        self, arrays: Mapping[str, Array], first: TensorDictBase
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The keys of these transforms, at the root and in "next": tensors (N, T, 1).

        Args:
          arrays: episode_return, episode_length, terminated and truncated, (T, N).
          first: The collector's tensordict of the first step.
        """
        found: dict[str, Array] = {}
        if self.sums:
            found[_RETURN] = arrays["episode_return"].astype(np.float32)
        if self.counts:
            found[_STEPS] = arrays["episode_length"].astype(np.int64)
        ended = arrays["terminated"] | arrays["truncated"]
        root, following = {}, {}
        for key, after in found.items():
            before = np.empty_like(after)
            before[0] = first[key][:, 0].numpy()
            before[1:] = np.where(ended[:-1], 0, after[:-1])
            root[key], following[key] = (
                torch.from_numpy(each).T.contiguous().unsqueeze(-1) for each in (before, after)
            )
        return root, following

    def carried(self, following: Mapping[str, Tensor], ended: Tensor) -> dict[str, Tensor]:
        """The keys (N, 1) from which the next rollout goes on; those of `ended` (N,) begin anew."""
        return {
            key: after[:, -1].masked_fill(ended.unsqueeze(-1), 0)
            for key, after in following.items()
        }


def known_transforms(env: Any) -> KnownTransforms:
    """Reads the transforms of an environment.

    Raises:
      SpecError: It is no RolloutsEnv, or one of its transforms is unknown.
    """
    transforms: list[Any] = []
    while type(env) is TransformedEnv:
        outer = env.transform
        # transforms of the outer environment come last
        transforms = [*(outer if isinstance(outer, Compose) else [outer]), *transforms]
        env = env.base_env
    if not isinstance(env, RolloutsEnv):
        raise SpecError(f"the environment is a {type(env).__name__}, expected a RolloutsEnv")
    names = {_name_of(each, env) for each in transforms}
    return KnownTransforms(env, "sums" in names, "counts" in names, "casts" in names)


def _name_of(transform: Any, env: RolloutsEnv) -> str:
    kind = type(transform)
    if kind is RewardSum and (transform.in_keys, transform.out_keys) == (["reward"], [_RETURN]):
        return "sums"
    if kind is StepCounter and _only_counts(transform):
        return "counts"
    if kind is DoubleToFloat and _casts_observations(transform, env):
        return "casts"
    raise SpecError(
        f"the environment has a {kind.__name__}, expected RewardSum(), StepCounter() or "
        "DoubleToFloat() with keys of their own at most"
    )


def _only_counts(transform: Any) -> bool:
    return transform.max_steps is None and transform.step_count_key == _STEPS


def _casts_observations(transform: Any, env: RolloutsEnv) -> bool:
    """Tells if the transform changes float64 observations and nothing else."""
    dtypes = [env.observation_spec["observation"].dtype, env.action_spec.dtype]
    in_keys, inverse = transform.in_keys, transform.in_keys_inv
    return (
        dtypes[0] is torch.float64
        and dtypes[1] is not torch.float64
        and in_keys in (None, ["observation"])
        and not inverse
    )
