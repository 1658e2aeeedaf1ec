# SPDX-License-Identifier: Apache-2.0
"""Functions that run in a learner's actor when its weights are published.

They are functions of a module, so that Ray can call them in the actor by name.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rollouts.errors import SpecError
from rollouts.support.ray_private import make_tensor_store
from rollouts.workers.on_ray.flat_weights import Layout, lay_out, pack
from rollouts.workers.tensor_transport import TensorTransport
from rollouts.workers.weight_store import DeltaPlan
from rollouts.workers.weight_transport import (
    Array,
    Narrowed,
    Shapes,
    Stored,
    by_policy,
    bytes_of,
    check_shapes,
    narrowed,
    said_of,
    to_host,
)

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An order for a snapshot of weights.

    Attributes:
      coordinator  Name of the coordinator that asks; no other ever has it.
      attempt      Numbers the coordinator's snapshots.
      method       The learner's method that returns its weights.
      policy       Name of the policy; None where `method` returns weights by policy.
      policies     Names of the policies that are expected; None for any.
      shapes       Shapes of the weights of policies that are known.
      num_results  Number of policies for which the call has return values.
      dtype        See `WeightTransport`.
      plans        The stored parts of each policy's newest weights; None stores all arrays.
      transport    Transport from this process to workers; "object_store" for none.
    """

    coordinator: str
    attempt: int
    method: str
    policy: str | None
    policies: tuple[str, ...] | None
    shapes: Mapping[str, Shapes]
    num_results: int
    dtype: str | None
    plans: Mapping[str, DeltaPlan] | None
    transport: TensorTransport


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenSnapshot:
    """Facts about the snapshot of one policy's weights.

    Attributes:
      sizes   name -> bytes, of all arrays.
      names   Names of the arrays that were stored.
      layout  Layout of the buffer that `give` returns; empty where there is none.
    """

    sizes: dict[str, int]
    names: frozenset[str]
    layout: Layout


@dataclass(slots=True)
class _Kept:
    attempt: int
    buffer: Tensor | None  # until it is given to Ray
    stored: dict[str, Stored]  # to compare the next snapshot with; empty without a plan


_lock = threading.Lock()
# by coordinator and policy
_kept: dict[tuple[str, str], _Kept] = {}


def take(learner: Any, order: Order) -> tuple[Any, ...]:
    """Asks the learner for its weights, and copies them.

    Returns:
      policy -> TakenSnapshot, and then for each of these policies name -> array, which Ray copies
      into its object store; None for each result without a policy.
    Raises:
      SpecError: The learner returned no weights that can be published.
      Exception: What the learner raised.
    """
    # made before this returns, because Ray then fetches the results on another thread
    make_tensor_store()
    weights = _ask(learner, order)
    copies = {}
    for policy, own in weights.items():
        with said_of(policy):
            check_shapes(own, order.shapes.get(policy))
            values, originals = narrowed(own, order.dtype)
            copies[policy] = values, to_host(values, originals, own)
    # after all checks, so that weights that are refused change nothing that is kept
    taken, arrays = {}, []
    for policy, (values, stored) in copies.items():
        taken[policy] = _take(policy, values, stored, order)
        arrays.append({name: stored[name] for name in taken[policy].names})
    return taken, *arrays, *[None] * (order.num_results - len(arrays))


def give(learner: Any, coordinator: str, policy: str, attempt: int) -> Tensor:
    """Gives the buffer of a snapshot to Ray, which keeps it here as long as it is referred to."""
    with _lock:
        kept = _kept[coordinator, policy]
        buffer, kept.buffer = kept.buffer, None
    assert buffer is not None and kept.attempt == attempt
    return buffer


def forget(learner: Any, coordinator: str) -> None:
    """Frees the snapshots of a coordinator that is closed, or has newer ones of other learners."""
    with _lock:
        for key in [key for key in _kept if key[0] == coordinator]:
            del _kept[key]


def _ask(learner: Any, order: Order) -> Mapping[str, Mapping[str, Array | Tensor]]:
    """Returns policy -> weights."""
    weights = getattr(learner, order.method)()
    if order.policy is None:
        weights = by_policy(weights, order.policies, f"weights that {order.method}() returned")
        if len(weights) > order.num_results:
            raise SpecError(
                f"{order.method}() returned weights of {len(weights)} policies, expected "
                f"{order.num_results} at most"
            )
        return weights
    with said_of(order.policy):
        if not isinstance(weights, Mapping):
            raise SpecError(
                f"{order.method}() returned a {type(weights).__name__}, expected a dict of name -> "
                "numpy array or torch tensor, as policy.weights() or module.state_dict()"
            )
    return {order.policy: weights}


def _take(
    policy: str, values: Mapping[str, Array | Tensor], stored: Mapping[str, Stored], order: Order
) -> TakenSnapshot:
    """Copies the part of a policy's weights that has to be kept here."""
    names = _names_to_store(policy, stored, order)
    layout: Layout = ()
    buffer = None
    if order.transport != "object_store" and names:
        layout = lay_out(stored, sorted(names))
        buffer = pack(layout, values, _device(values))
    if buffer is not None or order.plans is not None:
        has_plan = order.plans is not None
        kept = {name: _copy(value) for name, value in stored.items()} if has_plan else {}
        with _lock:
            former = _kept.get((order.coordinator, policy))
            # an attempt that was given up may come late
            if former is None or former.attempt < order.attempt:
                _kept[order.coordinator, policy] = _Kept(order.attempt, buffer, kept)
    sizes = {name: bytes_of(value) for name, value in stored.items()}
    return TakenSnapshot(sizes=sizes, names=names, layout=layout)


def _names_to_store(policy: str, stored: Mapping[str, Stored], order: Order) -> frozenset[str]:
    plan = (order.plans or {}).get(policy)
    if plan is None:
        return frozenset(stored)
    with _lock:
        kept = _kept.get((order.coordinator, policy))
    before = kept.stored if kept is not None and kept.attempt == plan.base else {}
    return plan.names_to_store(stored, before)


def _device(values: Mapping[str, Array | Tensor]) -> Any:
    """Returns the GPU of the tensors, from which direct transports take them, or "cpu"."""
    devices = [value.device for value in values.values() if not isinstance(value, np.ndarray)]
    on_gpu = [device for device in devices if device.type != "cpu"]
    return on_gpu[0] if on_gpu else "cpu"


def _copy(stored: Stored) -> Stored:
    if isinstance(stored, Narrowed):
        return Narrowed(stored.bits.copy(), stored.dtype)
    return stored.copy()
