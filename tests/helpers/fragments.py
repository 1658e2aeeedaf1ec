# SPDX-License-Identifier: Apache-2.0
"""Fragments that no worker made, without arrays, and the ways by which others travel."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest

from rollouts.learner.fragment import FragmentHandle
from rollouts.workers import FragmentInfo

# transports of tensors; NIXL needs no GPU
HAS_NIXL = find_spec("nixl") is not None
needs_nixl = pytest.mark.skipif(not HAS_NIXL, reason="needs NIXL: pip install nixl")
TRANSPORTS = ["object_store", pytest.param("nixl", marks=needs_nixl)]
# for tests whose other half is another test's; `make test-all` has both ways here, too
BY_STORE = [TRANSPORTS[0], pytest.param("nixl", marks=[needs_nixl, pytest.mark.slow])]
BY_NIXL = [
    pytest.param("object_store", marks=pytest.mark.slow if HAS_NIXL else ()),
    TRANSPORTS[1],
]
# each way, and whole and narrowed weights, once
WAYS = [
    pytest.param(transport, options, id=f"{transport}-{name}", marks=marks)
    for transport, name, options, marks in (
        ("object_store", "", {}, [pytest.mark.slow]),
        ("object_store", "delta", {"dtype": "bfloat16", "delta": True}, []),
        ("nixl", "", {}, [needs_nixl]),
        ("nixl", "delta", {"dtype": "bfloat16", "delta": True}, [needs_nixl, pytest.mark.slow]),
    )
]
# for tests of what does not depend on the way
ANY_TRANSPORT: Any = "nixl" if HAS_NIXL else "object_store"


def fragment_info(
    seq_no: int,
    worker_id: int = 0,
    incarnation: int = 0,
    *,
    num_steps: int = 10,
    min_policy_version: int = 0,
) -> FragmentInfo:
    return FragmentInfo(
        worker_id=worker_id,
        incarnation=incarnation,
        seq_no=seq_no,
        num_steps=num_steps,
        min_policy_version=min_policy_version,
        max_policy_version=min_policy_version,
        collect_s=0.0,
        nbytes=100,
    )


def make_handle(
    seq_no: int,
    worker_id: int = 0,
    incarnation: int = 0,
    *,
    min_policy_version: int = 0,
    on_resolve: Callable[[], None] = lambda: None,
) -> FragmentHandle:
    def fetch(timeout_s: float) -> Any:
        on_resolve()

    info = fragment_info(seq_no, worker_id, incarnation, min_policy_version=min_policy_version)
    return FragmentHandle(info, fetch)
