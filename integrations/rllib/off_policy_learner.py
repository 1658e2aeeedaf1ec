# SPDX-License-Identifier: Apache-2.0
"""`RolloutsDQNLearner` and `RolloutsSACLearner`: RLlib's learners with steps in native code."""

from __future__ import annotations

from typing import Any

import torch
from ray.rllib.algorithms.dqn.torch.dqn_torch_learner import DQNTorchLearner
from ray.rllib.algorithms.sac.torch.sac_torch_learner import SACTorchLearner

from rollouts.errors import SpecError

from .dqn_updates import DQN_KIND
from .learner_reader import NativeUpdates
from .sac_updates import SAC_KIND


class _OffPolicy(NativeUpdates[Any]):
    """A learner each of whose minibatches is one call of a trainer."""

    def _update(self, batch: dict[str, Any]) -> tuple[Any, Any, Any]:
        trainer = self._choose(batch)
        if trainer is None:
            return super()._update(batch)  # type: ignore[misc, no-any-return]
        ((module_id, rows),) = batch.items()
        state = torch.get_rng_state()
        try:
            total = trainer.train(self, module_id, rows)
        except SpecError as error:
            # torch sets gradients that are not finite to 0, says so and goes on
            self._give_up(error)
            torch.set_rng_state(state)
            return super()._update(batch)  # type: ignore[misc, no-any-return]
        self._compute_off_policyness(batch)  # type: ignore[attr-defined]
        return {}, {module_id: total}, {}


class RolloutsDQNLearner(_OffPolicy, DQNTorchLearner):
    """RLlib's DQNTorchLearner with gradient steps in native code.

    `update` makes the steps that DQNTorchLearner makes, to rounding: double and dueling networks,
    n steps, priorities, the same metrics and state, on the same parameters, without torch's
    dispatch. Targets are moved where RLlib does. Distributions of values (num_atoms) stay with
    torch; all that is said of `NativeUpdates` holds.
    """

    _kind = DQN_KIND


class RolloutsSACLearner(_OffPolicy, SACTorchLearner):
    """RLlib's SACTorchLearner with gradient steps in native code, of actions in a Box.

    `update` makes the steps that SACTorchLearner makes, to rounding and with torch's random
    numbers. Discrete actions stay with torch; all that is said of `RolloutsDQNLearner` holds.
    """

    _kind = SAC_KIND
