# SPDX-License-Identifier: Apache-2.0
"""`NativeLearner`: gradient steps of PPO and A2C in native code, on the module's own memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from rollouts import _native
from rollouts.checks import one_of, whole_number
from rollouts.errors import SpecError
from rollouts.learner.acted_rows import check_order, read_rows, read_states, unsquashed
from rollouts.learner.counted_rows import hide_uncounted
from rollouts.learner.module_steps import Average, ModuleSteps, Source, View
from rollouts.policies.native import NativePolicy
from rollouts.policies.native_heads import bounds_of, nvec_of
from rollouts.support.extras import needs

with needs("torch", "NativeLearner"):
    import torch

Array = NDArray[Any]

ClipBy = Literal["all", "each", "element"]
_HEADS = ("categorical", "multi_categorical", "gaussian", "tanh_gaussian")


@dataclass(frozen=True, slots=True, kw_only=True)
class PpoLoss:
    """PPO's clipped loss (Schulman et al. 2017): the policy's loss, plus `value_weight` times the
    value's squared error, minus `entropy_weight` times the entropy.

    Attributes:
      clip_range: Limit for the distance between the ratio of probabilities and 1.
      value_clip_range: Limit of the value's distance from the old value; None: no limit.
      value_loss: "clipped": the error of the limited value counts, as in Stable-Baselines3;
        "worse": the larger of both errors, as in OpenAI's Baselines and CleanRL.
      normalize_advantage: Whether advantages have mean 0 and deviation 1 in each minibatch.
      target_kl: An update ends before the minibatch whose approximate KL divergence exceeds it;
        None: never.
      value_error_cap: Limit of the value's squared error, as in RLlib; None: no limit.
      kl_weight: Factor, in the loss, of the KL divergence from the distributions that drew the
        actions to the present ones; None: it is no part of the loss.
      value_huber: Size of the value's error beyond which its loss is linear (Huber 1964), as in
        MAPPO; None: it is the square everywhere.
      refuses_overflow: Whether an infinite ratio is an error. torch's gradient is NaN then; ours is
        0 where the limit applies.
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
    value_huber: float | None = None
    refuses_overflow: bool = False

    def __post_init__(self) -> None:
        """Checks the names; raises SpecError."""
        one_of("value_loss", self.value_loss, ("clipped", "worse"))


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyGradientLoss:
    """A2C's loss (Mnih et al. 2016): minus the advantage times the log-density of the action, plus
    `value_weight` times the value's squared error, minus `entropy_weight` times the entropy.

    It is also the loss of IMPALA, with advantages and targets from `rollouts.returns.vtrace`.
    `NativeLearner.evaluate` returns the present policy's log-probabilities and values for `vtrace`.

    Attributes:
      normalize_advantage: As for `PpoLoss`.
    """

    value_weight: float = 0.5
    entropy_weight: float = 0.0
    normalize_advantage: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CloningLoss:
    """Behaviour cloning: minus the log-density of the actions, minus `entropy_weight` times the
    entropy.

    Rows are only `obs` and `action`, and the module may have no value. Parameters on which only the
    value depends stay unchanged, even with weight decay.
    """

    entropy_weight: float = 0.0


