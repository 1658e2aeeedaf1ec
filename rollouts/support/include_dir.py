# SPDX-License-Identifier: Apache-2.0
"""`include_dir`: where the native headers are."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def include_dir() -> Path:
    """The include folder for a C++ compiler or NVRTC, for `#include "rollouts/core/env.h"`.

    Returns:
      Path: the package's if it was installed from a wheel, the checkout's if it was installed with
        `pip install -e`.

    Raises:
      FileNotFoundError: The headers were removed from the installed package.
    """
    for folder in (_PACKAGE / "include", _PACKAGE.parent / "native" / "include"):
        if (folder / "rollouts" / "core" / "env.h").is_file():
            return folder
    raise FileNotFoundError(
        f"rollouts' native headers are not in {_PACKAGE / 'include'}: install the package again"
    )
