# SPDX-License-Identifier: Apache-2.0
"""`trace` reads a torch module into a `Program`, which native code runs.

The module runs once, unchanged, on a small batch, while a `TorchFunctionMode` records its calls.
Then the program's results are compared with the module's on other rows, so that a module that was
misread is never trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rollouts.errors import SpecError
from rollouts.policies.program import Program, parameters_of
from rollouts.support.extras import needs

with needs("torch", "rollouts.policies.trace"):
    import torch
    from torch import Tensor, nn
    from torch.nn.modules import module as torch_module
    from torch.nn.parameter import is_lazy

    from rollouts.policies.inputs import call_module
    from rollouts.policies.sources import state_of, tensors_of
    from rollouts.policies.tracing.reads import Reads
    from rollouts.policies.tracing.registers import ROWS, Registers, Unreadable, without_rows
    from rollouts.policies.tracing.storage_tags import StorageTags
    from rollouts.policies.tracing.watching import Watcher

Array = NDArray[Any]

_TOLERANCE = 1e-5
_COMPARED_ROWS = 12
# numbers of this size or more only mask, as in logits of actions that are not allowed
_MASKING = 1e4


def trace(
    module: nn.Module,
    observation_space: gymnasium.Space[Any] | int,
    reads: Reads | None = None,
) -> Program:
    """Returns the program with the results of `module` for a batch of observations.

    Args:
      module: Maps obs (B, *obs_shape), cast as by `rollouts.TorchPolicy`, to a tuple of tensors as
        described there: (logits, value) or (mean, log_std, value). A module with memory, which has
        `initial_state`, takes and returns its state as in `rollouts.RecurrentTorchPolicy`. It runs
        in its present mode, training or not, and on its present device.
      observation_space: Box, Discrete, MultiDiscrete or MultiBinary; a number stands for that many
        float32 features.
      reads: Records what forward reads besides the weights.
    Returns:
      A program with one output for each tensor, then one for each new state; an output without a
      dimension of rows is the same in every row. Parameters have their names in
      module.state_dict().
    Raises:
      SpecError: The module does something that native code does not support; the message names the
        layer. Or it returns something else, or the program's results differ from the module's.
    """
    _check_module(module)
    space = as_space(observation_space)
    device = next((each.device for each in module.parameters()), torch.device("cpu"))
    rng = np.random.default_rng(0)
    # with inference_mode, tensors that forward keeps could not be used in training later
    with torch.no_grad():
        remembered = [_space_of(each) for each in state_of(module)]
        inputs = _inputs([space, *remembered], ROWS, rng, device)
        state = _state(module)
        sizes = [each[0].numel() for each in inputs]
        registers = Registers(sizes[0], tuple(sizes[1:]))
        memory = StorageTags(registers, state, *inputs)
        with Watcher(module, registers, memory):
            outputs = forward(module, inputs)
        program = registers.program([_output(registers, memory, each) for each in outputs])
        arrays = {name: tensor.detach().cpu().numpy() for name, tensor in state.items()}
        inputs = _inputs([space, *remembered], _COMPARED_ROWS, rng, device)
        parts = [each.reshape(len(each), -1).double().cpu().numpy() for each in inputs]
        with reads.watching() if reads else nullcontext():
            outputs = forward(module, inputs)
        params, rows = parameters_of(program, arrays), np.concatenate(parts, 1)
        compare(program, params, rows, outputs)
        if reads:
            forward(module, inputs)
            reads.forget_changed()
    return program


def random_rows(space: gymnasium.Space[Any], num_rows: int, rng: np.random.Generator) -> Array:
    """Observations (num_rows, *obs_shape) within the bounds, of several orders of magnitude."""
    shape = (num_rows, *(space.shape or ()))
    rows: Array
    if isinstance(space, gymnasium.spaces.Discrete):
        rows = int(space.start) + rng.integers(int(space.n), size=shape)
    elif isinstance(space, gymnasium.spaces.MultiDiscrete):
        first: Array = np.asarray(space.start)
        rows = np.floor(rng.random(shape) * np.asarray(space.nvec)) + first
    elif isinstance(space, gymnasium.spaces.MultiBinary):
        rows = rng.integers(0, 2, shape)
    elif isinstance(space, gymnasium.spaces.Box) and np.dtype(space.dtype).kind in "iu":
        low = np.maximum(space.low, -1000.0)
        high = np.maximum(low, np.minimum(space.high, 1000.0))
        rows = np.floor(low + rng.random(shape) * (high - low + 1))
    elif isinstance(space, gymnasium.spaces.Box):
        scale = np.resize([0.1, 1.0, 3.0], num_rows).reshape(-1, *[1] * (len(shape) - 1))
        rows = np.clip(rng.normal(size=shape) * scale, space.low, space.high)
    else:
        raise SpecError(
            f"the observation space is {space}, expected Box, Discrete, MultiDiscrete or "
            "MultiBinary; use engine='torch'"
        )
    return np.asarray(rows, space.dtype)


def as_space(space: gymnasium.Space[Any] | int) -> gymnasium.Space[Any]:
    """Returns a space as it is, and a number as a Box of that many float32 features."""
    if isinstance(space, gymnasium.Space):
        return space
    return gymnasium.spaces.Box(-np.inf, np.inf, (space,), np.float32)


def _space_of(state: Tensor) -> gymnasium.Space[Any]:
    return gymnasium.spaces.Box(-np.inf, np.inf, tuple(state.shape), np.float32)


def _state(module: nn.Module) -> dict[str, Tensor]:
    """The tensors of the module that are not None."""
    for name, tensor in module.state_dict(keep_vars=True).items():
        if is_lazy(tensor) or (isinstance(tensor, Tensor) and tensor.is_meta):
            raise SpecError(
                f"parameter {name!r} has no numbers yet, expected a module that can be run: call "
                "it once with observations, or take it from the meta device"
            )
    return tensors_of(module)


def _check_module(module: nn.Module) -> None:
    if torch_module._global_forward_hooks or torch_module._global_forward_pre_hooks:
        raise SpecError(
            "torch has forward hooks for all modules, which native code would not call: remove "
            "them, or use engine='torch'"
        )
    for name, layer in module.named_modules():
        # lazy layers have hooks of their own, and `_state` raises an error for them
        is_lazy_layer = isinstance(layer, nn.modules.lazy.LazyModuleMixin)
        if not is_lazy_layer and (layer._forward_hooks or layer._forward_pre_hooks):
            raise SpecError(
                f"layer {name!r} has forward hooks, which native code would not call: remove them, "
                "or use engine='torch'"
            )
        if isinstance(layer, torch.jit.ScriptModule) or hasattr(layer, "_orig_mod"):
            who = f"layer {name!r}" if name else "the module"
            raise SpecError(
                f"{who} is compiled, and its functions cannot be seen: give the module that it "
                "was made of, or use engine='torch'"
            )


def _inputs(
    spaces: Sequence[gymnasium.Space[Any]],
    num_rows: int,
    rng: np.random.Generator,
    device: torch.device,
) -> list[Tensor]:
    """Rows of observations and of each state."""
    return [torch.from_numpy(random_rows(space, num_rows, rng)).to(device) for space in spaces]


def forward(module: nn.Module, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Runs the module on observations and states; its outputs, then its new states, as a tuple."""
    obs, *state = (each.clone() for each in inputs)
    try:
        outputs = call_module(module, obs, *([tuple(state)] if state else []))
    except SpecError:
        raise
    except Exception as error:
        raise SpecError(
            f"the module fails for observations of shape {tuple(obs.shape)} and {obs.dtype}: "
            f"{type(error).__name__}: {error}"
        ) from error
    if state:
        outputs = _with_states(outputs, state)
    is_tuple = isinstance(outputs, tuple | list)
    if not is_tuple or not outputs or not all(isinstance(each, Tensor) for each in outputs):
        got = [type(each).__name__ for each in outputs] if is_tuple else type(outputs).__name__
        raise SpecError(
            f"the module returned {got}, expected a tuple of tensors, (logits, value) or (mean, "
            "log_std, value), see rollouts.TorchPolicy"
        )
    for place, output in enumerate(outputs):
        if not output.is_floating_point():
            raise SpecError(f"output {place} of the module is of {output.dtype}, expected float32")
    return tuple(outputs)


