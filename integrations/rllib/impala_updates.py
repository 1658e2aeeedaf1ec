# SPDX-License-Identifier: Apache-2.0
"""Gradient steps of RLlib's IMPALA and APPO in native code."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from ray.rllib.algorithms.appo.appo import (
    LEARNER_RESULTS_CURR_KL_COEFF_KEY,
    LEARNER_RESULTS_KL_KEY,
    LEARNER_RESULTS_MEAN_IS_KEY,
    LEARNER_RESULTS_VAR_IS_KEY,
)
from ray.rllib.algorithms.impala.torch.vtrace_torch_v2 import make_time_major
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.learner import ENTROPY_KEY, POLICY_LOSS_KEY, VF_LOSS_KEY
from ray.rllib.core.rl_module.apis import TARGET_NETWORK_ACTION_DIST_INPUTS
from torch import Tensor

from rollouts.learner.native_learner import (
    Evaluated,
    Losses,
    PolicyGradientLoss,
    PpoLoss,
)
from rollouts.returns import Returns, vtrace

from .learner_reader import STEP, LearnerKind, clip_of, log_norms, why_not_rows
from .ppo_reader import make_learner, why_not_module

Array = NDArray[Any]

_NUMBERS = (Columns.ACTION_LOGP, Columns.REWARDS, Columns.TERMINATEDS, Columns.LOSS_MASK)
_COLUMNS = (Columns.OBS, Columns.ACTIONS, *_NUMBERS)


class _VtraceUpdates(ABC):
    """Gradient steps of a module whose advantages V-trace computes for each minibatch."""

    def __init__(self, learner: Any, module_id: str) -> None:
        """Reads the networks. Raises SpecError where that is not possible."""
        self._learner = make_learner(learner, module_id)
        ((self._name, _),) = learner.get_optimizers_for_module(module_id)

    def is_as_read(self) -> bool:
        """As `NativeTrainer.is_as_read`."""
        return self._learner.is_as_read()

    def train(self, learner: Any, module_id: str, batch: Any) -> float:
        """Makes a step, logs what RLlib's loss logs, and returns the loss.

        Raises:
          SpecError: A number is not finite: nothing has changed.
        """
        config = learner.config.get_config_for_module(module_id)
        rows = {
            "obs": batch[Columns.OBS].numpy(),
            "action": batch[Columns.ACTIONS].numpy(),
        }
        now = self._learner.evaluate(rows)
        rows |= {
            "log_prob": batch[Columns.ACTION_LOGP].numpy(),
            "counts": batch[Columns.LOSS_MASK].numpy(),
        }
        return self._train(learner, module_id, config, batch, rows, now)

    @abstractmethod
    def _train(
        self,
        learner: Any,
        module_id: str,
        config: Any,
        batch: Any,
        rows: dict[str, Array],
        now: Evaluated,
    ) -> float:
        """Makes a step on `rows`, to which it adds what its loss needs; returns the loss."""

    def _step(
        self, learner: Any, module_id: str, config: Any, rows: dict[str, Array], loss: Any
    ) -> Losses:
        """Makes a step on all rows, and logs the norm of its gradients."""
        max_grad_norm, clip_by = clip_of(config)
        count = len(rows["obs"])
        found = self._learner.update(
            rows,
            np.arange(count),
            minibatch=count,
            loss=loss,
            max_grad_norm=max_grad_norm,
            clip_by=clip_by,
        )
        log_norms(learner, module_id, {self._name: float(found.grad_norm[0])})
        return found


class ImpalaUpdates(_VtraceUpdates):
    """Gradient steps of IMPALA's loss."""

    def _train(
        self,
        learner: Any,
        module_id: str,
        config: Any,
        batch: Any,
        rows: dict[str, Array],
        now: Evaluated,
    ) -> float:
        advantage, target = _returns_of(config, batch, now.value, now.log_prob)
        entropy_weight = _entropy_weight(learner, module_id)
        loss = PolicyGradientLoss(
            value_weight=0.5 * config.vf_loss_coeff, entropy_weight=entropy_weight
        )
        rows |= {"advantage": advantage, "target": target}
        found = self._step(learner, module_id, config, rows, loss)
        count = int(rows["counts"].sum())
        policy_loss, value_loss = float(found.policy_loss[0]), 0.5 * float(found.value_loss[0])
        entropy = float(found.entropy[0])
        learner.metrics.log_dict(
            {
                "pi_loss": policy_loss * count,
                "mean_pi_loss": policy_loss,
                "vf_loss": value_loss * count,
                "mean_vf_loss": value_loss,
                ENTROPY_KEY: entropy,
            },
            key=module_id,
            window=1,
        )
        return policy_loss + 2.0 * loss.value_weight * value_loss - entropy_weight * entropy


class _OldPolicy(NamedTuple):
    """The target network's outputs for the actions of a batch.

    Attributes:
      inputs: Inputs of the distributions, (N, size).
      log_prob: Log-densities of the actions, (N,).
      ratio: Density by the policy that acted, divided by the target network's; at most 2, (N,).
    """

    inputs: Tensor
    log_prob: Tensor
    ratio: Tensor


