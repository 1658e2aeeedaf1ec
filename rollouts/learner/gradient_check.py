# SPDX-License-Identifier: Apache-2.0
"""Checks, by hooks and gradients of some rows, that torch would train a module like native code."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollouts import _native
from rollouts.errors import SpecError
from rollouts.learner.read_module import ReadModule
from rollouts.policies.native import NativePolicy
from rollouts.policies.program import parameters_of
from rollouts.policies.trace import forward, random_rows
from rollouts.support.extras import needs

with needs("torch", "NativeLearner"):
    import torch
    from torch import Tensor, nn

Array = NDArray[Any]

_ROWS = 6
# Share of a tensor's largest gradient; float32's rounding is far below, a wrong gradient far above.
_TOLERANCE = 1e-3
# Share of the largest gradient of all tensors, for tensors whose exact gradient is 0.
_ROUNDING = 1e-5


def check_hooks(
    module: nn.Module, tensors: Sequence[Tensor], optimizer: torch.optim.Optimizer
) -> None:
    """Raises SpecError where gradients or steps have hooks, which native code would not call."""
    # torch has no public functions for these
    kinds = sys.modules[nn.Module.__module__]
    optimizers = sys.modules[torch.optim.Optimizer.__module__]
    found: dict[str, list[Any]] = {
        "a parameter has hooks on its gradient": [
            getattr(tensor, name, None)
            for tensor in tensors
            for name in ("_backward_hooks", "_post_accumulate_grad_hooks")
        ],
        "a layer has backward hooks": [
            hooks
            for layer in module.modules()
            for hooks in (layer._backward_hooks, layer._backward_pre_hooks)
        ],
        "all modules have forward hooks": [
            getattr(kinds, "_global_forward_hooks", None),
            getattr(kinds, "_global_forward_pre_hooks", None),
        ],
        "all modules have backward hooks": [
            getattr(kinds, "_global_backward_hooks", None),
            getattr(kinds, "_global_backward_pre_hooks", None),
        ],
        "the optimiser has hooks": [
            getattr(optimizer, "_optimizer_step_pre_hooks", None),
            getattr(optimizer, "_optimizer_step_post_hooks", None),
            getattr(optimizers, "_global_optimizer_pre_hooks", None),
            getattr(optimizers, "_global_optimizer_post_hooks", None),
        ],
        "the optimiser's step was replaced": [_replaced_step(optimizer)],
    }
    for what, hooks in found.items():
        if any(hooks):
            raise SpecError(f"{what}, which native code would not call")


def _replaced_step(optimizer: torch.optim.Optimizer) -> bool:
    """Returns True if `step` is neither the class's function nor a scheduler's wrapper."""
    step = vars(optimizer).get("step")
    return step is not None and not hasattr(step, "_wrapped_by_lr_sched")


def check_gradients(
    policy: NativePolicy | ReadModule, tensors: Mapping[str, Tensor], compared: Sequence[Tensor]
) -> None:
    """Compares gradients of some rows with autograd's.

    Equal outputs do not suffice: `torch.no_grad` and hooks, for example, change only gradients.

    Args:
      policy: The module that was read.
      tensors: The module's parameters by their names in the program.
      compared: Parameters whose gradients are compared; each requires a gradient.

    Raises:
      SpecError: A parameter's gradient differs.
    """
    reading = policy.reading
    if reading is None:
        return
    rng = np.random.default_rng(0)
    program, states = policy.program, policy.sources.initial_state()
    # with memory there are two steps, so that a gradient passes through the state
    steps = [random_rows(reading.space, _ROWS, rng) for _ in range(2 if states else 1)]
    before = [rng.normal(size=(_ROWS, *each.shape)).astype(np.float32) for each in states]
    sizes = [program.sizes[i] for i in program.outputs]
    given = [[rng.normal(size=(_ROWS, n)).astype(np.float32) for n in sizes] for _ in steps]
    with torch.enable_grad():
        total = torch.zeros(())
        state = [torch.from_numpy(each) for each in before]
        for rows, weights in zip(steps, given, strict=True):
            outputs = forward(reading.module, [torch.from_numpy(np.array(rows)), *state])
            state = list(outputs[len(outputs) - len(states) :])
            for output, weight in zip(outputs, weights, strict=True):
                wide = output.reshape(-1, weight.shape[1]).expand(weight.shape)
                total = total + (wide * torch.from_numpy(weight)).sum()
        trained = {id(each): each for each in compared}
        theirs: dict[int, Tensor | None] = dict.fromkeys(trained)
        if total.requires_grad and trained:
            try:
                grads = torch.autograd.grad(total, [*trained.values()], allow_unused=True)
            except RuntimeError as error:
                raise SpecError(f"autograd gives no gradients of the module: {error}") from error
            theirs = dict(zip(trained, grads, strict=True))
    wanted = [id(tensors[param.name]) in trained for param in policy.program.params]
    ours = _native_gradients(policy, tensors, wanted, (steps, before), given)
    pairs = {}
    for name, tensor in tensors.items():
        if id(tensor) in trained:
            grad = theirs[id(tensor)]
            expected = np.zeros(tensor.shape) if grad is None else grad.detach().double().numpy()
            pairs[name] = ours[id(tensor)].reshape(tensor.shape), expected
    sizes_of = {name: max(map(_largest, pair)) for name, pair in pairs.items()}
    rounding = _ROUNDING * max(sizes_of.values(), default=0.0)
    for name, (found, expected) in pairs.items():
        if not _largest(found - expected) <= max(_TOLERANCE * sizes_of[name], rounding):
            raise SpecError(
                f"autograd's gradient of {name} is another than that of the operations which were "
                "read: does forward use no_grad, a detached weight, an autograd.Function or a "
                "hook? Train it with torch"
            )


def _largest(array: Array) -> float:
    return float(np.abs(array).max(initial=0.0))


def _native_gradients(
    policy: NativePolicy | ReadModule,
    tensors: Mapping[str, Tensor],
    wanted: list[bool],
    rows: tuple[list[Array], list[Array]],
    given: list[list[Array]],
) -> dict[int, Array]:
    """Returns gradients by the id of the tensor, summed over its parts.

    Args:
      policy, tensors: As for `check_gradients`.
      wanted: Whether the gradient of each parameter is needed.
      rows: Observations of each step, and the states before the first one.
      given: Gradients of the outputs of each step.
    """
    program = policy.program
    arrays = parameters_of(program, {name: each.detach().numpy() for name, each in tensors.items()})
    gradients = _native.Gradients(
        program.obs_size,
        *program.described(),
        list(program.outputs),
        list(program.state_sizes),
        wanted,
    )
    obs = np.stack([np.reshape(each, (_ROWS, -1)) for each in rows[0]]).astype(np.float32)
    if rows[1]:
        found = gradients.run_sequences(
            arrays,
            obs,
            np.concatenate([each.reshape(_ROWS, -1) for each in rows[1]], 1),
            np.zeros(sum(program.state_sizes), np.float32),
            np.zeros(obs.shape[:2], np.uint8),
            [np.stack(each) for each in zip(*given, strict=True)],
        )
    else:
        found = gradients.run(arrays, obs[0], given[0])
    sums = {id(each): np.zeros(each.numel()) for each in tensors.values()}
    for param, gradient in zip(program.params, found, strict=True):
        if gradient is not None:
            np.add.at(sums[id(tensors[param.name])], param.places(), gradient)
    return sums
