# SPDX-License-Identifier: Apache-2.0
"""WorkerFailure: what a call in a worker returns in place of an exception."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from rollouts.errors import EnvError

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFailure:
    """An exception inside a worker, as a plain value because exceptions may not pickle."""

    message: str
    traceback: str
    reason: str = "worker_error"  # or "env_error": the environment's fault, not the policy's


def guarded(function: Callable[[], T]) -> T | WorkerFailure:
    """Returns what `function` returns, or the exception that it raised as a WorkerFailure."""
    try:
        return function()
    except Exception as error:
        return WorkerFailure(
            message=repr(error),
            traceback=traceback.format_exc(),
            reason="env_error" if isinstance(error, EnvError) else "worker_error",
        )
