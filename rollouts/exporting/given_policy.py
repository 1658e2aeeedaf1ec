# SPDX-License-Identifier: Apache-2.0
"""The network, the head and the surroundings of a policy, whichever library's it is."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from torch import nn

from rollouts.errors import SpecError
from rollouts.exporting.deployment import Surroundings
from rollouts.policies.foreign import Unwrapped, Wrapped, as_actor_critic, is_of
from rollouts.policies.native import NativePolicy
from rollouts.policy import SquashedGaussianHead, make_action_head

_SB3 = "stable_baselines3.common.policies.BasePolicy"
_SB3_ACTOR_CRITIC = "stable_baselines3.common.policies.ActorCriticPolicy"


def network_of(
    policy: Any, action_space: gymnasium.Space[Any], *, noise: bool
) -> tuple[nn.Module, Any]:
    """The network and the head by which it acts.

    Raises:
      SpecError: It is no policy that is known, or draws in a way that noise does not give.
    """
    if isinstance(policy, NativePolicy):
        return _of_native(policy, action_space, noise=noise)
    module, head = _module_of(policy), None
    if module is not policy and getattr(policy, "module", None) is module:
        head = getattr(policy, "head", None)
    if any(each.device.type != "cpu" for each in module.parameters()):
        raise SpecError("the network is on a GPU, expected the CPU: move it there to export it")
    if is_of(module, _SB3) and not is_of(module, _SB3_ACTOR_CRITIC):
        raise SpecError(
            f"policy is a {type(module).__name__} of Stable-Baselines3, expected one of PPO or "
            "A2C: give the part that acts as a torch module that returns (logits, value) or "
            "(mean, log_std, value)"
        )
    return _exportable(as_actor_critic(module)), head or make_action_head(action_space)


def surrounded_by_library(around: Surroundings, policy: Any) -> Surroundings:
    """Adds what another library does between environment and network, beside the pool.

    Stable-Baselines3 clips Box actions to the bounds that its policy has, and its VecNormalize
    scales observations.
    """
    module = None if isinstance(policy, NativePolicy) else _module_of(policy)
    if module is None or not is_of(module, _SB3) or getattr(policy, "module", None) is module:
        return around
    space = getattr(module, "action_space", None)
    if isinstance(space, gymnasium.spaces.Box):
        low, high = space.low, space.high
        if around.low is not None and around.high is not None:
            low, high = np.maximum(low, around.low), np.minimum(high, around.high)
        around = replace(around, low=low.astype(np.float32), high=high.astype(np.float32))
    normalize = getattr(policy, "get_vec_normalize_env", lambda: None)()
    if normalize is None or not normalize.norm_obs or not hasattr(normalize.obs_rms, "mean"):
        return around
    # a pool that normalises has the same statistics, or is another than the one trained in
    return replace(
        around,
        mean=normalize.obs_rms.mean.astype(np.float32),
        deviation=np.sqrt(normalize.obs_rms.var + normalize.epsilon).astype(np.float32),
        limit=float(normalize.clip_obs) if normalize.clip_obs else math.inf,
    )


def _of_native(
    policy: NativePolicy, action_space: gymnasium.Space[Any], *, noise: bool
) -> tuple[nn.Module, Any]:
    if policy.reading is None:
        raise SpecError("the NativePolicy was made of a program, expected one of a torch module")
    head = policy.head
    if noise and (head.kind == "epsilon_greedy" or head.damping < 1 or head.deterministic):
        raise SpecError(
            f"noise=True is for a head that draws each action by itself, this one is {head}: "
            "leave it out"
        )
    made = SquashedGaussianHead.of if head.kind == "tanh_gaussian" else make_action_head
    return _exportable(policy.reading.module), made(action_space)


def _module_of(policy: Any) -> nn.Module:
    module = getattr(policy, "module", None)
    if not isinstance(module, nn.Module) or isinstance(policy, nn.Module):
        module = policy if isinstance(policy, nn.Module) else getattr(policy, "policy", None)
    if not isinstance(module, nn.Module):
        raise SpecError(
            f"policy is a {type(policy).__name__}, expected a TorchPolicy, a NativePolicy, a torch "
            "module that returns (logits, value) or (mean, log_std, value), or a model of "
            "Stable-Baselines3's PPO or A2C"
        )
    return module


def _exportable(module: nn.Module) -> nn.Module:
    return Unwrapped(module) if isinstance(module, Wrapped) else module
