# SPDX-License-Identifier: Apache-2.0
"""Gradient steps of RLlib's DQN in native code."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from ray.rllib.algorithms.dqn.dqn_learner import (
    QF_LOSS_KEY,
    QF_MAX_KEY,
    QF_MEAN_KEY,
    QF_MIN_KEY,
    TD_ERROR_MEAN_KEY,
)
from ray.rllib.algorithms.dqn.torch.default_dqn_torch_rl_module import DefaultDQNTorchRLModule
from ray.rllib.core.columns import Columns
from ray.rllib.utils.metrics import TD_ERROR_KEY

from rollouts.learner.loss_learner import LossLearner
from rollouts.learner.row_losses import DqnLoss

from ..shared.native_training import are_as_read, own_method
from .learner_reader import (
    STEP,
    LearnerKind,
    clip_of,
    log_norms,
    num_threads,
    why_not_rows,
)
from .off_policy_networks import QValues, check_values

Array = NDArray[Any]

_MODULE = (
    "compute_q_values",
    "forward_target",
    "forward_train",
    "_forward_train",
    "_qf_forward_helper",
)
NUMBERS = (Columns.REWARDS, Columns.TERMINATEDS, "n_step", "weights")
COLUMNS = (Columns.OBS, Columns.NEXT_OBS, Columns.ACTIONS, *NUMBERS)


class DqnUpdates:
    """Gradient steps of a DQN module."""

    def __init__(self, learner: Any, module_id: str) -> None:
        """Reads the networks. Raises SpecError where that is not possible."""
        module = learner.module[module_id]
        config = learner.config.get_config_for_module(module_id)
        self._num_actions = int(module.action_space.n)
        loss = DqnLoss(
            QValues(module),
            QValues(module, is_target=True),
            module.observation_space.shape,
            self._num_actions,
            double=config.double_q,
            weighted=True,
            huber=1.0 if config.td_error_loss_fn == "huber" else None,
        )
        ((self._name, optimizer),) = learner.get_optimizers_for_module(module_id)
        self._learner = LossLearner(loss, optimizer, num_threads(learner.config))
        check_values(module)

    def is_as_read(self) -> bool:
        """As `NativeTrainer.is_as_read`."""
        return are_as_read(self._learner)

    def train(self, learner: Any, module_id: str, batch: Any) -> float:
        """Makes a step, logs what RLlib's loss logs, and returns the loss.

        Raises:
          SpecError: A number is not finite: nothing has changed.
        """
        config = learner.config.get_config_for_module(module_id)
        max_grad_norm, clip_by = clip_of(config)
        parts = transitions_of(batch, config.gamma)
        parts["action"] = one_hot(parts["action"], self._num_actions)
        found = self._learner.step(parts, max_grad_norm=max_grad_norm, clip_by=clip_by)
        _, off, value = torch.from_numpy(found.outputs).unbind(1)
        log_norms(learner, module_id, {self._name: found.grad_norm})
        log_values(learner, module_id, found.loss, value, off.abs())
        return found.loss


def transitions_of(batch: Any, gamma: float) -> dict[str, Array]:
    """The columns of a batch that all losses need, as losses take them."""
    goes_on = 1.0 - batch[Columns.TERMINATEDS].float()
    return {
        "obs": batch[Columns.OBS].numpy(),
        "action": batch[Columns.ACTIONS].numpy(),
        "reward": batch[Columns.REWARDS].numpy(),
        "discount": (gamma ** batch["n_step"] * goes_on).numpy(),
        "next_obs": batch[Columns.NEXT_OBS].numpy(),
        "weight": batch["weights"].numpy(),
    }


def one_hot(actions: Array, num_actions: int) -> Array:
    """Discrete actions (B,) as losses take them: one-hot, (B, num_actions)."""
    return np.eye(num_actions, dtype=np.float32)[actions.astype(np.int64)]


def log_values(
    learner: Any, module_id: str, loss: float, value: torch.Tensor, error: torch.Tensor
) -> None:
    """Logs a critic's loss, its values and the errors that a replay's priorities are made of."""
    learner.metrics.log_value((module_id, TD_ERROR_KEY), error, reduce="item_series")
    learner.metrics.log_dict(
        {
            QF_LOSS_KEY: loss,
            QF_MEAN_KEY: value.mean(),
            QF_MAX_KEY: value.max(),
            QF_MIN_KEY: value.min(),
            TD_ERROR_MEAN_KEY: error.mean(),
        },
        key=module_id,
        window=1,
    )


def why_not_transitions(module: Any, rows: Any) -> str:
    """Names what native code cannot train in observations and rows; "" for nothing."""
    space = module.observation_space
    if not isinstance(space, spaces.Box):
        return f"observations are of {space}, expected Box"
    if why_not := why_not_rows(rows, COLUMNS, NUMBERS):
        return why_not
    if Columns.LOSS_MASK in rows:
        return "the batch has a loss mask"
    for name in (Columns.OBS, Columns.NEXT_OBS):
        obs = rows[name]
        if obs.dtype != torch.float32 or obs.shape[1:] != space.shape:
            return (
                f"{name!r} is {obs.dtype} of shape {tuple(obs.shape)}, expected torch.float32 of "
                f"shape (B, {', '.join(map(str, space.shape))})"
            )
    return ""


def _why_not(learner: Any, module_id: str, rows: Any) -> str:
    config = learner.config.get_config_for_module(module_id)
    module, optimizers = learner.module[module_id], learner.get_optimizers_for_module(module_id)
    if len(optimizers) != 1:
        return "the module has several optimisers, expected one"
    if own := own_method(module, DefaultDQNTorchRLModule, _MODULE):
        return f"{type(module).__name__} has its own {own}"
    if max(config.num_atoms, module.num_atoms) > 1:
        return f"num_atoms={module.num_atoms} is of distributions of values"
    if bool(config.double_q) != bool(module.uses_double_q):
        return "double_q of the config is another than that of the module"
    if getattr(config, "burn_in_len", 0):
        return f"burn_in_len={config.burn_in_len} is of sequences"
    return (
        why_not_discrete(module.action_space)
        or why_not_transitions(module, rows)
        or (why_not_choices(rows[Columns.ACTIONS], int(module.action_space.n)))
    )


def why_not_discrete(space: Any) -> str:
    """Names what native code cannot train in a space of discrete actions; "" for nothing."""
    if isinstance(space, spaces.Discrete) and not space.start:
        return ""
    return f"actions are of {space}, expected Discrete with numbers from 0 on"


def why_not_choices(actions: Any, num_actions: int) -> str:
    """Names what native code cannot train in discrete actions; "" for nothing."""
    if actions.dim() != 1:
        return f"actions have shape {tuple(actions.shape)}, expected one number for each row"
    if not len(actions) or actions.min() < 0 or actions.max() >= num_actions:
        return f"an action is not within 0 and {num_actions - 1}"
    return ""


def _others(learner: Any, module_id: str) -> tuple[Any, ...]:
    config, module = learner.config.get_config_for_module(module_id), learner.module[module_id]
    return config.double_q, config.td_error_loss_fn, module.uses_dueling


DQN_KIND: LearnerKind[DqnUpdates] = LearnerKind(STEP, _why_not, DqnUpdates, _others)
