# SPDX-License-Identifier: Apache-2.0
"""Copies of what an environment reports, because environments reuse their objects."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np

from rollouts.errors import DTypeError

_UNCHANGING = (type(None), int, float, complex, str, bytes, np.number, np.bool_)


def copied(value: Any) -> Any:
    """Returns a copy that the environment cannot change any more.

    Dicts are copied part by part. A part that cannot be copied, such as a lock, stays the
    environment's own object.
    """
    if isinstance(value, _UNCHANGING):
        return value
    if type(value) is dict:
        return {key: copied(part) for key, part in value.items()}
    if type(value) is np.ndarray and not value.dtype.hasobject:
        return value.copy()
    try:
        return copy.deepcopy(value)
    except Exception:
        return value


def plain_info(info: Any) -> dict[Any, Any]:
    """An info as a dict; some environments return None.

    Raises:
      DTypeError: It is something else.
    """
    if type(info) is dict:
        return info
    if info is None:
        return {}
    if not isinstance(info, Mapping):
        raise DTypeError(f"the info is of type {type(info).__name__}, expected a dict")
    return dict(info)
