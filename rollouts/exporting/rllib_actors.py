# SPDX-License-Identifier: Apache-2.0
"""Actors of RLlib: the modules of DQN and SAC, which have no value function of states.

As in `rollouts.policies.foreign`, nothing of the library is imported, and its own methods are
called.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from rollouts.errors import SpecError
from rollouts.exporting.foreign_actors import GREEDY, ForeignActor, check_own, scale_to
from rollouts.policies.foreign import Wrapped, class_of
from rollouts.support.extras import needs

with needs("torch", "rollouts.exporting.rllib_actors"):
    from torch import Tensor

    from rollouts.policy import SquashedGaussianHead, make_action_head

_ALGORITHMS = "ray.rllib.algorithms."
_DQN = f"{_ALGORITHMS}dqn.torch.default_dqn_torch_rl_module.DefaultDQNTorchRLModule"
_SAC = f"{_ALGORITHMS}sac.torch.default_sac_torch_rl_module.DefaultSACTorchRLModule"
# methods that determine a module's actions
_OF_DQN = ("_forward_inference", "compute_q_values", "_qf_forward_helper")
_OF_SAC = ("_forward_inference", "_forward_exploration")


def rllib_actor(
    module: Any, action_space: gymnasium.Space[Any], *, noise: bool
) -> ForeignActor | None:
    """Returns the actor of a module; None if it is not of DQN or SAC.

    Args:
      module: A torch module.
      action_space: Space of the pool's actions.
      noise: Whether it draws actions, as in exploration.

    Raises:
      SpecError: The module has memory, or overrides methods that determine actions.
    """
    for name, methods in ((_DQN, _OF_DQN), (_SAC, _OF_SAC)):
        if (base := class_of(module, name)) is None:
            continue
        check_own(module, base, methods)
        if module.is_stateful():
            raise SpecError(
                f"the {type(module).__name__} has memory, which RLlib's loop carries: expected one "
                "without, or a module with initial_state"
            )
        if name == _DQN:
            head = make_action_head(action_space)
            return ForeignActor(_Values(module), head, why_no_noise=GREEDY)
        return _of_sac(module, action_space, noise=noise)
    return None


def _of_sac(module: Any, space: gymnasium.Space[Any], *, noise: bool) -> ForeignActor:
    if not isinstance(space, gymnasium.spaces.Box):
        return ForeignActor(_Logits(module), make_action_head(space))
    kind = module.get_inference_action_dist_cls().__name__
    if kind != "TorchSquashedGaussian":
        raise SpecError(
            f"the RLModule's actions are of a {kind}, expected a TorchSquashedGaussian as SAC's "
            "catalog has it"
        )
    if noise:
        return ForeignActor(_Gaussian(module), SquashedGaussianHead.of(space))
    # RLlib's connectors clip the module's actions to [-1, 1] and scale them
    bound = np.ones(space.shape, np.float32)
    scale, offset = scale_to(space)
    return ForeignActor(_Exact(module), make_action_head(space), -bound, bound, scale, offset)


class _Values(Wrapped):
    """DQN: the values of actions."""

    def forward(self, obs: Tensor) -> tuple[Any, ...]:
        module = self.module
        if module.uses_dueling and module.num_atoms == 1:
            # equal to RLlib's formula for finite numbers; exported graphs have no mean that ignores
            # others
            features = module.encoder({"obs": obs})["encoder_out"]
            advantages = module.af(features)
            centred = advantages - advantages.mean(-1, keepdim=True)
            return centred + module.vf(features), None
        return module.compute_q_values({"obs": obs})["qf_preds"], None


class _Logits(Wrapped):
    """SAC of discrete actions."""

    def forward(self, obs: Tensor) -> tuple[Any, ...]:
        return self.module._forward_inference({"obs": obs})["action_dist_inputs"], None


class _Gaussian(Wrapped):
    """SAC with exploration: the tanh of a Gaussian."""

    def forward(self, obs: Tensor) -> tuple[Any, ...]:
        inputs = self.module._forward_exploration({"obs": obs})["action_dist_inputs"]
        normal = self.module.get_exploration_action_dist_cls().from_logits(inputs)._dist
        return normal.mean, normal.stddev.log(), None


class _Exact(Wrapped):
    """SAC without exploration, with the action that its distribution then gives."""

    def forward(self, obs: Tensor) -> tuple[Any, ...]:
        inputs = self.module._forward_inference({"obs": obs})["action_dist_inputs"]
        drawn = self.module.get_inference_action_dist_cls().from_logits(inputs)
        return drawn.to_deterministic().sample(), None
