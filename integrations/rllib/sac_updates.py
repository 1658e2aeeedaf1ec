# SPDX-License-Identifier: Apache-2.0
"""Gradient steps of RLlib's SAC in native code."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from ray.rllib.algorithms.sac.sac_learner import LOGPS_KEY, QF_TWIN_LOSS_KEY
from ray.rllib.algorithms.sac.torch.default_sac_torch_rl_module import DefaultSACTorchRLModule
from ray.rllib.core.columns import Columns
from ray.rllib.core.distribution.torch.torch_distribution import TorchSquashedGaussian
from ray.rllib.core.learner.learner import POLICY_LOSS_KEY
from torch import Tensor

from rollouts.learner.loss_learner import LossFound, LossLearner
from rollouts.learner.row_losses import SacActorLoss, SoftValueLoss, TemperatureLoss, ValueLoss

from ..shared.native_training import are_as_read, own_method
from .dqn_updates import log_values, transitions_of, why_not_transitions
from .learner_reader import STEP, LearnerKind, clip_of, log_norms, num_threads
from .off_policy_networks import Critic, Critics, MeanAndScale, check_critic

Array = NDArray[Any]

_LEARNER = (*STEP, "_compute_loss_for_module_continuous")
_MODULE = (
    "compute_q_values",
    "forward_target",
    "forward_train",
    "get_train_action_dist_cls",
    "_forward_train",
    "_forward_train_continuous",
    "_qf_forward_train_helper",
)
_OPTIMIZERS = ("qf", "qf_twin", "policy", "alpha")


class SacUpdates:
    """Gradient steps of a module of SAC's: all gradients are of the weights before."""

    def __init__(self, learner: Any, module_id: str) -> None:
        """Reads the networks. Raises SpecError where that is not possible."""
        module = learner.module[module_id]
        names = ["qf", "qf_twin"] if module.twin_q else ["qf"]
        critics = [Critic(module, name) for name in names]
        targets = Critics(*(Critic(module, f"target_{name}") for name in names))
        actor = MeanAndScale(module)
        shapes = module.observation_space.shape, int(np.prod(module.action_space.shape))
        optimizers = dict(learner.get_optimizers_for_module(module_id))
        threads = num_threads(learner.config)
        first = SoftValueLoss(
            actor, critics[0], targets, *shapes, huber=1.0, epsilon=0.0, weighted=True
        )
        self._qf = LossLearner(first, optimizers["qf"], threads)
        self._learners = {"qf": self._qf}
        for critic in critics[1:]:
            twin = ValueLoss(critic, *shapes, huber=1.0, weighted=True)
            self._learners["qf_twin"] = LossLearner(twin, optimizers["qf_twin"], threads)
        loss = SacActorLoss(actor, Critics(*critics), *shapes, epsilon=0.0)
        self._learners["policy"] = LossLearner(loss, optimizers["policy"], threads)
        temperature = TemperatureLoss(learner.curr_log_alpha[module_id])
        self._learners["alpha"] = LossLearner(temperature, optimizers["alpha"])
        check_critic(module)

    def is_as_read(self) -> bool:
        """As of `NativeTrainer`."""
        return are_as_read(*self._learners.values())

    def train(self, learner: Any, module_id: str, batch: Any) -> Tensor:
        """Makes a step of each optimiser, logs what RLlib's loss logs, and returns the loss.

        Raises:
          SpecError: A number is not finite: nothing has changed.
        """
        config = learner.config.get_config_for_module(module_id)
        log_alpha = learner.curr_log_alpha[module_id].detach().clone()
        entropy = learner.target_entropy[module_id]
        found = self._compute(transitions_of(batch, config.gamma), log_alpha, entropy)
        max_grad_norm, clip_by = clip_of(config)
        for each in self._learners.values():
            each.apply(max_grad_norm=max_grad_norm, clip_by=clip_by)
        log_norms(learner, module_id, {name: each.grad_norm for name, each in found.items()})
        self._log(learner, module_id, found, log_alpha)
        return torch.tensor(sum(each.loss for each in found.values()))

    def _compute(
        self, parts: dict[str, Array], log_alpha: Tensor, target_entropy: Tensor
    ) -> dict[str, LossFound]:
        heat = np.full((len(parts["obs"]), 1), log_alpha.exp().item(), np.float32)
        # RLlib draws for these observations first
        noise, next_noise = _noise(parts["action"]), _noise(parts["action"])
        found = {"qf": self._qf.compute({**parts, "noise": next_noise, "temperature": heat})}
        if "qf_twin" in self._learners:
            twin = {name: parts[name] for name in ("obs", "action", "weight")}
            twin["target"] = found["qf"].outputs[:, 3:]
            found["qf_twin"] = self._learners["qf_twin"].compute(twin)
        rows = {"obs": parts["obs"], "noise": noise, "temperature": heat}
        found["policy"] = self._learners["policy"].compute(rows)
        excess = found["policy"].outputs[:, 1].mean() + target_entropy.item()
        found["alpha"] = self._learners["alpha"].compute({"excess": np.full((1, 1), excess)})
        return found

    def _log(
        self, learner: Any, module_id: str, found: dict[str, LossFound], log_alpha: Tensor
    ) -> None:
        _, log_prob, value = torch.from_numpy(found["policy"].outputs).unbind(1)
        critics = [found[name] for name in ("qf", "qf_twin") if name in found]
        offs = torch.from_numpy(np.stack([each.outputs[:, 1] for each in critics]))
        log_values(learner, module_id, found["qf"].loss, value, offs.abs().mean(0))
        alpha = log_alpha.exp()
        logged = {
            POLICY_LOSS_KEY: found["policy"].loss,
            "alpha_loss": found["alpha"].loss,
            "alpha_value": alpha[0],
            "log_alpha_value": alpha.log()[0],
            "target_entropy": learner.target_entropy[module_id],
            LOGPS_KEY: log_prob.mean(),
        }
        if "qf_twin" in found:
            logged[QF_TWIN_LOSS_KEY] = found["qf_twin"].loss
        learner.metrics.log_dict(logged, key=module_id, window=1)


