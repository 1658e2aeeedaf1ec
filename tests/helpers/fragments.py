# SPDX-License-Identifier: Apache-2.0
"""Fragments that no worker made, without arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rollouts.distributed import FragmentInfo
from rollouts.learner.fragment import FragmentHandle


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
