# SPDX-License-Identifier: Apache-2.0
"""Reads a PPO learner for native code, and finds the cases that are left to torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from ray.rllib.algorithms.ppo.torch.default_ppo_torch_rl_module import DefaultPPOTorchRLModule
from ray.rllib.core.columns import Columns
from ray.rllib.core.distribution.distribution import Distribution
from ray.rllib.core.distribution.torch.torch_distribution import TorchMultiCategorical
from ray.rllib.evaluation.postprocessing import Postprocessing
from torch import Tensor

from rollouts.learner.native_learner import NativeLearner
from rollouts.policies.foreign import Wrapped
from rollouts.policies.native import NativePolicy
from rollouts.policies.native_heads import head_of, nvec_of

from ..shared.native_training import own_method
from .learner_reader import STEP, LearnerKind, num_threads, why_not_rows
from .native import HEADS

# methods of a learner that handle minibatches; `STEP` has the methods of one step
_MINIBATCHES = (
    "_compute_off_policyness",
    "_create_iterator_if_necessary",
    "_log_metrics",
    "_log_steps_trained_metrics",
    "_set_slicing_by_batch_id",
)
_MODULE = (
    "compute_values",
    "forward_train",
    "get_exploration_action_dist_cls",
    "get_train_action_dist_cls",
    "_forward",
    "_forward_exploration",
    "_forward_train",
)
_COLUMNS = (
    Columns.OBS,
    Columns.ACTIONS,
    Columns.ACTION_LOGP,
    Columns.ACTION_DIST_INPUTS,
    Postprocessing.ADVANTAGES,
    Postprocessing.VALUE_TARGETS,
)
# columns that have one number for each row
_NUMBERS = (
    Columns.ACTION_LOGP,
    Columns.LOSS_MASK,
    Postprocessing.ADVANTAGES,
    Postprocessing.VALUE_TARGETS,
)


def make_learner(learner: Any, module_id: str) -> NativeLearner:
    """Reads an actor-critic module and its optimiser. Raises SpecError where it cannot be read."""
    module = learner.module[module_id]
    policy = NativePolicy.from_torch(
        _Trained(module), module.action_space, module.observation_space
    )
    ((_, optimizer),) = learner.get_optimizers_for_module(module_id)
    return NativeLearner(policy, optimizer, num_threads(learner.config))


class _Trained(Wrapped):
    """Returns (logits, value) or (mean, log_std, value) as the loss takes them."""

    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        batch = {Columns.OBS: obs}
        output = self.module._forward_train(batch)
        value = self.module.compute_values(batch, embeddings=output.get(Columns.EMBEDDINGS))
        inputs = output[Columns.ACTION_DIST_INPUTS]
        is_box = isinstance(self.module.action_space, spaces.Box)
        return (*inputs.chunk(2, -1), value) if is_box else (inputs, value)


def _why_not(learner: Any, module_id: str, rows: Any) -> str:
    config = learner.config.get_config_for_module(module_id)
    if not config.use_critic:
        return "use_critic=False, without which native code has no loss"
    if len(learner.get_optimizers_for_module(module_id)) != 1:
        return "the module has several optimisers, expected one"
    return why_not_module(learner.module[module_id]) or _why_not_batch(rows)


def why_not_module(module: Any) -> str:
    """Names what native code cannot train of an actor-critic module; "" for nothing."""
    if own := own_method(module, DefaultPPOTorchRLModule, _MODULE):
        return f"{type(module).__name__} has its own {own}"
    if not isinstance(module.action_space, spaces.Discrete | spaces.Box | spaces.MultiDiscrete):
        return f"actions are of {module.action_space}, expected Discrete, MultiDiscrete or Box"
    if np.any(getattr(module.action_space, "start", 0)):
        return f"actions are of {module.action_space}, expected numbers from 0 on"
    expected = head_of(module.action_space).kind
    for dist in (module.get_train_action_dist_cls(), module.get_exploration_action_dist_cls()):
        if _head_of(dist, module.action_space) != expected:
            return f"actions are drawn from {dist.__name__}, expected RLlib's {expected}"
    return ""


def _head_of(dist: Any, space: Any) -> str | None:
    """Native code's name of one of RLlib's distributions; None where it has none."""
    # RLlib makes a class of distributions for each space
    is_made = dist.__module__ == Distribution.__module__
    if is_made and dist.__bases__ == (TorchMultiCategorical,):
        sizes = np.ravel(dist._merge_kwargs().get("input_lens", ()))
        return "multi_categorical" if list(sizes) == nvec_of(space) else None
    return HEADS.get(dist)


def _why_not_batch(rows: Any) -> str:
    if why_not := why_not_rows(rows, _COLUMNS, _NUMBERS):
        return why_not
    if Columns.LOSS_MASK in rows and rows[Columns.LOSS_MASK].dtype != torch.bool:
        return f"the loss mask is of {rows[Columns.LOSS_MASK].dtype}, expected torch.bool"
    return ""


PPO_KIND = LearnerKind((*STEP, *_MINIBATCHES), _why_not, make_learner)
