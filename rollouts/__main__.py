# SPDX-License-Identifier: Apache-2.0
"""`python -m rollouts`: the same as the command `rollouts`."""

from __future__ import annotations

import sys

from rollouts.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
