# SPDX-License-Identifier: Apache-2.0
"""Futures of Ray's results, in our terms."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


def as_future(
    ref: Any,
    translate: Callable[[BaseException], BaseException] = lambda error: error,
    convert: Callable[[Any], Any] = lambda value: value,
) -> Future[Any]:
    """Returns a future of Ray's result, changed by `convert`; errors are changed by `translate`."""
    result: Future[Any] = Future()

    def pass_on(future: Future[Any]) -> None:
        error = future.exception()
        if error is not None:
            result.set_exception(translate(error))
            return
        try:
            result.set_result(convert(future.result()))
        except Exception as wrong:
            result.set_exception(wrong)

    ref.future().add_done_callback(pass_on)
    return result
