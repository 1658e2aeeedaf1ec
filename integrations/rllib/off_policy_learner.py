# SPDX-License-Identifier: Apache-2.0
"""`RolloutsDQNLearner` and `RolloutsSACLearner`: RLlib's learners with steps in native code."""

from __future__ import annotations

from typing import Any

from ray.rllib.algorithms.dqn.torch.dqn_torch_learner import DQNTorchLearner
from ray.rllib.algorithms.sac.torch.sac_torch_learner import SACTorchLearner

from .dqn_updates import DQN_KIND
from .minibatch_updates import MinibatchUpdates
from .sac_updates import SAC_KIND


class RolloutsDQNLearner(MinibatchUpdates[Any], DQNTorchLearner):
    """RLlib's DQNTorchLearner with gradient steps in native code.

    `update` makes the steps that DQNTorchLearner makes, to rounding: double and dueling networks,
    n steps, priorities, the same metrics and state, on the same parameters, without torch's
    dispatch. RLlib moves the target networks. Distributions of values (num_atoms) stay with
    torch; the notes of `NativeUpdates` apply.
    """

    _kind = DQN_KIND


class RolloutsSACLearner(MinibatchUpdates[Any], SACTorchLearner):
    """RLlib's SACTorchLearner with gradient steps in native code, for Box and discrete actions.

    `update` makes the steps that SACTorchLearner makes, to rounding and with torch's random
    numbers. The notes of `RolloutsDQNLearner` apply.
    """

    _kind = SAC_KIND
