# SPDX-License-Identifier: Apache-2.0
"""Libraries that come with an extra of this package, and what is said where one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rollouts.errors import EngineError


@contextmanager
def needs(extra: str, what: str) -> Iterator[None]:
    """Says which extra to install where the imports inside fail.

    Args:
      extra: The extra of this package that brings what is imported, such as "torch".
      what: The importer: the subject of the sentence.

    Raises:
      EngineError: Something cannot be imported.

    Example:
      with needs("torch", "TorchPolicy"):
          import torch
    """
    try:
        yield
    except EngineError:  # a module has named what is missing already
        raise
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "rollouts":  # a mistake of ours
            raise
        raise EngineError(
            f"{what} needs a library that cannot be imported ({error}): "
            f"pip install 'rollouts[{extra}]'"
        ) from error
    except ImportError as error:
        if (error.name or "").split(".")[0] == "rollouts":
            raise
        raise EngineError(
            f"{what} needs a library that is installed but cannot be imported ({error}); the "
            f"extra with what it needs is 'rollouts[{extra}]'"
        ) from error