class AppoUpdates(_VtraceUpdates):
    """Gradient steps of APPO's loss, which clips ratios and has a target network."""

    def _train(
        self,
        learner: Any,
        module_id: str,
        config: Any,
        batch: Any,
        rows: dict[str, Array],
        now: Evaluated,
    ) -> float:
        old = _old_policy(learner.module[module_id], batch)
        advantage, target = _returns_of(config, batch, now.value, old.log_prob.numpy())
        coefficient = learner.curr_kl_coeffs_per_module[module_id]
        loss = PpoLoss(
            clip_range=config.clip_param,
            value_weight=0.5 * config.vf_loss_coeff,
            entropy_weight=_entropy_weight(learner, module_id),
            normalize_advantage=False,
            kl_weight=float(coefficient) if config.use_kl_loss else None,
            refuses_overflow=True,
        )
        rows |= {
            "advantage": advantage,
            "target": target,
            # the target's ratio is part of log_prob, so that the loss multiplies its ratio by it
            "log_prob": (batch[Columns.ACTION_LOGP] - old.ratio.log()).numpy(),
        }
        if config.use_kl_loss:
            rows["inputs"] = old.inputs.numpy()
        found = self._step(learner, module_id, config, rows, loss)
        return _log_appo(learner, module_id, batch, loss, found, old)


def _log_appo(
    learner: Any, module_id: str, batch: Any, loss: PpoLoss, found: Losses, old: _OldPolicy
) -> float:
    """Logs an update's numbers under RLlib's names, and returns the whole loss."""
    policy_loss, value_loss = float(found.policy_loss[0]), 0.5 * float(found.value_loss[0])
    entropy, divergence = float(found.entropy[0]), float(found.kl[0])
    mask = batch[Columns.LOSS_MASK]
    mean = old.ratio[mask].mean()
    learner.metrics.log_dict(
        {
            POLICY_LOSS_KEY: policy_loss,
            VF_LOSS_KEY: value_loss,
            ENTROPY_KEY: entropy,
            LEARNER_RESULTS_KL_KEY: divergence,
            LEARNER_RESULTS_CURR_KL_COEFF_KEY: learner.curr_kl_coeffs_per_module[module_id],
            LEARNER_RESULTS_MEAN_IS_KEY: mean,
            LEARNER_RESULTS_VAR_IS_KEY: (old.ratio[mask] - mean).square().mean(),
        },
        key=module_id,
        window=1,
    )
    total = policy_loss + 2.0 * loss.value_weight * value_loss - loss.entropy_weight * entropy
    return total + (loss.kl_weight or 0.0) * divergence


def _old_policy(module: Any, batch: Any) -> _OldPolicy:
    with torch.no_grad():
        inputs = module.forward_target(batch)[TARGET_NETWORK_ACTION_DIST_INPUTS]
        dist = module.get_train_action_dist_cls().from_logits(inputs)
        log_prob = dist.logp(batch[Columns.ACTIONS])
        ratio = torch.clip(torch.exp(batch[Columns.ACTION_LOGP] - log_prob), 0.0, 2.0)
    return _OldPolicy(inputs, log_prob, ratio)


def _entropy_weight(learner: Any, module_id: str) -> float:
    return float(learner.entropy_coeff_schedulers_per_module[module_id].get_current_value())


def _returns_of(config: Any, batch: Any, value: Array, log_prob: Array) -> Returns:
    """V-trace's advantages and targets of a batch, (N,) each, by RLlib's rules.

    Rows are fragments, one after the other, and the last one may be shorter. A row outside the loss
    mask only holds the observation that follows the rows before it; no step begins there.

    Args:
      config: The module's config.
      batch: Rows of RLlib's.
      value: Values of the present policy, (N,).
      log_prob: Log-densities of the actions by the policy whose advantages are wanted, (N,).
    """
    length = config.get_rollout_fragment_length()

    def columns(rows: Any) -> Array:
        found: Array = make_time_major(torch.as_tensor(rows), trajectory_len=length).numpy()
        return np.ascontiguousarray(found)

    values = columns(value)
    # padding has a loss mask of 0, so that padded places count as ends
    ends = columns(batch[Columns.TERMINATEDS].bool()) | ~columns(batch[Columns.LOSS_MASK])
    rewards = columns(batch[Columns.REWARDS].float())
    behaviour, target = columns(batch[Columns.ACTION_LOGP]), columns(log_prob)
    last_value = np.roll(values[0], -1)
    _, targets = vtrace(
        rewards,
        values,
        behaviour_log_prob=behaviour,
        target_log_prob=target,
        terminated=ends,
        truncated=np.zeros_like(ends),
        bootstrap_value=np.zeros_like(values),
        last_value=last_value,
        gamma=config.gamma,
        rho_bar=_limit(config.vtrace_clip_rho_threshold),
        c_bar=1.0,
    )
    # the advantage's ratio has a limit of its own
    following = np.concatenate([targets[1:], last_value[None]])
    ratio = np.minimum(np.exp(target - behaviour), _limit(config.vtrace_clip_pg_rho_threshold))
    with np.errstate(invalid="ignore"):
        # numbers that are not finite are refused later, with the minibatch
        advantage = ratio * (rewards + config.gamma * ~ends * following - values)

    def rows(columns: Array) -> Array:
        return np.ascontiguousarray(columns.T, np.float32).reshape(-1)[: len(value)]

    return rows(advantage), rows(targets)


def _limit(threshold: float | None) -> float:
    return float("inf") if threshold is None else float(threshold)


def _why_not(learner: Any, module_id: str, rows: Any) -> str:
    if len(learner.get_optimizers_for_module(module_id)) != 1:
        return "the module has several optimisers, expected one"
    if why_not := why_not_module(learner.module[module_id]):
        return why_not
    if why_not := why_not_rows(rows, _COLUMNS, _NUMBERS):
        return why_not
    if rows[Columns.LOSS_MASK].dtype != torch.bool:
        return f"the loss mask is of {rows[Columns.LOSS_MASK].dtype}, expected torch.bool"
    return ""


IMPALA_KIND: LearnerKind[ImpalaUpdates] = LearnerKind(STEP, _why_not, ImpalaUpdates)
APPO_KIND: LearnerKind[AppoUpdates] = LearnerKind(STEP, _why_not, AppoUpdates)
