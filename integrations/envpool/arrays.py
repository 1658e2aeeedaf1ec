# SPDX-License-Identifier: Apache-2.0
"""Arrays that may be NumPy's, or JAX's where a function of `xla()` is compiled."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np


def library(array: Any) -> Any:
    """NumPy for its own arrays, else `jax.numpy`."""
    return np if isinstance(array, np.ndarray) else importlib.import_module("jax.numpy")
