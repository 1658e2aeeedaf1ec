# SPDX-License-Identifier: Apache-2.0
"""WeightTransport: how weights travel. Torch tensors as NumPy arrays, floats in 16 bits and back.

Uses torch only where it is loaded already or 16-bit floats are asked for, and never Ray.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from rollouts.checks import flag, whole_number
from rollouts.errors import SpecError
from rollouts.policies.output_checks import check_named
from rollouts.support.keywords import explains_fields
from rollouts.workers.tensor_transport import TensorTransport, check_name

if TYPE_CHECKING:
    from torch import Tensor

Array = NDArray[Any]

# the name of the policy where there is one agent
ONLY = ""

# name -> shape, of a policy's weights
Shapes = Mapping[str, tuple[int, ...]]

# how a worker got weights: from the learner's process, or through Ray's object store
Way = Literal["direct", "object_store"]


class Pulls:
    """Counts the ways in which this process got weights. Not thread-safe."""

    def __init__(self) -> None:
        """Begins at none."""
        self._counts: Counter[Way] = Counter()

    def add(self, way: Way) -> None:
        """Counts one."""
        self._counts[way] += 1

    def take(self) -> dict[str, int]:
        """Returns what was counted since the last call."""
        counts, self._counts = self._counts, Counter()
        return {way: count for way, count in counts.items()}


pulls = Pulls()


# bits of +infinity, by the name of the 16-bit type
_INFINITY = {"float16": 0x7C00, "bfloat16": 0x7F80}


@explains_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class WeightTransport:
    """The form in which published weights are stored and sent to the workers.

    Attributes:
      dtype: "float16" or "bfloat16": float32 and float64 arrays are stored in 16 bits and come
        back in their own dtype with 11 or 8 significant bits instead of 24. Workers then act with
        rounded weights, and their log_prob is that of the rounded policy. Other arrays, such as
        integers, are not touched. None stores all as they are.
      delta: Store only the arrays that differ from the version before; the others are kept. Pays
        where part of the model is frozen; costs one comparison of each such array.
      first_version: Number of the first published weights; a resumed run goes on counting.
      tensor_transport: How weights of `RolloutCoordinator.publish_from` go from a learner's actor
        to the workers, see `CollectOptions.tensor_transport`; "auto" for the way of fragments.
        With any value they are in the object store, too, for workers to which a transfer fails,
        as after the learner's death.
    """

    dtype: str | None = None
    delta: bool = False
    first_version: int = 1
    tensor_transport: TensorTransport = "auto"

    def __post_init__(self) -> None:
        """Raises SpecError where a value is out of range, DTypeError where `delta` is no bool."""
        if self.dtype is not None and self.dtype not in _INFINITY:
            raise SpecError(
                f"weights.dtype is {self.dtype!r}, expected None or one of {list(_INFINITY)}"
            )
        flag("weights.delta", self.delta)
        check_name("weights.tensor_transport", self.tensor_transport)
        whole_number("weights.first_version", self.first_version, 1)


@dataclass(frozen=True, slots=True, eq=False)
class Narrowed:
    """A float array in 16 bits: float16, or bfloat16 as the uint16 of its bits."""

    bits: Array
    dtype: str  # np.dtype.str of the array before it was narrowed

    def restore(self) -> Array:
        """Returns a new array of the original dtype."""
        if self.bits.dtype == np.float16:
            return self.bits.astype(self.dtype)
        # a bfloat16 is the upper half of a float32
        wide = self.bits.astype(np.uint32)
        wide <<= 16
        return wide.view(np.float32).astype(self.dtype, copy=False)


Stored = Array | Narrowed


def to_stored(weights: Mapping[str, Array | Tensor], dtype: str | None) -> dict[str, Stored]:
    """Makes C-contiguous NumPy arrays of weights.

    CPU tensors and contiguous arrays become views of the same memory, so a function that
    stores the result must copy it before the caller goes on. Tensors of a GPU are copied to pinned
    memory; all copies start before one wait for the GPU.

    Args:
      weights: name -> NumPy array or torch tensor, any shapes, numeric dtypes.
      dtype: None, or "float16" or "bfloat16": float32 and float64 arrays are rounded to it (to the
        nearest, ties to even); others stay as they are. A bfloat16 tensor is stored in 16 bits in
        any case, and comes back as float32, as NumPy has no such type.
    Raises:
      SpecError: a value is no numeric array, or a finite number becomes infinite in `dtype`.
    """
    values, originals = narrowed(weights, dtype)
    return to_host(values, originals, weights)


def narrowed(
    weights: Mapping[str, Array | Tensor], dtype: str | None
) -> tuple[dict[str, Array | Tensor], dict[str, str]]:
    """Rounds the arrays that `to_stored` rounds, on the device where they are.

    Returns:
      name -> the value to store, a bfloat16 as the int16 of its bits; and for narrowed values
      name -> the dtype before, as np.dtype.str.
    """
    values: dict[str, Array | Tensor] = {}
    originals: dict[str, str] = {}
    for name, value in weights.items():
        original = _float_dtype(name, value)
        target = "bfloat16" if original == "bfloat16" else dtype
        if original is not None and target is not None:
            originals[name] = "<f4" if original == "bfloat16" else original
            values[name] = _narrow(value, target)
        else:
            values[name] = value
    return values, originals


def to_host(
    values: Mapping[str, Array | Tensor],
    originals: Mapping[str, str],
    weights: Mapping[str, Array | Tensor],
) -> dict[str, Stored]:
    """Makes arrays from what `narrowed` returned for `weights`; see `to_stored`."""
    stored: dict[str, Stored] = {}
    for name, value in _to_host(values).items():
        array = _as_array(value)
        if name in originals:
            array = array.view(np.uint16) if array.dtype == np.int16 else array
            _check_range(name, array, weights[name])
            stored[name] = Narrowed(array, originals[name])
        else:
            stored[name] = array
    return stored


def from_stored(stored: Mapping[str, Stored]) -> dict[str, Array]:
    """Returns the arrays; those that were narrowed get their original dtype back."""
    return {
        name: value.restore() if isinstance(value, Narrowed) else value
        for name, value in stored.items()
    }


def by_policy(
    weights: Any, policies: Collection[str] | None, what: str
) -> Mapping[str, Mapping[str, Array | Tensor]]:
    """Returns policy -> weights; the weights of a single agent are given without a name.

    Args:
      weights: What the user gave; errors call it `what`.
      policies: The names of all policies; None where they are not known.
    Raises:
      SpecError: `weights` have another form, or an unknown policy.
    """
    if policies is not None and tuple(policies) == (ONLY,):
        return {ONLY: weights}
    of_one = "name -> array, or of " if policies is None else ""
    names = "policy" if policies is None else f"one of {list(policies)}"
    expected = f"expected a dict of {of_one}{names} -> that policy's weights"
    if not isinstance(weights, Mapping):
        raise SpecError(f"{what} are of type {type(weights).__name__}, {expected}")
    if policies is None and not any(isinstance(own, Mapping) for own in weights.values()):
        return {ONLY: weights}
    if not weights:
        raise SpecError(f"{what} are empty, {expected}")
    for policy, own in weights.items():
        if policies is not None and policy not in policies:
            raise SpecError(f"{what} have the unknown policy {policy!r}, {expected}")
        if not isinstance(own, Mapping):
            raise SpecError(f"{what}[{policy!r}] is a {type(own).__name__}, {expected}")
    return dict(weights)


def check_shapes(weights: Mapping[str, Array | Tensor], shapes: Shapes | None) -> None:
    """Raises SpecError where arrays are missing, too many or of other shapes; None allows any.
    Raises DTypeError where weights are no dict."""
    check_named(weights)
    if shapes is None:
        return
    expected = "expected the arrays of the policy that make_policy makes"
    for whose, names in (
        ("lack", [name for name in shapes if name not in weights]),
        ("have the unknown", [name for name in weights if name not in shapes]),
    ):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise SpecError(f"weights {whose} {names[0]!r}{more}, {expected}")
    for name, shape in shapes.items():
        given = getattr(weights[name], "shape", None)
        if given is not None and tuple(given) != shape:
            raise SpecError(
                f"weights[{name!r}] has shape {tuple(given)}, expected {shape} as in the policy "
                "that make_policy makes"
            )


@contextlib.contextmanager
def said_of(policy: str) -> Iterator[None]:
    """Adds the policy's name to a SpecError about its weights; a single policy has none."""
    try:
        yield
    except SpecError as error:
        if not policy:
            raise
        raise SpecError(f"of policy {policy!r}: {error}") from error


