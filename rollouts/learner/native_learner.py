# SPDX-License-Identifier: Apache-2.0
"""`NativeLearner`: gradient steps of PPO and A2C in native code, on the module's own memory."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rollouts import _native
from rollouts.checks import one_of, whole_number
from rollouts.errors import SpecError
from rollouts.learner.gradient_check import check_gradients, check_hooks
from rollouts.policies.native import NativePolicy
from rollouts.policies.native_heads import nvec_of
from rollouts.policies.program import Param
from rollouts.support.extras import needs

with needs("torch", "NativeLearner"):
    import torch
    from torch import Tensor

Array = NDArray[Any]

_KINDS: dict[str, type[torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
}
_SB3 = "stable_baselines3.common.sb2_compat.rmsprop_tf_like"
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


class NativeLearner:
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
        self._policy, self._optimizer, self._num_threads = policy, optimizer, num_threads
        self._program = policy.program
        whole_number("num_threads", num_threads, 1, 4096)
        tensors = policy.sources.tensors()
        self._named = {param.name: tensors[param.name] for param in policy.program.params}
        self._shapes = {name: each.shape for name, each in self._named.items()}
        # a tensor that the module has under several names is one
        self._tensors = list({id(each): each for each in self._named.values()}.values())
        self._places = {id(each): place for place, each in enumerate(self._tensors)}
        self._num_box = policy.program.sizes[policy.program.outputs[0]]
        self._check_module()
        _rules(optimizer)
        trained = self._find_trained()
        check_gradients(policy, self._named)
        self._make(trained)

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
            gradient is NaN or infinite: the weights are those before its minibatch.
        """
        arrays = self._check_rows(rows, order, minibatch)
        if isinstance(loss, PpoLoss) and loss.value_clip_range is not None and "value" not in rows:
            raise SpecError("rows have no value, from which value_clip_range is measured")
        self._check_module()
        trained = self._find_trained()
        if [id(each) for each in trained] != [id(each) for each in self._trained]:
            check_gradients(self._policy, self._named)
            self._make(trained)
        state = {id(each): self._state(each) for each in self._trained}
        rules = _rules(self._optimizer)
        sources = [
            (each.detach().numpy(), _kept(state.get(id(each)), rules.get(id(each))))
            for each in self._tensors
        ]
        settings = _settings(loss, max_grad_norm) | {"clip_by": clip_by}
        made_before = self._native.num_steps
        try:
            found = self._native.update(sources, arrays, order, minibatch, settings)
        finally:
            # also those before a minibatch that was refused
            made = self._native.num_steps - made_before
            for each in state.values():
                # a tensor changes in place
                each["step"] += made
            # as torch's own in-place operations: autograd refuses what it saved before
            torch.autograd.graph.increment_version(self._trained)
        policy_loss, value_loss, entropy, approx_kl, clipped, error, kl, grad_norm = found.T
        return Losses(
            policy_loss, value_loss, entropy, approx_kl, clipped, error, kl, grad_norm, made
        )

    @property
    def num_steps(self) -> int:
        """Gradient steps since the trained tensors were chosen; what raised has made some."""
        return int(self._native.num_steps)

    def is_as_read(self) -> bool:
        """Returns True while the module is what was read, in memory that native code can change."""
        with suppress(SpecError):
            self._check_module()
            return True
        return False

    def _check_module(self) -> None:
        """Native code reads and writes the module's memory by what was read."""
        again = "make another NativePolicy and NativeLearner of it"
        check_hooks(self._policy.sources.module, self._tensors, self._optimizer)
        if not self._policy.agrees():
            # perhaps what it reads besides its weights is another object now, and nothing else
            self._policy.refresh()
            if self._policy.program != self._program:
                raise SpecError(f"the module has changed since it was read: {again}")
            check_gradients(self._policy, self._named)
        now = self._policy.sources.tensors()
        for name, tensor in self._named.items():
            if now.get(name) is not tensor or tensor.shape != self._shapes[name]:
                raise SpecError(f"{name} is another tensor than the one that was read: {again}")
            if tensor.device.type != "cpu" or tensor.dtype != torch.float32:
                raise SpecError(
                    f"{name} is {tensor.dtype} on {tensor.device}, expected float32 on the CPU"
                )
            if not tensor.is_contiguous():
                raise SpecError(
                    f"{name} has strides {tensor.stride()}, expected a tensor that is contiguous"
                )

    def _find_trained(self) -> list[Tensor]:
        """The tensors that the optimiser changes; those that are frozen stay."""
        held = {id(each) for group in self._optimizer.param_groups for each in group["params"]}
        trained = [each for each in self._tensors if id(each) in held and each.requires_grad]
        if not trained:
            raise SpecError(
                "the optimiser has no parameter of the module that requires a gradient, expected "
                "one or more"
            )
        return trained

    def _make(self, trained: list[Tensor]) -> None:
        self._trained = trained
        names = {id(each) for each in trained}
        program = self._policy.program
        self._native = _native.PpoLearner(
            program.obs_size,
            [(op.kind, op.inputs, op.params, op.numbers, op.size) for op in program.ops],
            [(param.name, int(np.prod(param.shape))) for param in program.params],
            list(program.outputs),
            [],
            [self._view(param) for param in program.params],
            [id(self._named[param.name]) in names for param in program.params],
            self._policy.head.kind,
            nvec_of(self._policy.action_space),
            self._num_threads,
        )

    def _view(self, param: Param) -> tuple[int, int, list[int], list[int]]:
        place = self._places[id(self._named[param.name])]
        return place, param.start, list(param.shape), list(param.strides)

    def _state(self, tensor: Tensor) -> dict[str, Any]:
        """The optimiser's state of a parameter; made as torch makes it before the first step."""
        state: dict[str, Any] = self._optimizer.state[tensor]
        if state:
            return state
        kind = _kind_of(self._optimizer)
        state["step"] = 0 if kind == "rmsprop_tf" else torch.tensor(0.0)
        if kind.startswith("adam"):
            state["exp_avg"] = torch.zeros_like(tensor)
            state["exp_avg_sq"] = torch.zeros_like(tensor)
        elif kind == "rmsprop":
            state["square_avg"] = torch.zeros_like(tensor)
        else:
            state["square_avg"] = torch.ones_like(tensor)
        return state

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
        expected = {"obs": self._policy.program.obs_size}
        expected |= dict.fromkeys(rows.keys() - {"obs", "action"}, 1)
        if "inputs" in rows:
            expected["inputs"] = self._num_box * len(self._policy.program.outputs[:-1])
        if sizes != expected:
            raise SpecError(f"rows have {sizes} numbers each, expected {expected}, all of {count}")
        if "counts" in rows:
            arrays["counts"] = (arrays["counts"] != 0).view(np.uint8)
        is_box = self._policy.head.kind == "gaussian"
        action = np.asarray(rows["action"])
        if not is_box:
            action = action - getattr(self._policy.action_space, "start", 0)
        name, dtype = ("box", np.float32) if is_box else ("index", np.int64)
        arrays[name] = np.ascontiguousarray(action, dtype).reshape(count, -1)
        if not is_box:
            _check_actions(arrays[name], self._policy.action_space)
        elif arrays[name].shape[1] != self._num_box:
            raise SpecError(
                f"rows have actions of {arrays[name].shape[1]} numbers, expected {self._num_box}"
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
        "max_norm": max_grad_norm,
        "is_plain": loss is not ppo,
        "clip": ppo.clip_range,
        "value_worse": ppo.value_loss == "worse",
        "value_weight": loss.value_weight,
        "entropy_weight": loss.entropy_weight,
        "normalizes": loss.normalize_advantage,
    }


