# SPDX-License-Identifier: Apache-2.0
"""Errors of adapters whose library is not installed."""

from __future__ import annotations

from rollouts.errors import EngineError


def needs(extra: str, error: ImportError) -> EngineError:
    """Returns the error to raise where an adapter's library cannot be imported.

    Args:
      extra: The extra of this package that installs the library, such as "sb3".
      error: The error of the import.

    Example:
      try:
          import dm_env
      except ImportError as error:
          raise needs("dm-env", error) from error
    """
    return EngineError(
        f"this adapter needs a library that cannot be imported: {error}. "
        f"Install it: pip install 'rollouts[{extra}]'"
    )
