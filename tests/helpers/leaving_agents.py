# SPDX-License-Identifier: Apache-2.0
"""TagContinuous-v0 with agents that leave: what tests of such agents share."""

from __future__ import annotations

from typing import Any

# runners are caught early, and most episodes are cut off by the time limit
LEAVING: dict[str, Any] = {
    "grid_length": 3.0,
    "tagging_distance": 0.2,
    "num_taggers": 2,
    "num_runners": 6,
    "max_episode_steps": 9,
}