def _noise(action: Array) -> Array:
    """As torch.distributions.Normal draws it."""
    noise = torch.normal(torch.zeros(action.shape, dtype=torch.float32), 1.0)
    return noise.numpy()


def _why_not(learner: Any, module_id: str, rows: Any) -> str:
    config = learner.config.get_config_for_module(module_id)
    module = learner.module[module_id]
    if own := own_method(module, DefaultSACTorchRLModule, _MODULE):
        return f"{type(module).__name__} has its own {own}"
    if not isinstance(module.action_space, spaces.Box):
        return f"actions are of {module.action_space}, expected Box"
    dist = module.get_train_action_dist_cls()
    # older releases of RLlib round densities near the bounds
    if dist is not TorchSquashedGaussian or not hasattr(dist, "_squashed_logp"):
        return f"actions are of a {dist.__name__}, expected TorchSquashedGaussian without rounding"
    if bool(config.twin_q) != bool(module.twin_q):
        return "twin_q of the config is another than that of the module"
    wanted = [name for name in _OPTIMIZERS if module.twin_q or name != "qf_twin"]
    names = [name for name, _ in learner.get_optimizers_for_module(module_id)]
    if names != wanted:
        return f"the optimisers are {', '.join(names)}, expected {', '.join(wanted)}"
    # RLlib's first forward makes all of them require one
    critics = [network for network, _ in module.get_target_network_pairs()]
    if not all(each.requires_grad for network in critics for each in network.parameters()):
        return "a parameter of a critic requires no gradient"
    return why_not_transitions(module, rows) or _why_not_actions(module, rows[Columns.ACTIONS])


def _why_not_actions(module: Any, actions: Tensor) -> str:
    if actions.dtype == torch.float32 and actions.shape[1:] == module.action_space.shape:
        return ""
    return f"actions are {actions.dtype} of shape {tuple(actions.shape)}"


def _others(learner: Any, module_id: str) -> tuple[Any, ...]:
    # comparing tensors would compare their numbers
    return learner.module[module_id].twin_q, id(learner.curr_log_alpha[module_id])


SAC_KIND: LearnerKind[SacUpdates] = LearnerKind(_LEARNER, _why_not, SacUpdates, _others)
