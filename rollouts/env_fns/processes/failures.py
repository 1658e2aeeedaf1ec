# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in an environment's process, in a form that travels."""

from __future__ import annotations

import pickle
import traceback
from dataclasses import dataclass

from rollouts.errors import EnvError, SpecError


class SpacesDifferError(SpecError, RuntimeError):
    """Environments of one batch have different spaces; a RuntimeError too, as in Gymnasium."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One exception, or the end of a process.

    Attributes:
      message: What was raised, in a line.
      traceback: Where, as the process would have printed it; "" if the process ended.
      pickled: The exception, if it pickles.
    """

    message: str
    traceback: str = ""
    pickled: bytes | None = None

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Describes an exception that is being handled."""
        try:
            pickled = pickle.dumps(error)
        except Exception:
            pickled = None
        return cls(repr(error), "".join(traceback.format_exception(error)), pickled)

    def cause(self) -> BaseException | None:
        """The exception itself, where it can be made again in this process."""
        if self.pickled is None:
            return None
        try:
            error = pickle.loads(self.pickled)
        except Exception:
            return None
        return error if isinstance(error, BaseException) else None


def env_error(what: str, failure: Failure) -> EnvError:
    """The error to raise for a failure.

    Args:
      what: Who failed and in doing what, such as "env_id 3 failed".
      failure: Its cause, which the error has as `__cause__` where it can.
    """
    where = f"\n\nIn its process:\n{failure.traceback.rstrip()}" if failure.traceback else ""
    error = EnvError(f"{what}: {failure.message}{where}")
    error.__cause__ = failure.cause()
    return error
