# SPDX-License-Identifier: Apache-2.0
"""ActionMasks: passes `info["action_mask"]`, the allowed actions of each row, to the policy."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rollouts.batch import StepBatch
from rollouts.collecting.batched_env import BatchedEnv
from rollouts.errors import SpecError

NAME = "action_mask"


class ActionMasks:
    """Receives batches and keeps the allowed actions of each of the N environments.

    Attributes:
      now: (N, A) bool, for the last observation of each environment; A is the sum of nvec for
        MultiDiscrete actions.
    """

    def __init__(self, env: BatchedEnv, policy: Any) -> None:
        """Takes the environment that is collected from.

        Raises:
          SpecError: Actions are neither Discrete nor MultiDiscrete, the environments have no
            such info, or the policy takes no masks.
        """
        self._env = env
        space = env.single_action_space
        if isinstance(space, spaces.MultiDiscrete):
            size = int(np.sum(space.nvec))
        elif isinstance(space, spaces.Discrete):
            size = int(space.n)
        else:
            raise SpecError(
                f"mask_actions is for Discrete and MultiDiscrete actions, the environment has "
                f"{space}: leave it out"
            )
        can = getattr(getattr(env, "engine", None), "can", ())
        self._are_asked_for = "masks" in can
        # environments in Python report infos only when they step
        if "python" not in can and NAME not in getattr(env, "info_names", (NAME,)):
            raise SpecError(
                f'mask_actions needs info["{NAME}"], and the environments report '
                f"{', '.join(getattr(env, 'info_names', ())) or 'nothing'}: leave it out"
            )
        name = "act_rows" if hasattr(policy, "act_rows") else "act"
        if NAME not in inspect.signature(getattr(policy, name)).parameters:
            raise SpecError(
                f"mask_actions needs a policy whose {name} takes {NAME}, such as TorchPolicy; "
                f"that of a {type(policy).__name__} does not"
            )
        self.now: NDArray[np.bool_] = np.ones((env.num_envs, size), np.bool_)

    def recv_batch(self, timeout_s: float | None = None) -> StepBatch:
        """Returns the next batch, and keeps its masks."""
        step = self._env.recv_batch(timeout_s)
        self.now[step.env_id - self._env.env_id_offset] = self._of(step)
        return step

    def arrays(self, rollout_length: int) -> dict[str, NDArray[np.bool_]]:
        """Returns an array for `VectorEnv.collect`, which reads row 0 and writes the others."""
        masks = np.empty((rollout_length + 1, *self.now.shape), np.bool_)
        masks[0] = self.now
        return {NAME: masks}

    def take_over(self, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[np.bool_]]:
        """Continues from the masks that `collect` wrote; returns those (T, N, A) of the actions."""
        masks = arrays[NAME]
        self.now = masks[-1].copy()
        return {NAME: masks[:-1]}

    def _of(self, step: StepBatch) -> NDArray[np.bool_]:
        size = self.now.shape[1]
        env: Any = self._env
        masks: Any = env.action_masks() if self._are_asked_for else step.info.get(NAME)
        told = None if self._are_asked_for else step.info.get(f"_{NAME}")
        if masks is None or (told is not None and not told.all()):
            raise SpecError(f'mask_actions needs info["{NAME}"] of every reset and step')
        masks = np.asarray(masks)
        if masks.shape != (len(step.reward), size) or masks.dtype.kind not in "biu":
            raise SpecError(
                f'info["{NAME}"] has the shape {masks.shape[1:]} and dtype {masks.dtype}, expected '
                f"({size},) of int8 or bool: one for each action"
            )
        allowed: NDArray[np.bool_] = masks != 0
        return allowed
