# SPDX-License-Identifier: Apache-2.0
"""Actions from observations in whole batches; RLlib's default connectors do it row by row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from ray.rllib.core.columns import Columns
from ray.rllib.core.distribution.torch.torch_distribution import TorchCategorical
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from torch import Tensor

from rollouts.errors import SpecError
from rollouts.policy import as_tensor

Array = NDArray[Any]
Forward = Callable[..., dict[str, Tensor]]


def to_tensor(obs: Array, device: torch.device | str | None) -> Tensor:
    """Observations (N, ...) as a tensor on a device; bytes stay bytes, doubles become floats."""
    tensor = as_tensor(obs)
    if tensor.is_floating_point():
        tensor = tensor.float()
    return tensor if device is None else tensor.to(device)


def to_numpy(tensor: Tensor) -> Array:
    """A module's output in the dtypes of RLlib's episodes: floats and ints of 32 bits."""
    if tensor.is_floating_point():
        tensor = tensor.float()
    elif tensor.dtype == torch.int64:
        tensor = tensor.int()
    array: Array = tensor.detach().cpu().numpy()
    return array


def choose(output: dict[str, Tensor], module: TorchRLModule, *, explore: bool) -> None:
    """Adds actions and their log-probabilities to a module's output, unless they are there."""
    if Columns.ACTIONS in output or Columns.ACTION_DIST_INPUTS not in output:
        return
    inputs = output[Columns.ACTION_DIST_INPUTS]
    if explore:
        dist_class = module.get_exploration_action_dist_cls()
    else:
        dist_class = module.get_inference_action_dist_cls()
    if explore and dist_class is TorchCategorical:
        # draws by racing exponential clocks, in a fifth of the time of torch.distributions
        log_probs = inputs.log_softmax(-1)
        clock = torch.empty_like(log_probs).exponential_()
        index = (log_probs.exp() / clock).argmax(-1, keepdim=True)
        output[Columns.ACTIONS] = index[:, 0]
        output.setdefault(Columns.ACTION_LOGP, log_probs.gather(-1, index)[:, 0])
        return
    dist = dist_class.from_logits(inputs)
    if not explore:
        dist = dist.to_deterministic()
    actions = dist.sample()
    output[Columns.ACTIONS] = actions
    if Columns.ACTION_LOGP not in output:
        output[Columns.ACTION_LOGP] = dist.logp(actions)


def forwards(module: TorchRLModule) -> tuple[Forward, Forward]:
    """The module's two ways to act, exploring first, for a module in eval mode.

    RLlib's public methods put all parts of the module into eval mode and back at each call, which
    takes longer than a small network; ours do so once per `sample`.
    """
    cls = type(module)
    if (
        cls.forward_exploration is TorchRLModule.forward_exploration
        and cls.forward_inference is TorchRLModule.forward_inference
    ):
        return module._forward_exploration, module._forward_inference
    return module.forward_exploration, module.forward_inference


class ActionScaling:
    """Scales actions on their way to the environment: see RLlib's normalize_actions."""

    def __init__(self, space: spaces.Space[Any], *, normalize: bool, clip: bool) -> None:
        """Takes the `space` of single actions."""
        self._box = space if isinstance(space, spaces.Box) else None
        self._normalize, self._clip = normalize, clip

    def __call__(self, actions: Array) -> Array:
        """Returns the environment's actions for the module's actions (N, ...)."""
        box = self._box
        if box is None:
            return actions
        if not self._normalize:
            return actions.clip(box.low, box.high) if self._clip else actions
        if not (box.bounded_below.all() and box.bounded_above.all()):
            return actions
        if np.issubdtype(box.dtype, np.floating):
            # in RLlib's order of operations, to be equal to the bit
            scaled: Array = box.low + (actions + 1.0) * (box.high - box.low) / 2.0
            return scaled.clip(box.low, box.high)
        shifted: Array = box.low + actions
        return shifted

    def factor(self) -> Array | None:
        """Returns the factor by which a pool multiplies actions before it clips them; None for 1.

        Raises:
          SpecError: The environment's actions are no multiples of the module's, or are not clipped.
        """
        box = self._box
        if box is None:
            return None
        if box.shape is None or len(box.shape) != 1:
            raise SpecError(f"the action space is {box}, expected one dimension")
        is_bounded = box.bounded_below | box.bounded_above
        if self._normalize and box.bounded_below.all() and box.bounded_above.all():
            if (box.low != -box.high).any():
                raise SpecError(f"actions are normalised for {box}, whose bounds differ in size")
            return None if (box.high == 1).all() else box.high.astype(np.float32)
        if is_bounded.any() and (self._normalize or not self._clip):
            raise SpecError(f"actions may lie beyond the bounds of {box}: set clip_actions=True")
        return None


def check_spaces(
    module: Any,
    obs_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    *,
    name: str = "the RLModule",
    whose: str = "the environment",
) -> None:
    """Raises SpecError where a module's spaces differ from the environment's."""
    for what, ours, theirs in (
        ("observation", obs_space, module.observation_space),
        ("action", action_space, module.action_space),
    ):
        if theirs is not None and theirs != ours:
            raise SpecError(
                f"{name}'s {what} space is {theirs}, {whose}'s is {ours}: make the "
                "module with the environment's spaces, or leave them out of its RLModuleSpec"
            )


def check_module(module: Any, obs_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> str:
    """Tries a module on observations of an environment before the first step.

    Returns:
      Why its output has to go through RLlib's own connectors; "" where it need not.

    Raises:
      SpecError: The module's spaces differ from the environment's, or it fails on observations.
    """
    check_spaces(module, obs_space, action_space)
    if not isinstance(module, TorchRLModule):
        return f"{type(module).__name__} is not a TorchRLModule"
    if module.is_stateful():
        return "the RLModule is stateful"
    zeros = np.zeros((2, *(obs_space.shape or ())), obs_space.dtype)
    device = next((parameter.device for parameter in module.parameters()), None)
    try:
        output = module.forward_inference({Columns.OBS: to_tensor(zeros, device)})
    except Exception as error:
        hint = (
            "; for images of bytes: config.rl_module(rl_module_spec=image_module(config))"
            if obs_space.dtype == np.uint8
            else ""
        )
        raise SpecError(
            f"the RLModule cannot take observations of {obs_space}: {error}{hint}"
        ) from error
    if Columns.ACTIONS_FOR_ENV in output:
        return "the RLModule makes actions for the environment itself"
    if not any(name in output for name in (Columns.ACTIONS, Columns.ACTION_DIST_INPUTS)):
        return "the RLModule returns neither actions nor inputs of their distribution"
    for name, value in output.items():
        if not isinstance(value, Tensor) or value.ndim == 0 or len(value) != 2:
            return f"the RLModule's output {name!r} is no tensor with a row per environment"
    return ""
