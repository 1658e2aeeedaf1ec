# SPDX-License-Identifier: Apache-2.0
"""Words on an error that a replay's shard raised; needs no Ray that runs."""

from __future__ import annotations

import pytest

pytest.importorskip("ray")

from ray.exceptions import RayTaskError

from rollouts.errors import SpecError, WorkerError
from rollouts.replay.on_ray.mailbox import shard_error

TRACEBACK = 'File "shard.py", line 7, in load'


def test_the_traceback_of_a_shards_bug_is_the_failures_cause() -> None:
    error = shard_error(RayTaskError("call", TRACEBACK, AttributeError("no_such_method")))
    assert isinstance(error, WorkerError)
    assert "AttributeError: no_such_method" in str(error)
    assert TRACEBACK in str(error.__cause__)


@pytest.mark.parametrize("cause", [SpecError("not a saved replay"), OSError(28, "disk full")])
def test_an_error_of_ours_has_the_shards_traceback_as_a_note(cause: Exception) -> None:
    text = str(cause)
    error = shard_error(RayTaskError("call", TRACEBACK, cause))
    assert error is cause
    assert str(error) == text
    assert TRACEBACK in error.__notes__[0]
