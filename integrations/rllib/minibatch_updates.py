# SPDX-License-Identifier: Apache-2.0
"""Learners of RLlib that make each minibatch's step by one call of native code."""

from __future__ import annotations

from typing import Any

import torch

from rollouts.errors import SpecError

from ..shared.native_training import Made
from .learner_reader import NativeUpdates


class MinibatchUpdates(NativeUpdates[Made]):
    """Native updates of a learner that calls a trainer once for each minibatch."""

    def _update(self, batch: dict[str, Any]) -> tuple[Any, Any, Any]:
        trainer: Any = self._choose(batch)
        if trainer is None:
            return super()._update(batch)  # type: ignore[misc, no-any-return]
        ((module_id, rows),) = batch.items()
        state = torch.get_rng_state()
        try:
            total = trainer.train(self, module_id, rows)
        except SpecError as error:
            # torch sets gradients that are not finite to 0, warns and goes on
            self._give_up(error)
            torch.set_rng_state(state)
            return super()._update(batch)  # type: ignore[misc, no-any-return]
        self._compute_off_policyness(batch)  # type: ignore[attr-defined]
        return {}, {module_id: total}, {}