def _with_states(outputs: Any, state: Sequence[Tensor]) -> tuple[Any, ...]:
    """(*outputs, new_state) of a module with memory, with the states as outputs of their own."""
    new = outputs[-1] if isinstance(outputs, tuple | list) and outputs else None
    shapes = [tuple(each.shape) for each in state]
    if not isinstance(new, tuple | list) or [tuple(np.shape(each)) for each in new] != shapes:
        raise SpecError(
            f"the module returned {type(new).__name__} as its last output, expected its new state: "
            f"a tuple of tensors of shapes {shapes}, see rollouts.RecurrentTorchPolicy"
        )
    return (*outputs[:-1], *new)


def _output(registers: Registers, memory: StorageTags, output: Tensor) -> int:
    """The register of an output (B, ...), or of one (...) that is the same in every row."""
    try:
        axis, (ids,) = without_rows(memory.read(output))
        if axis not in (0, None):
            raise Unreadable(f"its rows are along dimension {axis}, expected (B, ...)")
        return registers.register(ids.reshape(-1))
    except Unreadable as error:
        raise SpecError(f"the module's output of shape {tuple(output.shape)}: {error}") from None


def compare(
    program: Program, params: Sequence[Array], rows: Array, outputs: Sequence[Tensor]
) -> None:
    """Raises SpecError where the program's results differ from the module's."""
    own, exact = program.evaluate(params, rows), program.evaluate(params, rows, np.float64)
    for place, output in enumerate(outputs):
        ours = own[place]
        theirs = output.detach().cpu().float().numpy()
        theirs = theirs.reshape(len(rows) if theirs.size == ours.size else 1, -1)
        if theirs.shape[1] != ours.shape[1]:
            far = f"in shape {tuple(output.shape)}"
        else:
            apart = difference(theirs, ours)
            if (apart <= tolerance(theirs, ours, exact[place])).all():
                continue
            far = f"by {apart.max()}"
        raise SpecError(
            f"output {place} of the module differs {far} from the same operations in NumPy: does "
            "forward depend on something else than the observations and the state_dict? Use "
            "engine='torch'"
        )


def tolerance(theirs: Array, ours: Array, exact: Array) -> float:
    """Largest difference allowed: 1e-5 of the largest result, or a few times the effect of rounding
    on native results, which grows where nearly equal features are normalised. Huge numbers that
    mask actions, equal in both, do not count."""
    theirs, ours, exact = np.broadcast_arrays(theirs, ours, exact)
    counts = (np.abs(theirs) < _MASKING) | (ours != theirs)
    rounding = float(np.abs(ours[counts] - exact[counts]).max(initial=0))
    largest = float(np.abs(theirs[counts]).max(initial=0))
    return _TOLERANCE * max(1.0, largest) + 16 * rounding


def difference(theirs: Array, ours: Array) -> Array:
    """Distances between results; 0 where both are the same infinity."""
    with np.errstate(invalid="ignore"):
        return np.where(ours == theirs, 0, np.abs(ours - theirs))