def bytes_of(stored: Stored) -> int:
    """Bytes of the array as it is stored."""
    return stored.bits.nbytes if isinstance(stored, Narrowed) else stored.nbytes


def is_same(a: Stored, b: Stored) -> bool:
    """Tells if two stored arrays agree in dtype, shape and every byte."""
    if isinstance(a, Narrowed) or isinstance(b, Narrowed):
        return (
            isinstance(a, Narrowed)
            and isinstance(b, Narrowed)
            and a.dtype == b.dtype
            and is_same(a.bits, b.bits)
        )
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    # in blocks: changed arrays mostly differ in the first block, and a block needs little memory
    left, right = a.reshape(-1).view(np.uint8), b.reshape(-1).view(np.uint8)
    block = 1 << 18
    return all(
        np.array_equal(left[i : i + block], right[i : i + block])
        for i in range(0, left.size, block)
    )


def _float_dtype(name: str, value: Any) -> str | None:
    """Returns the dtype of a float array that can be narrowed, None for other numeric arrays."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        narrowable = {torch.float32: "<f4", torch.float64: "<f8", torch.bfloat16: "bfloat16"}
        return narrowable.get(value.dtype)
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biufc":
        given = type(value).__name__
        given += f" of {value.dtype}" if isinstance(value, np.ndarray) else ""
        raise SpecError(
            f"weights[{name!r}] is {given}, expected a numeric numpy array or a torch tensor: "
            "pass policy.weights() or module.state_dict()"
        )
    return value.dtype.str if value.dtype in (np.float32, np.float64) else None


def _narrow(value: Array | Tensor, dtype: str) -> Tensor:
    """Rounds to 16 bits on the array's device; returns a bfloat16 as the int16 of its bits."""
    import torch

    from rollouts.policy import as_tensor

    if isinstance(value, np.ndarray):
        value = as_tensor(_as_array(value))
    narrow = value.detach().to(getattr(torch, dtype)).contiguous()
    return narrow.view(torch.int16) if dtype == "bfloat16" else narrow


