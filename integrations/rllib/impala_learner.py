# SPDX-License-Identifier: Apache-2.0
"""`RolloutsIMPALALearner` and `RolloutsAPPOLearner`: RLlib's learners with native steps."""

from __future__ import annotations

from typing import Any

from ray.rllib.algorithms.appo.torch.appo_torch_learner import APPOTorchLearner
from ray.rllib.algorithms.impala.torch.impala_torch_learner import IMPALATorchLearner

from .impala_updates import APPO_KIND, IMPALA_KIND
from .minibatch_updates import MinibatchUpdates


class RolloutsIMPALALearner(MinibatchUpdates[Any], IMPALATorchLearner):
    """RLlib's IMPALATorchLearner with V-trace and gradient steps in native code.

    An update makes the steps that IMPALATorchLearner makes, to rounding: the same minibatches,
    loss, clipping, optimiser, metrics and state, on the same parameters, in RLlib's own learner
    thread. The notes of `NativeUpdates` apply.
    """

    _kind = IMPALA_KIND


class RolloutsAPPOLearner(MinibatchUpdates[Any], APPOTorchLearner):
    """RLlib's APPOTorchLearner with V-trace and gradient steps in native code.

    torch computes the target network, which RLlib moves; the notes of
    `RolloutsIMPALALearner` apply.
    """

    _kind = APPO_KIND
