# SPDX-License-Identifier: Apache-2.0
"""`RolloutsPPOLearner`: RLlib's PPO learner, whose gradient steps native code makes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from ray.rllib.algorithms.ppo.ppo import (
    LEARNER_RESULTS_KL_KEY,
    LEARNER_RESULTS_VF_EXPLAINED_VAR_KEY,
    LEARNER_RESULTS_VF_LOSS_UNCLIPPED_KEY,
)
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.learner import ENTROPY_KEY, POLICY_LOSS_KEY, VF_LOSS_KEY
from ray.rllib.evaluation.postprocessing import Postprocessing
from ray.rllib.policy.sample_batch import MultiAgentBatch
from ray.rllib.utils.metrics import (
    ALL_MODULES,
    NUM_ENV_STEPS_TRAINED,
    NUM_ENV_STEPS_TRAINED_LIFETIME,
    NUM_MODULE_STEPS_TRAINED,
    NUM_MODULE_STEPS_TRAINED_LIFETIME,
)
from ray.rllib.utils.torch_utils import explained_variance
from torch import Tensor

from rollouts.errors import SpecError
from rollouts.learner.native_learner import Losses, NativeLearner, PpoLoss

from .learner_reader import NativeUpdates, clip_of, log_norms
from .minibatches import minibatch_order, plan_of
from .ppo_reader import PPO_KIND

Array = NDArray[Any]

_COUNTED = (
    (NUM_MODULE_STEPS_TRAINED, "sum"),
    (NUM_MODULE_STEPS_TRAINED_LIFETIME, "lifetime_sum"),
)
_ENV_STEPS = (
    (NUM_ENV_STEPS_TRAINED, "sum"),
    (NUM_ENV_STEPS_TRAINED_LIFETIME, "lifetime_sum"),
)


class RolloutsPPOLearner(NativeUpdates[NativeLearner], PPOTorchLearner):
    """RLlib's PPOTorchLearner with gradient steps in native code.

    `update` makes the steps that PPOTorchLearner makes, to rounding: the same minibatches, loss,
    clipping, optimiser, metrics and state, on the same parameters, without torch's dispatch.
    The notes of `NativeUpdates` apply.
    """

    _kind = PPO_KIND

    def __init__(self, **kwargs: Any) -> None:
        """Takes PPOTorchLearner's arguments."""
        super().__init__(**kwargs)
        self._all: MultiAgentBatch | None = None
        self._native: NativeLearner | None = None
        self._order = np.empty((0, 0), np.int64)

    def _create_iterator_if_necessary(self, **kwargs: Any) -> Iterable[MultiAgentBatch]:
        """RLlib's minibatches for torch; for native code only the last, which metrics describe.

        Raises:
          SpecError: train_engine is "native", and native code cannot train the learner.
        """
        minibatches: Any = super()._create_iterator_if_necessary(**kwargs)
        batch = getattr(minibatches, "_batch", None)
        self._native = self._choose(None if batch is None else batch.policy_batches)
        if self._native is None:
            return minibatches  # type: ignore[no-any-return]
        assert batch is not None
        (rows,) = batch.policy_batches.values()
        self._all = batch
        self._order = minibatch_order(len(rows), plan_of(minibatches, len(rows)))
        return [_minibatch(batch, self._order[-1])]

    def _update(self, batch: dict[str, Any]) -> tuple[Any, Any, Any]:
        if self._native is None:
            if not self.learner_engine:
                # a subclass makes the minibatches itself, so that no engine is chosen yet
                self._choose(None)
            return super()._update(batch)  # type: ignore[no-any-return]
        assert self._all is not None
        ((module_id, rows),) = self._all.policy_batches.items()
        made = self._native.num_steps
        try:
            total = self._train(self._native, module_id, rows)
        except SpecError as error:
            # torch sets gradients that are not finite to 0, warns and goes on
            self._give_up(error)
            made = self._native.num_steps - made
            for each in self._order[made:]:
                answer = super()._update(_minibatch(self._all, each).policy_batches)
            return answer  # type: ignore[no-any-return]
        self._compute_off_policyness(batch)
        return {}, {module_id: total}, {}

    def _train(self, native: NativeLearner, module_id: str, batch: Any) -> float:
        """Makes all steps, logs the metrics of the last one, and returns its loss."""
        config = self.config.get_config_for_module(module_id)
        loss = PpoLoss(
            clip_range=config.clip_param,
            value_weight=config.vf_loss_coeff,
            entropy_weight=float(
                self.entropy_coeff_schedulers_per_module[module_id].get_current_value()
            ),
            normalize_advantage=False,
            value_error_cap=config.vf_clip_param,
            kl_weight=float(self.curr_kl_coeffs_per_module[module_id])
            if config.use_kl_loss
            else None,
            refuses_overflow=True,
        )
        rows = rows_of(batch, has_kl=config.use_kl_loss)
        max_grad_norm, clip_by = clip_of(config)

        def train(order: Array) -> Losses:
            return native.update(
                rows,
                order.ravel(),
                minibatch=order.shape[1],
                loss=loss,
                max_grad_norm=max_grad_norm,
                clip_by=clip_by,
            )

        if len(self._order) > 1:
            train(self._order[:-1])
        last = self._order[-1]
        with torch.no_grad():
            # metrics are computed from the values before the step
            value = self.module[module_id].compute_values({Columns.OBS: batch[Columns.OBS][last]})
        target = batch[Postprocessing.VALUE_TARGETS][last]
        found = train(last[None])
        ((name, _),) = self.get_optimizers_for_module(module_id)
        log_norms(self, module_id, {name: float(found.grad_norm[-1])})
        return self._log_loss(module_id, loss, found, explained_variance(target, value))

    def _log_loss(self, module_id: str, loss: PpoLoss, found: Losses, explained: Tensor) -> float:
        """Logs the last minibatch's numbers under RLlib's names, and returns the whole loss."""
        policy_loss, value_loss = float(found.policy_loss[-1]), float(found.value_loss[-1])
        entropy, divergence = float(found.entropy[-1]), float(found.kl[-1])
        self.metrics.log_dict(
            {
                POLICY_LOSS_KEY: policy_loss,
                VF_LOSS_KEY: value_loss,
                LEARNER_RESULTS_VF_LOSS_UNCLIPPED_KEY: float(found.value_error[-1]),
                LEARNER_RESULTS_VF_EXPLAINED_VAR_KEY: float(explained),
                ENTROPY_KEY: entropy,
                LEARNER_RESULTS_KL_KEY: divergence,
            },
            key=module_id,
            window=1,
        )
        total = policy_loss + loss.value_weight * value_loss - loss.entropy_weight * entropy
        return total + (loss.kl_weight or 0.0) * divergence

    def _log_steps_trained_metrics(self, batch: MultiAgentBatch) -> None:
        super()._log_steps_trained_metrics(batch)
        others = len(self._order) - 1
        if self._native is None or others < 1:
            return
        # RLlib counts minibatches one by one; those of native code are counted together
        ((module_id, rows),) = batch.policy_batches.items()
        for name, reduce in _COUNTED:
            for of in (module_id, ALL_MODULES):
                self.metrics.log_value((of, name), others * len(rows), reduce=reduce)
        for name, reduce in _ENV_STEPS:
            self.metrics.log_value((ALL_MODULES, name), others * batch.env_steps(), reduce=reduce)

    def _log_metrics(self, batch: MultiAgentBatch) -> None:
        super()._log_metrics(batch)
        others = len(self._order) - 1
        if self._native is None or others < 1 or batch.env_steps() < 1:
            return
        (rows,) = batch.policy_batches.values()
        self._metrics_all_modules_num_env_steps_trained.inc(value=others * batch.env_steps())
        self._metrics_all_modules_num_module_steps_trained.inc(value=others * len(rows))


def rows_of(batch: Any, *, has_kl: bool) -> dict[str, Array]:
    """The columns of a train batch as NativeLearner takes them."""
    names = {
        "obs": Columns.OBS,
        "action": Columns.ACTIONS,
        "log_prob": Columns.ACTION_LOGP,
        "advantage": Postprocessing.ADVANTAGES,
        "target": Postprocessing.VALUE_TARGETS,
    }
    if has_kl:
        names["inputs"] = Columns.ACTION_DIST_INPUTS
    if Columns.LOSS_MASK in batch:
        names["counts"] = Columns.LOSS_MASK
    rows: dict[str, Array] = {name: batch[column].numpy() for name, column in names.items()}
    return rows


def _minibatch(batch: MultiAgentBatch, rows: Array) -> MultiAgentBatch:
    ((module_id, of),) = batch.policy_batches.items()
    index = torch.from_numpy(rows)
    columns = {name: column[index] for name, column in of.items() if isinstance(column, Tensor)}
    return MultiAgentBatch({module_id: type(of)(columns)}, len(batch))
