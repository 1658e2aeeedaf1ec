# SPDX-License-Identifier: Apache-2.0
"""Ray's workers, forked from a process that has imported what they import.

Half of what the tests with Ray computed were the imports of its workers, some 300 of them. The node
that is started in this process, and the programs that it runs, are as always; so is all that a
worker does itself.
"""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import Any

from warm_python import SOCKET, server


class _OtherExecutable:
    """The module `sys` with another executable."""

    def __init__(self, executable: str) -> None:
        self.executable = executable

    def __getattr__(self, name: str) -> Any:
        return getattr(sys, name)


@functools.cache
def use_warm_workers() -> None:
    """Makes nodes of Ray that this process starts from now on fork their workers.

    Such a worker is no child of its node. Where ROLLOUTS_WARM_PYTHON is empty nothing changes.
    """
    if os.environ.get(SOCKET) == "":
        return
    from ray._private import services

    services.sys = _OtherExecutable(str(Path(server()).with_name("python")))
