# SPDX-License-Identifier: Apache-2.0
"""What holds for all tests."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# The same examples in each run, and no time limits, so that a run tells of the code and not of the
# machine. ROLLOUTS_RANDOM_TESTS=1 looks for new examples.
settings.register_profile(
    "repeatable", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("random", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("random" if os.environ.get("ROLLOUTS_RANDOM_TESTS") else "repeatable")
