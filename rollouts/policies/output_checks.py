# SPDX-License-Identifier: Apache-2.0
"""Checks of what policies and their modules return, before it is kept or sent anywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rollouts.checks import whole_number
from rollouts.errors import DTypeError, SpecError
from rollouts.policies.protocol import PolicyOutput

Array = NDArray[Any]


def check_policy(policy: Any) -> None:
    """Raises SpecError for an object that is no policy, before it is asked for an action."""
    act = getattr(policy, "act", None) or getattr(policy, "act_rows", None)
    if callable(act) and not isinstance(policy, type):
        return
    if isinstance(policy, type):
        what = f"the class {policy.__name__}"
        hint = f"make one of it: {policy.__name__}(...)"
    else:
        what = f"a {type(policy).__name__}"
        is_module = hasattr(policy, "parameters") and callable(policy)
        hint = (
            "give rollouts.TorchPolicy(module, env.single_action_space)"
            if is_module
            else "see rollouts.policy.Policy for the methods that it needs"
        )
    raise SpecError(f"policy is {what}, expected one with act() and value(): {hint}")


def check_seed(seed: Any) -> None:
    """Raises SpecError unless a seed is a whole number of at least 0, or several of them."""
    for number in seed if isinstance(seed, list | tuple | np.ndarray) else [seed]:
        if number is not None:
            whole_number("seed", number, 0)


def check_named(weights: Any) -> None:
    """Raises DTypeError where weights are no mapping of names to arrays."""
    if isinstance(weights, Mapping):
        return
    hint = "module.state_dict()" if hasattr(weights, "state_dict") else "policy.weights()"
    raise DTypeError(
        f"weights are a {type(weights).__name__}, expected a dict of names and arrays: {hint}"
    )


def check_names(weights: Any, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raises SpecError for other names or shapes, DTypeError for objects that are not weights."""
    check_named(weights)
    for kind, names in (
        ("lack", [name for name in shapes if name not in weights]),
        ("have the unknown", [name for name in weights if name not in shapes]),
    ):
        if names:
            raise SpecError(
                f"weights {kind} {names[0]!r}, expected those of the policy: {', '.join(shapes)}"
            )
    for name, shape in shapes.items():
        value = weights[name]
        found = tuple(value.shape) if hasattr(value, "shape") else np.shape(value)
        if found != tuple(shape):
            raise SpecError(f"weights have {name!r} of shape {found}, expected {tuple(shape)}")


def check_output(output: PolicyOutput, num_rows: int) -> None:
    """Raises SpecError where log_prob or value is not (B,), or an action or extra lacks B rows.

    Checks only shapes, which is cheap enough for each step; `check_finite` is for whole rollouts.
    """
    for name, array in (("log_prob", output.log_prob), ("value", output.value)):
        if np.shape(array) != (num_rows,):
            raise SpecError(
                f"the policy returned {name} of shape {np.shape(array)}, expected ({num_rows},): "
                f"one number per observation{_squeeze(name, np.shape(array), num_rows)}"
            )
    for name, array in (("action", output.action), *output.extras.items()):
        if np.shape(array)[:1] != (num_rows,):
            raise SpecError(
                f"the policy returned {name} of shape {np.shape(array)}, expected "
                f"({num_rows}, ...): one row per observation"
            )


def check_value(value: Array, num_rows: int) -> Array:
    """Returns the result of `Policy.value`; raises SpecError if it is not (B,)."""
    if np.shape(value) != (num_rows,):
        raise SpecError(
            f"the policy's value() returned shape {np.shape(value)}, expected ({num_rows},): "
            f"one number per observation{_squeeze('value', np.shape(value), num_rows)}"
        )
    return value


def check_finite(name: str, array: Array, env_id: NDArray[np.int32]) -> None:
    """Raises SpecError where `array` (..., B) has NaN or infinity, with the place of the first."""
    is_finite = np.isfinite(array)
    if is_finite.all():
        return
    first = tuple(int(index) for index in np.argwhere(~is_finite)[0])
    step = "after the last step" if len(first) == 1 else f"of step {first[0]}"
    raise SpecError(
        f"the policy returned {name} {array[first]} for environment {env_id[first[-1]]} {step}, "
        f"{array.size - np.count_nonzero(is_finite)} of {array.size} are not finite, expected "
        "finite numbers: has the training diverged? Lower the learning rate, or look at the weights"
    )


def check_action(action: Array, space: gymnasium.Space[Any]) -> None:
    """Raises SpecError where actions (B, ...) cannot belong to `space`."""
    shape = tuple(space.shape or ())
    if np.shape(action)[1:] != shape:
        raise SpecError(
            f"the policy returned actions of shape {np.shape(action)}, expected "
            f"{(len(action), *shape)}: one of {space} per observation"
        )
    if isinstance(space, gymnasium.spaces.Discrete):
        first, after = int(space.start), int(space.start) + int(space.n)
        wrong = (action < first) | (action >= after)
        if wrong.any():
            raise SpecError(
                f"the policy returned action {action[wrong][0]}, expected one of {space}: has its "
                "last layer as many outputs as there are actions?"
            )


def head_inputs(space: gymnasium.Space[Any]) -> tuple[str, ...]:
    """The names of a module's outputs from which actions in `space` are drawn."""
    return ("mean", "log_std") if isinstance(space, gymnasium.spaces.Box) else ("logits",)


def output_names(head: Any) -> Sequence[str] | None:
    """The names of the action outputs that a head takes; None for a user's head that names none."""
    names: Sequence[str] | None = getattr(head, "outputs", None)
    return names


def check_module_outputs(outputs: Any, names: Sequence[str] | None, num_rows: int) -> None:
    """Raises SpecError unless a module returned action outputs and then a value.

    Args:
      outputs: What it returned for B observations.
      names: Names of the action outputs, such as ("logits",); None: one or more of any names.
      num_rows: Observations B.
    """
    expected = f"a tuple ({', '.join([*(names or ['*action_outputs']), 'value'])})"
    is_tuple = isinstance(outputs, tuple | list)
    if not is_tuple or len(outputs) < 2 or (names is not None and len(outputs) != len(names) + 1):
        raise SpecError(
            f"the module returned {_described(outputs)} for {num_rows} observations, expected "
            f"{expected}: a policy needs the value besides the action, see rollouts.TorchPolicy"
        )
    value = tuple(outputs[-1].shape)
    if value not in ((num_rows,), (num_rows, 1)):
        raise SpecError(
            f"the module returned a value of shape {value} for {num_rows} observations, expected "
            f"({num_rows},) or ({num_rows}, 1): the last of {expected}"
        )
    first = tuple(outputs[0].shape)
    if first[:1] != (num_rows,) or (names == ("logits",) and len(first) != 2):
        raise SpecError(
            f"the module returned {names[0] if names else 'an action output'} of shape {first} for "
            f"{num_rows} observations, "
            f"expected ({num_rows}, ...): one row per observation"
        )


def _described(outputs: Any) -> str:
    if isinstance(outputs, tuple | list):
        shapes = ", ".join(str(tuple(getattr(each, "shape", ()))) for each in outputs)
        return f"{len(outputs)} outputs of shapes {shapes}"
    if hasattr(outputs, "shape"):
        return f"a single tensor of shape {tuple(outputs.shape)}"
    return f"a {type(outputs).__name__}"


def _squeeze(name: str, shape: tuple[int, ...], num_rows: int) -> str:
    return f"; {name}[:, 0] has that shape" if shape == (num_rows, 1) else ""
