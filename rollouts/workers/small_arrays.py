# SPDX-License-Identifier: Apache-2.0
"""Small fragments as bytes, which processes pass on without handling each array. No Ray.

Ray stores each array of an object by itself. For a fragment of a few kilobytes in some fifteen
arrays, that costs each process on the way several times as much as plain pickle does.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from rollouts.collecting.frame_stacks import Payload

# a fragment of this many bytes or more is not small. Ray brings smaller objects to the process that
# owns them in any case; its own limit is 102 400, with its headers
LARGE_BYTES = 100_000


def as_bytes(payload: Payload) -> Payload | bytes:
    """Returns a small fragment's arrays as bytes, and others as they are."""
    if payload.nbytes >= LARGE_BYTES:
        return payload
    arrays: list[pickle.PickleBuffer] = []
    try:
        rest = pickle.dumps(payload, 5, buffer_callback=arrays.append)
    except Exception:
        # the payload has a class of the user's program that only Ray's pickle can send
        return payload
    # bytes, so that the arrays made of them are read-only, as all that come through Ray
    return pickle.dumps((rest, [one.raw().tobytes() for one in arrays]), 5)


def from_bytes(entry: Any) -> Payload:
    """Returns the arrays of what `as_bytes` returned; from bytes they are read-only."""
    if isinstance(entry, bytes):
        rest, arrays = pickle.loads(entry)
        entry = pickle.loads(rest, buffers=arrays)
    return cast("Payload", entry)
