# SPDX-License-Identifier: Apache-2.0
"""Options for environments with several agents, where they differ from the defaults."""

from __future__ import annotations

from typing import Any

OPTIONS: dict[str, dict[str, Any]] = {
    # options of WarpDrive's tag_continuous.yaml, with rewards of 1 in place of 10
    "TagContinuous-v0": {
        "num_taggers": 5,
        "num_runners": 100,
        "grid_length": 20.0,
        "use_full_observation": False,
        "num_other_agents_observed": 10,
        "tagging_distance": 0.02,
        "max_acceleration": 0.1,
        "min_acceleration": -0.1,
        "num_acceleration_levels": 20,
        "max_turn": 2.356,
        "min_turn": -2.356,
        "num_turn_levels": 20,
    }
}
