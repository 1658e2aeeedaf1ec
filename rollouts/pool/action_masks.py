# SPDX-License-Identifier: Apache-2.0
"""Which actions the observations of a native pool allow."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from rollouts import _native
from rollouts.batch import NUM_STEP_ARRAYS
from rollouts.errors import ProtocolError, SpecError

Array = npt.NDArray[Any]


class TellsMasks:
    """Keeps info["action_mask"] of the last batch; VectorEnv sets the attributes."""

    _pool: _native.CpuPool
    _info_names: tuple[str, ...]
    _last_masks: Array | None
    # how often somebody stepped, reset, received or set states, for collectors
    num_calls: int = 0

    @property
    def num_xla_calls(self) -> int:
        """How often functions of `xla` that JAX compiled have sent or received, for collectors."""
        return self._pool.num_xla_calls

    @property
    def info_names(self) -> tuple[str, ...]:
        """What infos have of the environments' own, such as "lives" or "action_mask"."""
        return self._info_names

    def action_masks(self) -> Array:
        """Which actions the observations of the last batch allow, by info["action_mask"].

        Where same-step autoreset began an episode, it is the mask of that, while the info of
        `recv_batch` is of the step that ended the one before.

        Returns:
          (B, A) bool, in the order of the batch that was received last.
        Raises:
          SpecError: The environments report none. ProtocolError: Nothing was received yet.
        """
        if "action_mask" not in self._info_names:
            raise SpecError(
                "the environments report no action_mask, but "
                f"{', '.join(self._info_names) or 'nothing'}"
            )
        if self._last_masks is None:
            raise ProtocolError("nothing was received yet; call reset() first")
        return self._last_masks

    def _note_masks(self, arrays: tuple[Array, ...]) -> None:
        if "action_mask" not in self._info_names:
            return
        columns = arrays[NUM_STEP_ARRAYS:]
        place, count = self._info_names.index("action_mask"), len(self._info_names)
        # a copy, because a view would keep the whole batch's buffer from being reused
        masks = columns[place] != 0
        # of the episodes that same-step autoreset began, where that is told
        for begun in columns[count + place : count + place + 1]:
            _, _, terminated, truncated = arrays[:4]
            ended = terminated | truncated
            masks[ended] = begun[ended] != 0
        self._last_masks = masks
