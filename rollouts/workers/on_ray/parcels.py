# SPDX-License-Identifier: Apache-2.0
"""Parcels: the arrays of all fragments of a coordinator's answer, in one object of Ray.

The driver owns a parcel, as it is the result of the driver's own call. Fetching the results of
workers' calls from the coordinator, which owns those, would cost the driver one call for each
result.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import ray as _typed_ray

from rollouts.errors import WorkerError
from rollouts.learner.fragment import FragmentHandle
from rollouts.workers.on_ray.arrivals import with_arrays
from rollouts.workers.on_ray.ray_session import RemotePayload, fetch
from rollouts.workers.small_arrays import LARGE_BYTES, from_bytes

if TYPE_CHECKING:
    from rollouts.collecting.frame_stacks import Payload

# ray annotates only half of what it exports
ray: Any = _typed_ray

# s that a parcel may take to arrive from its node
_ARRIVAL_S = 10.0


def make_parcel(handles: Sequence[FragmentHandle]) -> list[Any]:
    """Returns the entries of fragments, in a coordinator's process; waits for small ones.

    An entry is what a worker returned; for fragments of `LARGE_BYTES` or more, Ray's reference to
    it; for lost arrays, the error.
    """
    entries: list[Any] = [_ref_of(handle) for handle in handles]
    small = [index for index, handle in enumerate(handles) if handle.info.nbytes < LARGE_BYTES]
    try:
        found = ray.get([entries[index] for index in small])
    except ray.exceptions.RayError:
        found = [_or_error(entries[index]) for index in small]
    for index, arrays in zip(small, found, strict=True):
        entries[index] = arrays
    return entries


class Parcel:
    """The driver's end of the entries of one call, which are fetched together."""

    def __init__(self, ref: Any) -> None:
        """Refers to the call's result, which may not be there yet."""
        self._ref = ref
        self._entries: list[Any] | None = None

    def bring(self) -> Future[Any]:
        """Begins to bring all arrays to this process; see `RemotePayload.bring`.

        Returns:
          A future that ends once the parcel and the large arrays are here, or lost.
        """

        def bring_large(entries: Sequence[Any]) -> list[Future[Payload]]:
            self._entries = _with_payloads(entries)
            return [each.bring() for each in self._entries if isinstance(each, RemotePayload)]

        return with_arrays(self._ref.future(), bring_large)

    def entry(self, index: int, timeout_s: float) -> Any:
        """Returns an entry, with a `RemotePayload` in place of a reference.

        Raises:
          TimeoutError: The parcel did not arrive in time.
          WorkerError: The parcel or the fragment's arrays are lost.
        """
        if self._entries is None:
            self._entries = _with_payloads(fetch(self._ref, timeout_s))
        entry = self._entries[index]
        if isinstance(entry, WorkerError):
            raise WorkerError(*entry.args)
        return entry


class ParcelPayload:
    """The arrays of a fragment in a parcel; a call fetches them, see `FragmentHandle.fetch`."""

    def __init__(self, parcel: Parcel, index: int) -> None:
        """Refers to an entry."""
        self._parcel, self._index = parcel, index

    def __call__(self, timeout_s: float) -> Payload:
        """Fetches the arrays."""
        entry = self._parcel.entry(self._index, timeout_s)
        return from_bytes(entry(timeout_s) if isinstance(entry, RemotePayload) else entry)

    def argument(self) -> Any:
        """Returns what another actor is given: small arrays, which come here first, or a reference.

        Raises:
          TimeoutError, WorkerError: As `Parcel.entry`.
        """
        entry = self._parcel.entry(self._index, _ARRIVAL_S)
        return entry.argument() if isinstance(entry, RemotePayload) else from_bytes(entry)

    def has_holder(self, timeout_s: float) -> bool:
        """Returns False: no worker keeps the arrays."""
        return False


# the arrays of a fragment that are in Ray, and can be given to another actor
InRay = RemotePayload | ParcelPayload


def _with_payloads(entries: Sequence[Any]) -> list[Any]:
    """Returns the entries with a `RemotePayload` in place of each reference."""
    return [RemotePayload(one) if isinstance(one, ray.ObjectRef) else one for one in entries]


def _ref_of(handle: FragmentHandle) -> Any:
    """Returns Ray's reference to the arrays of a fragment of this process's own workers."""
    assert isinstance(handle.fetch, RemotePayload)
    return handle.fetch.argument()


def _or_error(ref: Any) -> Any:
    """Fetches arrays; returns the error if they are lost."""
    try:
        return fetch(ref)
    except WorkerError as error:
        return error
