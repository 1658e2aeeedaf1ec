# SPDX-License-Identifier: Apache-2.0
"""`NativeLearner`: gradient steps of PPO and A2C in native code, on the module's own memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rollouts import _native
from rollouts.checks import one_of
from rollouts.errors import SpecError
from rollouts.learner.module_steps import ModuleSteps, View
from rollouts.policies.native import NativePolicy
from rollouts.policies.native_heads import nvec_of
from rollouts.support.extras import needs

with needs("torch", "NativeLearner"):
    import torch

Array = NDArray[Any]

# what rows of some losses have
_OPTIONAL = ("value", "inputs", "counts")
ClipBy = Literal["all", "each", "element"]
_HEADS = ("categorical", "multi_categorical", "gaussian")


@dataclass(frozen=True, slots=True, kw_only=True)
class PpoLoss:
    """PPO's clipped loss (Schulman et al. 2017): the policy's, `value_weight` times the value's
    squared error, and -`entropy_weight` times the entropy.

    Attributes:
      clip_range: Limit of the ratio of probabilities, from 1.
      value_clip_range: Limit of the value's distance from what it was; None: no limit.
      value_loss: "clipped": the error of the limited value counts, as in Stable-Baselines3;
        "worse": the larger of both errors, as in OpenAI's Baselines and CleanRL.
      normalize_advantage: Whether advantages have mean 0 and deviation 1 in each minibatch.
      target_kl: An update ends before the minibatch whose approximate KL divergence is beyond it;
        None: never.
      value_error_cap: Limit of the value's squared error, as in RLlib; None: no limit.
      kl_weight: Factor of the KL divergence from the distributions that drew the actions to those
        of now, which is a part of the loss; None: it is none.
      refuses_overflow: Whether a ratio that is infinite is an error. torch's gradient is NaN there;
        ours is 0 where the limit binds.
    """

    clip_range: float = 0.2
    value_clip_range: float | None = None
    value_loss: str = "worse"
    value_weight: float = 0.5
    entropy_weight: float = 0.0
    normalize_advantage: bool = True
    target_kl: float | None = None
    value_error_cap: float | None = None
    kl_weight: float | None = None
    refuses_overflow: bool = False

    def __post_init__(self) -> None:
        """Checks the names. Raises SpecError."""
        one_of("value_loss", self.value_loss, ("clipped", "worse"))


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyGradientLoss:
    """A2C's loss (Mnih et al. 2016): minus the advantage times the log-density of the action,
    `value_weight` times the value's squared error, and -`entropy_weight` times the entropy.

    Attributes:
      normalize_advantage: As of `PpoLoss`.
    """

    value_weight: float = 0.5
    entropy_weight: float = 0.0
    normalize_advantage: bool = False


@dataclass(frozen=True, slots=True)
class Losses:
    """Parts of an update: (K,) float32, one number for each minibatch.

    Attributes:
      policy_loss, value_loss, entropy, approx_kl, clip_fraction: Means over the minibatch.
      value_error: Mean of the value's squared error without any limit.
      kl: Mean of the divergence that `kl_weight` is of; 0 without one.
      grad_norm: Norm of all gradients before they were clipped.
      num_steps: Gradient steps made: K, or K - 1 where `target_kl` ended the update.
    """

    policy_loss: NDArray[np.float32]
    value_loss: NDArray[np.float32]
    entropy: NDArray[np.float32]
    approx_kl: NDArray[np.float32]
    clip_fraction: NDArray[np.float32]
    value_error: NDArray[np.float32]
    kl: NDArray[np.float32]
    grad_norm: NDArray[np.float32]
    num_steps: int


class NativeLearner(ModuleSteps[_native.PpoLearner]):
    """Gradient steps of a module, by its optimiser's formula and on its own memory.

    Parameters and the state of torch's Adam, AdamW or RMSprop are changed in place: all that hold
    the module or the optimiser see each step, and a training may go on with torch at any time.
    Gradients equal autograd's to rounding, and their bits do not depend on the number of threads
    or the instruction set. One thread calls it at a time; a forked child trains with one thread.
    """

    def __init__(
        self, policy: NativePolicy, optimizer: torch.optim.Optimizer, num_threads: int = 1
    ) -> None:
        """Reads what the module computes and what the optimiser changes.

        Args:
          policy: `NativePolicy.from_torch` of an actor-critic module.
          optimizer: torch.optim.Adam, AdamW or RMSprop over the module's parameters, or
            Stable-Baselines3's RMSpropTFLike.
          num_threads: Threads that share a large minibatch.

        Raises:
          SpecError: The module has memory, no value or another head, parameters on a GPU or of
            another type; its gradients are not those of the operations that were read, or have
            hooks; the optimiser has settings that native code does not have.
        """
        if policy.state_shapes:
            raise SpecError("the module has memory, which NativeLearner does not train")
        if policy.head.kind not in _HEADS:
            expected = ", ".join(_HEADS)
            raise SpecError(f"the head is {policy.head.kind!r}, expected one of {expected}")
        num_outputs = 3 if policy.head.kind == "gaussian" else 2
        if len(policy.program.outputs) != num_outputs:
            raise SpecError("the module gives no value, which PPO trains")
        self._head, self._space = policy.head, policy.action_space
        super().__init__(policy, optimizer, num_threads)

    def update(
        self,
        rows: Mapping[str, Array],
        order: NDArray[np.int64],
        *,
        minibatch: int,
        loss: PpoLoss | PolicyGradientLoss,
        max_grad_norm: float | None = None,
        clip_by: ClipBy = "all",
    ) -> Losses:
        """Makes a gradient step for each minibatch of `order`.

        Args:
          rows: `obs` (N, obs_size), `action` (N,) or (N, d) as environments take it, and
            `log_prob`, `advantage`, `target` (N,), the last one the value's. `value` (N,), as it
            was, where the loss limits how far it moves; `inputs` (N, size), the head's inputs as
            they were, a Gaussian's deviations after its means, where the loss has a `kl_weight`;
            `counts` (N,) of bool, where some rows do not count in the means.
          order: Rows (K * minibatch,), those of a minibatch one after the other; the last one may
            have fewer.
          minibatch: Rows of a gradient step.
          max_grad_norm: Limit of the gradients that the optimiser uses; None: no limit.
          clip_by: What has this limit: the norm of "all" gradients together, that of "each"
            tensor's, or the absolute value of each "element".

        Raises:
          SpecError: Shapes do not fit; the module is no longer the one that was read; a loss or a
            gradient is NaN or infinite, or no row of a minibatch counts: the weights are those
            before that minibatch.
        """
        arrays = self._check_rows(rows, order, minibatch)
        if isinstance(loss, PpoLoss) and loss.value_clip_range is not None and "value" not in rows:
            raise SpecError("rows have no value, from which value_clip_range is measured")
        settings = _settings(loss, max_grad_norm) | {"clip_by": clip_by}
        self._check()
        found, made = self._step(
            lambda sources: self._native.update(sources, arrays, order, minibatch, settings)
        )
        policy_loss, value_loss, entropy, approx_kl, clipped, error, kl, grad_norm = found.T
        return Losses(
            policy_loss, value_loss, entropy, approx_kl, clipped, error, kl, grad_norm, made
        )

    def _make(self, trained: list[bool], views: list[View]) -> _native.PpoLearner:
        program = self._program
        return _native.PpoLearner(
            program.obs_size,
            *program.described(),
            list(program.outputs),
            [],
            views,
            trained,
            self._head.kind,
            nvec_of(self._space),
            self._num_threads,
        )

    def _check_rows(
        self, rows: Mapping[str, Array], order: NDArray[np.int64], minibatch: int
    ) -> dict[str, Array]:
        wanted = {"obs", "action", "log_prob", "advantage", "target"}
        if rows.keys() - set(_OPTIONAL) != wanted:
            perhaps = ", ".join(_OPTIONAL)
            raise SpecError(
                f"rows are {sorted(rows)}, expected {sorted(wanted)}, and perhaps {perhaps}"
            )
        count = len(rows["obs"])
        arrays: dict[str, Array] = {
            name: np.ascontiguousarray(array, np.float32).reshape(count, -1)
            for name, array in rows.items()
            if name != "action" and len(array) == count
        }
        sizes = {name: array.shape[1] for name, array in arrays.items()}
        expected = {"obs": self._program.obs_size}
        expected |= dict.fromkeys(rows.keys() - {"obs", "action"}, 1)
        num_box = self._program.sizes[self._program.outputs[0]]
        if "inputs" in rows:
            expected["inputs"] = num_box * len(self._program.outputs[:-1])
        if sizes != expected:
            raise SpecError(f"rows have {sizes} numbers each, expected {expected}, all of {count}")
        if "counts" in rows:
            arrays["counts"] = (arrays["counts"] != 0).view(np.uint8)
        is_box = self._head.kind == "gaussian"
        action = np.asarray(rows["action"])
        if not is_box:
            action = action - getattr(self._space, "start", 0)
        name, dtype = ("box", np.float32) if is_box else ("index", np.int64)
        arrays[name] = np.ascontiguousarray(action, dtype).reshape(count, -1)
        if not is_box:
            _check_actions(arrays[name], self._space)
        elif arrays[name].shape[1] != num_box:
            raise SpecError(
                f"rows have actions of {arrays[name].shape[1]} numbers, expected {num_box}"
            )
        if len(order) and not (order.min() >= 0 and order.max() < count and minibatch > 0):
            raise SpecError(
                f"order names rows {order.min()} to {order.max()} in minibatches of {minibatch}, "
                f"expected 0 to {count - 1}, in minibatches of 1 or more"
            )
        return arrays


def _settings(loss: PpoLoss | PolicyGradientLoss, max_grad_norm: float | None) -> dict[str, Any]:
    """A loss as native code reads it; None is no limit."""
    ppo = loss if isinstance(loss, PpoLoss) else PpoLoss()
    return {
        "value_clip": ppo.value_clip_range,
        "target_kl": ppo.target_kl,
        "error_cap": ppo.value_error_cap,
        "kl_weight": ppo.kl_weight,
        "refuses_overflow": ppo.refuses_overflow,
        "max_norm": max_grad_norm,
        "is_plain": loss is not ppo,
        "clip": ppo.clip_range,
        "value_worse": ppo.value_loss == "worse",
        "value_weight": loss.value_weight,
        "entropy_weight": loss.entropy_weight,
        "normalizes": loss.normalize_advantage,
    }


def _check_actions(index: NDArray[np.int64], space: Any) -> None:
    """Native code reads probabilities by these numbers."""
    nvec = np.array(nvec_of(space) or [int(space.n)])
    if index.shape[1] != len(nvec) or (index < 0).any() or (index >= nvec).any():
        raise SpecError(f"rows have actions that are not of {space}")
