# SPDX-License-Identifier: Apache-2.0
"""Ids of environments that are kernels on a GPU."""

from __future__ import annotations

import functools

from grid_ids import without_equal_kinds

import rollouts


@functools.cache
def light_kernel_ids() -> tuple[str, ...]:
    """Ids of the light environments with kernels: to ask each id for its spec takes two seconds."""
    asked = (one for one in without_equal_kinds(rollouts.env_ids()) if "/" not in one)
    return tuple(one for one in asked if rollouts.env_spec(one).runs_on_gpu)
