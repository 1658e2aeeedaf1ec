# SPDX-License-Identifier: Apache-2.0
"""Masks of allowed actions where RLlib's modules look for them: in the observation."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorWrapper
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from rollouts.errors import SpecError

Array = NDArray[Any]

# as in RLlib's ActionMaskingRLModule
MASK, OBS = "action_mask", "observations"


class WithActionMasks(VectorWrapper):
    """Gives observations "action_mask" (N, A) float32, 1 for allowed actions, and "observations".

    A is the number of actions; of MultiDiscrete actions, the sum over all parts. The masks are
    those of `VectorEnv.action_masks`.
    """

    def __init__(self, env: Any) -> None:
        """Takes a vector environment of this package.

        Raises:
          SpecError: The environment reports no masks.
        """
        super().__init__(env)
        if MASK not in env.info_names:
            raise SpecError(
                f"action_masks=True for environments whose infos are {list(env.info_names)}, "
                f"expected {MASK!r} among them: leave action_masks out"
            )
        space = env.single_action_space
        count = int(space.n if isinstance(space, spaces.Discrete) else space.nvec.sum())
        single = spaces.Dict(
            {MASK: spaces.Box(0.0, 1.0, (count,), np.float32), OBS: env.single_observation_space}
        )
        self.single_observation_space = single
        self.observation_space = batch_space(single, env.num_envs)

    def reset(self, **kwargs: Any) -> Any:
        """As `VectorEnv.reset`."""
        obs, info = self.env.reset(**kwargs)
        return self._with_masks(obs), info

    def step(self, actions: Any) -> Any:
        """As `VectorEnv.step`."""
        obs, *rest = self.env.step(actions)
        reward, terminated, truncated, info = rest
        return self._with_masks(obs), reward, terminated, truncated, info

    def _with_masks(self, obs: Array) -> dict[str, Array]:
        masks = self.env.action_masks()  # type: ignore[attr-defined]
        return {MASK: masks.astype(np.float32), OBS: obs}
