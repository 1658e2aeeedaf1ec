# SPDX-License-Identifier: Apache-2.0
"""What runs in a learner's actor when its weights are published; the arrays stay in Ray.

Functions of a module, which Ray calls in the actor by their names.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rollouts.cluster.flat_weights import Layout, lay_out, pack
from rollouts.distributed.device_options import ON_HOST, TensorTransport
from rollouts.distributed.weight_transport import (
    Array,
    Narrowed,
    Stored,
    bytes_of,
    narrowed,
    to_host,
)
from rollouts.distributed.weights import DeltaPlan
from rollouts.errors import SpecError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a snapshot is to be like.

    Attributes:
      coordinator  Names who asks, for ever.
      attempt      Numbers the coordinator's snapshots.
      method       Of the learner: returns its weights.
      dtype        See `WeightTransport`.
      plan         What is stored of the version before; None stores all.
      base         The attempt that became that version.
      transport    By which workers are to get it from here; "object_store" for not at all.
    """

    coordinator: str
    attempt: int
    method: str
    dtype: str | None
    plan: DeltaPlan | None
    base: int
    transport: TensorTransport


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What is said of a snapshot.

    Attributes:
      sizes   name -> bytes, of all arrays.
      names   Those that were stored.
      layout  Of the buffer that `give` has of these; empty where there is none.
    """

    sizes: dict[str, int]
    names: frozenset[str]
    layout: Layout


@dataclass(slots=True)
class _Kept:
    attempt: int
    buffer: Tensor | None  # until it is given to Ray
    stored: dict[str, Stored]  # to compare the next ones with; empty without a plan


_lock = threading.Lock()
_kept: dict[str, _Kept] = {}


def take(learner: Any, order: Order) -> tuple[Taken, dict[str, Stored]]:
    """Has the learner say its weights, and copies them.

    Returns:
      What was stored, and name -> array, which Ray copies into its object store.
    Raises:
      SpecError: These are no weights.
      Exception: What the learner raised.
    """
    if order.transport == "gloo":
        from rollouts.cluster import gloo_transport

        # an actor that Ray started again was told in its former life
        gloo_transport.register()
    weights = getattr(learner, order.method)()
    if not isinstance(weights, Mapping):
        raise SpecError(
            f"{order.method}() returned a {type(weights).__name__}, expected a dict of name -> "
            "numpy array or torch tensor, as policy.weights() or module.state_dict()"
        )
    values, originals = narrowed(weights, order.dtype)
    stored = to_host(values, originals, weights)
    names = _names_to_store(stored, order)
    layout: Layout = ()
    buffer = None
    if order.transport != "object_store" and names:
        layout = lay_out(stored, sorted(names))
        buffer = pack(layout, values, _device(values, order.transport))
    if buffer is not None or order.plan is not None:
        kept = {name: _copy(value) for name, value in stored.items()} if order.plan else {}
        with _lock:
            former = _kept.get(order.coordinator)
            # an attempt that was given up may come late
            if former is None or former.attempt < order.attempt:
                _kept[order.coordinator] = _Kept(order.attempt, buffer, kept)
    sizes = {name: bytes_of(value) for name, value in stored.items()}
    taken = Taken(sizes=sizes, names=names, layout=layout)
    return taken, {name: stored[name] for name in names}


def give(learner: Any, coordinator: str, attempt: int) -> Tensor:
    """Gives the buffer of a snapshot to Ray, which keeps it here until nobody refers to it."""
    with _lock:
        kept = _kept[coordinator]
        buffer, kept.buffer = kept.buffer, None
    assert buffer is not None and kept.attempt == attempt
    return buffer


def forget(learner: Any, coordinator: str) -> None:
    """Frees what was kept for a coordinator that is closed."""
    with _lock:
        _kept.pop(coordinator, None)


def _names_to_store(stored: Mapping[str, Stored], order: Order) -> frozenset[str]:
    if order.plan is None:
        return frozenset(stored)
    with _lock:
        kept = _kept.get(order.coordinator)
    before = kept.stored if kept is not None and kept.attempt == order.base else {}
    return order.plan.names_to_store(stored, before)


def _device(values: Mapping[str, Array | Tensor], transport: TensorTransport) -> Any:
    """The GPU that has the tensors, where a transport takes them from there."""
    if transport in ON_HOST:
        return "cpu"
    devices = [value.device for value in values.values() if not isinstance(value, np.ndarray)]
    on_gpu = [device for device in devices if device.type != "cpu"]
    return on_gpu[0] if on_gpu else "cpu"


def _copy(stored: Stored) -> Stored:
    if isinstance(stored, Narrowed):
        return Narrowed(stored.bits.copy(), stored.dtype)
    return stored.copy()
