# SPDX-License-Identifier: Apache-2.0
"""ProcessFailure: an exception in an environment's process, as it can be sent to the host."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from rollouts.envs.hosted.processes import identity
from rollouts.errors import EnvAttributeError, EnvError, SpecError

# limits for one failure; longer text is cut and marked
_MOST_MESSAGE_CHARS = 2_000
_MOST_TRACEBACK_CHARS = 20_000
_MOST_PICKLED_BYTES = 1 << 20

_T = TypeVar("_T")


class SpacesDifferError(SpecError, RuntimeError):
    """Environments of one batch have different spaces; a RuntimeError too, as in Gymnasium."""


@dataclass(frozen=True, slots=True)
class ProcessFailure:
    """One exception, or the end of a process.

    Attributes:
      message: What was raised, in a line; at most 2,000 characters and a note on the rest.
      traceback: The traceback as the process would have printed it; "" if the process ended. At
        most
        20,000 characters, the first and the last ones.
      pickled: The exception, if it pickles and takes at most 1 MiB.
    """

    message: str
    traceback: str = ""
    pickled: bytes | None = None

    @classmethod
    def of(cls, error: BaseException) -> ProcessFailure:
        """Describes an exception that is being handled; its own methods may raise."""
        pickled = _or_none(lambda: identity.dumps_for_host(error))
        if pickled is not None and len(pickled) > _MOST_PICKLED_BYTES:
            pickled = None
        message = _or_none(lambda: repr(error))
        if message is None:
            message = f"{type(error).__name__} (its __repr__ raises an exception too)"
        where = _or_none(lambda: "".join(traceback.format_exception(error))) or ""
        return cls(cut(message, _MOST_MESSAGE_CHARS), cut(where, _MOST_TRACEBACK_CHARS), pickled)

    def cause(self) -> BaseException | None:
        """The exception itself, where it can be made again in this process."""
        if self.pickled is None:
            return None
        try:
            error = pickle.loads(self.pickled)
        except Exception:
            return None
        return error if isinstance(error, BaseException) else None


def cut(text: str, most: int) -> str:
    """Shortens a text to `most` characters: a note replaces its middle."""
    if len(text) <= most:
        return text
    left_out = len(text) - most
    half = most // 2
    return f"{text[:half]} [... {left_out:,} characters left out ...] {text[-half:]}"


def _or_none(make: Callable[[], _T]) -> _T | None:
    """Calls `make`; None if it raises, as methods of users' exceptions may."""
    try:
        return make()
    except Exception:
        return None


def env_error(what: str, failure: ProcessFailure) -> EnvError:
    """The error to raise for a failure.

    Args:
      what: The subject and verb of the message, such as "env_id 3 failed".
      failure: The cause; the error's `__cause__` where it can be made again.
    """
    where = f"\n\nIn its process:\n{failure.traceback.rstrip()}" if failure.traceback else ""
    cause = failure.cause()
    kind = EnvAttributeError if isinstance(cause, EnvAttributeError) else EnvError
    error = kind(f"{what}: {failure.message}{where}")
    error.__cause__ = cause
    return error