Loss = PpoLoss | PolicyGradientLoss | CloningLoss


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Results of the present policy for the actions of some rows: (N,) float32, or (T, B).

    Attributes:
      log_prob: Log-densities of the actions.
      entropy: Entropies of the distributions.
      value: Values of the observations; 0 if the module has no value.
    """

    log_prob: NDArray[np.float32]
    entropy: NDArray[np.float32]
    value: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Losses:
    """Parts of the loss in an update: (K,) float32, one number for each minibatch.

    Attributes:
      policy_loss, value_loss, entropy, approx_kl, clip_fraction: Means over the minibatch.
      value_error: Mean of the value's squared error without any limit.
      kl: Mean of the divergence to which `kl_weight` applies; 0 without it.
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

    Parameters and the state of torch's Adam, AdamW, RMSprop or SGD are changed in place: other code
    that uses the module or the optimiser sees each step, and training may continue with torch at
    any time. Gradients equal autograd's up to rounding, and their bits do not depend on the number
    of threads or the instruction set. A thread waits for another's update; a forked child trains
    with one thread.
    """

    def __init__(
        self,
        policy: NativePolicy,
        optimizer: torch.optim.Optimizer,
        num_threads: int = 1,
        average: Average | None = None,
    ) -> None:
        """Reads the module's computation, and the parameters that the optimiser changes.

        Args:
          policy: `NativePolicy.from_torch` of an actor-critic module.
          optimizer: torch.optim.Adam, AdamW, RMSprop or SGD over the module's parameters, or
            Stable-Baselines3's RMSpropTFLike.
          num_threads: Threads that share a large minibatch.
          average: Replaces the numbers of an array (n,) float32 by their means over the processes
            that train together, in place: gradients and losses of each minibatch, before its step.
            For torch.distributed, `rollouts.learner.process_mean` makes it. All processes must make
            the same number of minibatches; they notice an error of another process only through
            `average`. None: one process.

        Raises:
          SpecError: The module has another head, or its initial states are parameters; its
            parameters are on a GPU or of another type; its gradients are not those of the
            operations that were read, or have hooks; the optimiser has settings that native code
            does not support.
        """
        if policy.head.kind not in _HEADS:
            expected = ", ".join(_HEADS)
            raise SpecError(f"the head is {policy.head.kind!r}, expected one of {expected}")
        num_inputs = 2 if policy.head.kind.endswith("gaussian") else 1
        num_outputs = len(policy.program.outputs) - len(policy.program.state_sizes)
        self._has_value = num_outputs > num_inputs
        # the layers of the memory are trained too, as the policy reads its states at the next step
        outputs = policy.program.outputs
        self._cloned = policy.program.params_of((*outputs[:num_inputs], *outputs[num_outputs:]))
        self._head, self._space = policy.head, policy.action_space
        super().__init__(policy, optimizer, num_threads, average)

    def update(
        self,
        rows: Mapping[str, Array],
        order: NDArray[np.int64],
        *,
        minibatch: int,
        loss: Loss,
        max_grad_norm: float | None = None,
        clip_by: ClipBy = "all",
        state: Sequence[Array] = (),
        burn_in: int = 0,
        timeout_s: float | None = None,
    ) -> Losses:
        """Makes a gradient step for each minibatch of `order`.

        For a squashed Gaussian, the entropy is that of the Gaussian before its tanh, and an action
        at a bound counts as the nearest one that float32 can distinguish from it, as in
        `rollouts.policy.SquashedGaussianHead.evaluate`.

        Rows of a module with memory are whole sequences, (T, B, ...) as in a rollout. A sequence is
        computed step by step, with initial states after an `ended`, and gradients flow back through
        time.

        Args:
          rows: `obs` (N, obs_size), `action` (N,) or (N, d) as environments take it, and
            `log_prob`, `advantage`, `target` (N,), the last one for the value. `value` (N,), the
            old value, if the loss limits its change; `inputs` (N, size), the head's old inputs,
            with a Gaussian's deviations after its means, if the loss has a `kl_weight`;
            `action_mask` (N, A) bool, if not all actions were allowed; `counts` (N,) bool, if some
            rows do not count in the means; such rows may contain anything. With memory (T, B)
            instead of (N,), and `ended` (T, B): terminated | truncated; there each row's
            observation still affects the states of later rows.
          order: Row numbers (K * minibatch,), minibatch after minibatch; the last one may have
            fewer. With memory, numbers of sequences, from 0 to B - 1.
          minibatch: Rows of a gradient step, or sequences.
          max_grad_norm: Limit of the gradients that the optimiser uses; None: no limit.
          clip_by: The quantity that is limited: the norm of "all" gradients together, the norm of
            "each" tensor's gradient, or the absolute value of each "element".
          state: States before the first step, for a module with memory, (B, ...) each, as in
            `RolloutBatch.policy_state`.
          burn_in: First steps of each sequence that are only computed for later states: they do not
            count, and no gradient passes through them.
          timeout_s: Seconds that all steps together may take; None: any time.

        Raises:
          TimeoutError, KeyboardInterrupt: The update has ended within a fraction of a second, and
            weights and optimiser are those after its last whole gradient step.
          SpecError: Shapes do not fit; an action was not allowed by its mask; the module is no
            longer the one that was read; a loss or a gradient is NaN or infinite, or no row of a
            minibatch counts: the weights are those before that minibatch.
        """
        if not isinstance(loss, Loss):
            names = ", ".join(each.__name__ for each in get_args(Loss))
            raise SpecError(f"loss is {loss!r}, expected an object of one of {names}")
        is_cloning, order = isinstance(loss, CloningLoss), np.asarray(order)
        if not (self._has_value or is_cloning):
            raise SpecError("the module gives no value, which this loss trains")
        needed = () if is_cloning else ("log_prob", "advantage", "target")
        arrays = self._read(rows, state, burn_in, needed)
        check_order(order, minibatch, len(arrays["obs"]) // arrays.get("num_steps", 1))
        if isinstance(loss, PpoLoss) and loss.value_clip_range is not None and "value" not in rows:
            raise SpecError("rows have no value, from which value_clip_range is measured")
        settings = _settings(loss, max_grad_norm) | {"clip_by": clip_by}
        arrays = hide_uncounted(arrays)
        self._check()
        found, made = self._step(
            lambda sources, left_s: self._native.update(
                sources, arrays, order, minibatch, settings, left_s, self._average
            ),
            timeout_s,
            self._cloned if is_cloning else None,
        )
        policy_loss, value_loss, entropy, approx_kl, clipped, error, kl, grad_norm = found.T
        return Losses(
            policy_loss, value_loss, entropy, approx_kl, clipped, error, kl, grad_norm, made
        )

    def evaluate(self, rows: Mapping[str, Array], *, state: Sequence[Array] = ()) -> Evaluated:
        """Returns the present policy's log-densities of the rows' actions, entropies and values.

        Args:
          rows: As for `update`; `obs` and `action` are enough, with memory also `ended`.
          state: As for `update`.

        Raises:
          SpecError: As `update`.
        """
        arrays = self._read(rows, state, 0, rows.keys() & {"log_prob", "advantage", "target"})
        self._check()
        sources: list[Source] = [(each.detach().numpy(), None) for each in self._tensors]
        found = self._native.evaluate(sources, arrays)
        lead = np.shape(rows["obs"])[: 2 if self._program.state_sizes else 1]
        return Evaluated(*(each.reshape(lead) for each in found))

    def _make(self, trained: list[bool], views: list[View]) -> _native.PpoLearner:
        program = self._program
        return _native.PpoLearner(
            program.obs_size,
            *program.described(),
            list(program.outputs),
            list(program.state_sizes),
            views,
            trained,
            self._head.kind.removeprefix("tanh_"),
            nvec_of(self._space),
            self._num_threads,
        )

    def _read(
        self,
        rows: Mapping[str, Array],
        state: Sequence[Array],
        burn_in: int,
        needed: Collection[str],
    ) -> dict[str, Any]:
        """Rows for native code; parts that a loss does not need are 0, an advantage is 1."""
        arrays: dict[str, Any] = read_rows(rows, self._program, self._space, needed=needed)
        zeros = np.zeros(len(arrays["obs"]), np.float32)
        arrays = {"log_prob": zeros, "target": zeros, "advantage": zeros + 1, **arrays}
        if self._head.kind == "tanh_gaussian":
            arrays |= unsquashed(arrays["box"], bounds_of(self._space, self._head))
        if not self._program.state_sizes:
            if len(state) or burn_in:
                raise SpecError("the module has no memory: leave state and burn_in out")
            return arrays
        num_steps, num_sequences = np.shape(rows["obs"])[:2]
        whole_number("burn_in", burn_in, 0, num_steps - 1)
        initial = self._policy.sources.initial_state()
        return arrays | {
            **read_states(state, initial, num_sequences),
            "num_steps": num_steps,
            "burn_in": burn_in,
        }

    def _check_module(self) -> None:
        super()._check_module()
        module: Any = self._policy.sources.module
        if self._program.state_sizes:
            with torch.enable_grad():
                is_learnt = any(each.requires_grad for each in module.initial_state())
            if is_learnt:
                raise SpecError(
                    f"{type(module).__name__}.initial_state() requires a gradient, and native code "
                    "does not learn the states that episodes begin with: train it with torch"
                )


def _settings(loss: Loss, max_grad_norm: float | None) -> dict[str, Any]:
    """A loss in the form of native code; None means no limit."""
    ppo = loss if isinstance(loss, PpoLoss) else PpoLoss()
    if isinstance(loss, CloningLoss):
        # the same as a policy gradient with advantages of 1
        loss = PolicyGradientLoss(value_weight=0.0, entropy_weight=loss.entropy_weight)
    return {
        "value_clip": ppo.value_clip_range,
        "target_kl": ppo.target_kl,
        "error_cap": ppo.value_error_cap,
        "kl_weight": ppo.kl_weight,
        "value_huber": ppo.value_huber,
        "refuses_overflow": ppo.refuses_overflow,
        "max_norm": max_grad_norm,
        "is_plain": loss is not ppo,
        "clip": ppo.clip_range,
        "value_worse": ppo.value_loss == "worse",
        "value_weight": loss.value_weight,
        "entropy_weight": loss.entropy_weight,
        "normalizes": loss.normalize_advantage,
    }
