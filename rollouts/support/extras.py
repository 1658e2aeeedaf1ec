# SPDX-License-Identifier: Apache-2.0
"""Libraries that come with an extra of this package, and the errors where they are missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rollouts.errors import EngineError


@contextmanager
def needs(extra: str, what: str) -> Iterator[None]:
    """Raises an error that names the extra to install, if an import in the block fails.

    Args:
      extra: The extra of this package that installs the imports, such as "torch".
      what: The importer: the subject of the error's sentence.

    Raises:
      EngineError: An import failed.

    Example:
      with needs("torch", "TorchPolicy"):
          import torch
    """
    try:
        yield
    except EngineError:  # the error already names what is missing
        raise
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "rollouts":  # an error in this library
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
