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

from rollouts.learner.discrete_losses import DiscreteSacActorLoss, DiscreteSoftValueLoss
from rollouts.learner.loss_learner import LossFound, LossLearner
from rollouts.learner.row_losses import (
    RowLoss,
    SacActorLoss,
    SoftValueLoss,
    TemperatureLoss,
    ValueLoss,
)

from ..shared.native_training import are_as_read, own_method
from .dqn_updates import (
    log_values,
    one_hot,
    transitions_of,
    why_not_choices,
    why_not_discrete,
    why_not_transitions,
)
from .learner_reader import STEP, LearnerKind, clip_of, log_norms, num_threads
from .off_policy_networks import (
    AllChoiceValues,
    ChoiceValues,
    ChosenValue,
    Critic,
    Critics,
    Logits,
    MeanAndScale,
    check_choices,
    check_critic,
)

Array = NDArray[Any]

_LEARNER = (
    *STEP,
    "_compute_loss_for_module_continuous",
    "_compute_loss_for_module_discrete",
)
_MODULE = (
    "compute_q_values",
    "forward_target",
    "forward_train",
    "get_train_action_dist_cls",
    "_forward_train",
    "_forward_train_continuous",
    "_forward_train_discrete",
    "_qf_forward_train_helper",
)
_OPTIMIZERS = ("qf", "qf_twin", "policy", "alpha")


class SacUpdates:
    """Gradient steps of a SAC module; all gradients are taken at the weights before the step."""

    def __init__(self, learner: Any, module_id: str) -> None:
        """Reads the networks. Raises SpecError where that is not possible."""
        module = learner.module[module_id]
        self._actions = (_Choices if _is_discrete(module) else _Numbers)(module)
        optimizers = dict(learner.get_optimizers_for_module(module_id))
        threads = num_threads(learner.config)
        self._learners = {
            name: LossLearner(loss, optimizers[name], threads)
            for name, loss in self._actions.losses().items()
        }
        temperature = TemperatureLoss(learner.curr_log_alpha[module_id])
        self._learners["alpha"] = LossLearner(temperature, optimizers["alpha"])
        self._actions.check()

    def is_as_read(self) -> bool:
        """As `NativeTrainer.is_as_read`."""
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
        parts["action"], now, following = self._actions.of_rows(parts["action"])
        found = {"qf": self._learners["qf"].compute({**parts, **following, "temperature": heat})}
        if "qf_twin" in self._learners:
            twin = {name: parts[name] for name in ("obs", "action", "weight")}
            twin["target"] = found["qf"].outputs[:, 3:4]
            found["qf_twin"] = self._learners["qf_twin"].compute(twin)
        rows = {"obs": parts["obs"], "temperature": heat, **now}
        found["policy"] = self._learners["policy"].compute(rows)
        # the mean log-probability or log-density of actions by the current policy
        excess = found["policy"].outputs[:, 1].mean() + target_entropy.item()
        found["alpha"] = self._learners["alpha"].compute({"excess": np.full((1, 1), excess)})
        return found

    def _log(
        self, learner: Any, module_id: str, found: dict[str, LossFound], log_alpha: Tensor
    ) -> None:
        values, log_probs = map(torch.from_numpy, self._actions.logged(found))
        critics = [found[name] for name in ("qf", "qf_twin") if name in found]
        offs = torch.from_numpy(np.stack([each.outputs[:, 1] for each in critics]))
        log_values(learner, module_id, found["qf"].loss, values, offs.abs().mean(0))
        alpha = log_alpha.exp()
        logged = {
            POLICY_LOSS_KEY: found["policy"].loss,
            "alpha_loss": found["alpha"].loss,
            "alpha_value": alpha[0],
            "log_alpha_value": alpha.log()[0],
            "target_entropy": learner.target_entropy[module_id],
            LOGPS_KEY: log_probs.mean(),
        }
        if "qf_twin" in found:
            logged[QF_TWIN_LOSS_KEY] = found["qf_twin"].loss
        learner.metrics.log_dict(logged, key=module_id, window=1)


class _Numbers:
    """Losses for actions in a Box, and the columns that they read."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def losses(self) -> dict[str, RowLoss]:
        """The losses of the critics and the actor, by optimiser."""
        module = self._module
        names = _critics_of(module)
        critics = [Critic(module, name) for name in names]
        targets = Critics(*(Critic(module, f"target_{name}") for name in names))
        actor = MeanAndScale(module)
        shapes = module.observation_space.shape, int(np.prod(module.action_space.shape))
        losses: dict[str, RowLoss] = {
            "qf": SoftValueLoss(
                actor, critics[0], targets, *shapes, huber=1.0, epsilon=0.0, weighted=True
            )
        }
        for critic in critics[1:]:
            losses["qf_twin"] = ValueLoss(critic, *shapes, huber=1.0, weighted=True)
        losses["policy"] = SacActorLoss(actor, Critics(*critics), *shapes, epsilon=0.0)
        return losses

    def check(self) -> None:
        """Raises SpecError where the module's values differ from those of the losses."""
        check_critic(self._module)

    def of_rows(self, action: Array) -> tuple[Array, dict[str, Array], dict[str, Array]]:
        """Actions, and the noise of the actions drawn for the current and the next observations."""
        # RLlib draws for the current observations first
        now, following = _noise(action), _noise(action)
        return action, {"noise": now}, {"noise": following}

    def logged(self, found: dict[str, LossFound]) -> tuple[Array, Array]:
        """The values and the log-densities whose statistics RLlib logs."""
        return found["policy"].outputs[:, 2], found["policy"].outputs[:, 1]