def _to_host(values: Mapping[str, Array | Tensor]) -> dict[str, Array | Tensor]:
    """Moves the tensors of GPUs to pinned memory, in the order of each GPU's current stream."""
    moved = dict(values)
    devices = set()
    for name, value in values.items():
        if not isinstance(value, np.ndarray) and value.device.type != "cpu":
            import torch

            # torch keeps pinned memory that was freed, so only the first call pays for it
            target = torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
            moved[name] = target.copy_(value.detach(), non_blocking=True)
            devices.add(value.device)
    for device in devices:
        torch.cuda.current_stream(device).synchronize()
    return moved


def _as_array(value: Array | Tensor) -> Array:
    """Returns a C-contiguous array, in the memory of `value` if that is contiguous."""
    if not isinstance(value, np.ndarray):
        value = value.detach().contiguous().numpy()
    # not ascontiguousarray, which makes (1,) of ()
    return np.asarray(value, order="C")


def _check_range(name: str, bits: Array, value: Array | Tensor) -> None:
    """Raises SpecError where rounding made a finite number infinite."""
    dtype = "float16" if bits.dtype == np.float16 else "bfloat16"
    is_infinite = (bits.view(np.uint16) & 0x7FFF) == _INFINITY[dtype]
    if not is_infinite.any():
        return
    source = value if isinstance(value, np.ndarray) else value.detach().double().cpu().numpy()
    overflown = np.abs(source[is_infinite & np.isfinite(source)])
    if overflown.size:
        raise SpecError(
            f"weights[{name!r}] has the value {overflown.max():g}, which {dtype} cannot hold: "
            "publish these weights without narrowing"
        )