def _kept(
    state: dict[str, Any] | None, rule: dict[str, Any] | None
) -> tuple[Array | None, Array, int, dict[str, Any]] | None:
    """The part of an optimiser's state that native code changes, and its rule; None: none."""
    if state is None or rule is None:
        return None
    if "exp_avg" in state:
        arrays = state["exp_avg"].numpy(), state["exp_avg_sq"].numpy()
    else:
        arrays = None, state["square_avg"].numpy()
    return *arrays, int(state["step"]), rule


def _rules(optimizer: torch.optim.Optimizer) -> dict[int, dict[str, Any]]:
    """The settings of each tensor's group, by the tensor's id.

    Raises:
      SpecError: It is another optimiser, or has settings that native code does not have.
    """
    kind = _kind_of(optimizer)
    rules: dict[int, dict[str, Any]] = {}
    for group in optimizer.param_groups:
        for name in ("amsgrad", "maximize", "centered", "momentum", "differentiable"):
            if group.get(name):
                raise SpecError(f"the optimiser has {name}={group[name]}, which is not native")
        rule: dict[str, Any] = {name: float(group[name]) for name in ("lr", "eps", "weight_decay")}
        first, second = group.get("betas", (0.0, group.get("alpha")))
        rule |= {"beta1": float(first), "beta2": float(second), "kind": kind}
        if "decoupled_weight_decay" in group:
            # torch has it as a setting of Adam's, too; AdamW sets it
            rule["kind"] = "adamw" if group["decoupled_weight_decay"] else "adam"
        rules |= {id(each): rule for each in group["params"]}
    return rules


def _kind_of(optimizer: torch.optim.Optimizer) -> str:
    for name, kind in _KINDS.items():
        if type(optimizer) is kind:
            return name
    # Stable-Baselines3's, which may not be installed
    if type(optimizer).__qualname__ == "RMSpropTFLike" and type(optimizer).__module__ == _SB3:
        return "rmsprop_tf"
    raise SpecError(
        f"the optimiser is a {type(optimizer).__name__}, expected torch.optim.Adam, AdamW or "
        "RMSprop, or Stable-Baselines3's RMSpropTFLike"
    )


def _check_actions(index: NDArray[np.int64], space: Any) -> None:
    """Native code reads probabilities by these numbers."""
    nvec = np.array(nvec_of(space) or [int(space.n)])
    if index.shape[1] != len(nvec) or (index < 0).any() or (index >= nvec).any():
        raise SpecError(f"rows have actions that are not of {space}")