class _Choices:
    """Losses for discrete actions, and the columns that they read."""

    def __init__(self, module: Any) -> None:
        self._module, self._num_actions = module, int(module.action_space.n)

    def losses(self) -> dict[str, RowLoss]:
        """The losses of the critics and the actor, by optimiser."""
        module = self._module
        names = _critics_of(module)
        critics = [ChoiceValues(module, name) for name in names]
        targets = AllChoiceValues(*(ChoiceValues(module, f"target_{name}") for name in names))
        actor, shapes = Logits(module), (module.observation_space.shape, self._num_actions)
        twin = ValueLoss(ChosenValue(critics[1]), *shapes, huber=1.0, weighted=True)
        return {
            "qf": DiscreteSoftValueLoss(
                actor, critics[0], targets, *shapes, huber=1.0, weighted=True
            ),
            "qf_twin": twin,
            "policy": DiscreteSacActorLoss(actor, AllChoiceValues(*critics), *shapes),
        }

    def check(self) -> None:
        """Raises SpecError where the module's values differ from those of the losses."""
        check_choices(self._module)

    def of_rows(self, action: Array) -> tuple[Array, dict[str, Array], dict[str, Array]]:
        """One-hot actions; nothing is drawn."""
        return one_hot(action, self._num_actions), {}, {}

    def logged(self, found: dict[str, LossFound]) -> tuple[Array, Array]:
        """The first critic's values and the log-probabilities, of all actions."""
        return found["qf"].outputs[:, 4:], found["policy"].outputs[:, 2]


def _is_discrete(module: Any) -> bool:
    return isinstance(module.action_space, spaces.Discrete)


def _critics_of(module: Any) -> list[str]:
    return ["qf", "qf_twin"] if module.twin_q else ["qf"]


def _noise(action: Array) -> Array:
    """Draws noise as torch.distributions.Normal does."""
    noise = torch.normal(torch.zeros(action.shape, dtype=torch.float32), 1.0)
    return noise.numpy()


def _why_not(learner: Any, module_id: str, rows: Any) -> str:
    config = learner.config.get_config_for_module(module_id)
    module = learner.module[module_id]
    if own := own_method(module, DefaultSACTorchRLModule, _MODULE):
        return f"{type(module).__name__} has its own {own}"
    if why_not := _why_not_space(module):
        return why_not
    if bool(config.twin_q) != bool(module.twin_q):
        return "twin_q of the config is another than that of the module"
    wanted = [name for name in _OPTIMIZERS if module.twin_q or name != "qf_twin"]
    names = [name for name, _ in learner.get_optimizers_for_module(module_id)]
    if names != wanted:
        return f"the optimisers are {', '.join(names)}, expected {', '.join(wanted)}"
    # RLlib's first forward makes all parameters of the critics require a gradient
    critics = [network for network, _ in module.get_target_network_pairs()]
    if not all(each.requires_grad for network in critics for each in network.parameters()):
        return "a parameter of a critic requires no gradient"
    return why_not_transitions(module, rows) or _why_not_actions(module, rows[Columns.ACTIONS])


def _why_not_space(module: Any) -> str:
    space = module.action_space
    if _is_discrete(module):
        # RLlib's loss reads the second critic, and fails where there is none
        return why_not_discrete(space) or ("" if module.twin_q else "discrete actions need twin_q")
    if not isinstance(space, spaces.Box):
        return f"actions are of {space}, expected Box or Discrete"
    dist = module.get_train_action_dist_cls()
    # older releases of RLlib round densities near the bounds
    if dist is not TorchSquashedGaussian or not hasattr(dist, "_squashed_logp"):
        return f"actions are of a {dist.__name__}, expected TorchSquashedGaussian without rounding"
    return ""


def _why_not_actions(module: Any, actions: Tensor) -> str:
    if _is_discrete(module):
        return why_not_choices(actions, int(module.action_space.n))
    if actions.dtype == torch.float32 and actions.shape[1:] == module.action_space.shape:
        return ""
    return f"actions are {actions.dtype} of shape {tuple(actions.shape)}"


def _others(learner: Any, module_id: str) -> tuple[Any, ...]:
    # ids are compared: `==` of tensors would compare their numbers
    return learner.module[module_id].twin_q, id(learner.curr_log_alpha[module_id])


SAC_KIND: LearnerKind[SacUpdates] = LearnerKind(_LEARNER, _why_not, SacUpdates, _others)
