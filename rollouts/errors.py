# SPDX-License-Identifier: Apache-2.0
"""Exceptions of rollouts; each is also the builtin exception that callers would catch."""

from __future__ import annotations

import multiprocessing

from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError


class RolloutsError(Exception):
    """Base class of every error that rollouts raises on purpose."""


class SpecError(RolloutsError, ValueError):
    """An argument is wrong: an unknown id or option, a wrong shape, a value out of range."""


class MissingFeatureError(SpecError, AttributeError):
    """These environments have no such method; the message names the environments that have it."""


class DTypeError(RolloutsError, TypeError):
    """An argument has the wrong type or dtype."""


class ProtocolError(RolloutsError, RuntimeError):
    """Calls came in an impossible order, such as two sends to one env without a recv."""


class CallPendingError(AlreadyPendingCallError, ProtocolError):
    """An earlier call was started but not waited for; `name` is its name."""

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message, name)


class NoCallPendingError(NoAsyncCallError, ProtocolError):
    """No call was started that could be waited for; `name` is its name."""

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message, name)


class CallTimeoutError(RolloutsError, TimeoutError, multiprocessing.TimeoutError):
    """A call that was started took too long. AsyncVectorEnv's own error is no TimeoutError."""


class ClosedError(RolloutsError, ClosedEnvironmentError, RuntimeError):
    """The pool, queue or coordinator was closed."""


class EnvError(RolloutsError, RuntimeError):
    """An environment failed while stepping; the message names its env_id."""


class EnvAttributeError(EnvError, AttributeError):
    """An environment in Python has no attribute or method of this name."""


class EngineError(RolloutsError, ImportError):
    """An engine (ale-py, MuJoCo) or an optional library is missing or of an unsupported version."""


class FileError(RolloutsError, OSError):
    """A file cannot be written: no such folder, no right to write there, or no room."""


class WorkerError(RolloutsError, RuntimeError):
    """No rollout worker is left that could continue; the message has the last failure."""


class LearnerError(RolloutsError, RuntimeError):
    """A learner's actor died, or cannot keep the data that it gets."""


class ReplayWarning(UserWarning):
    """Steps become fewer or shorter items of a replay than possible; the message has the reason."""
