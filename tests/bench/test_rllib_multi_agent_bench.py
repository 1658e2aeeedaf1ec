# SPDX-License-Identifier: Apache-2.0
"""The contestants of `rollouts bench adapter rllib_multi_agent` collect what they say."""

from __future__ import annotations

import pytest

pytest.importorskip(
    "ray.tune", exc_type=ImportError, reason="RLlib is not installed: pip install 'rollouts[rllib]'"
)
pytest.importorskip("mpe2", reason="mpe2 is not installed: pip install mpe2")

from comparisons.adapters.measuring import Case, default_id
from comparisons.adapters.rllib_multi_agent import CONTESTANTS
from rollouts.errors import EngineError


@pytest.mark.parametrize("name", list(CONTESTANTS))
def test_contestant_collects_what_is_measured_by_default(name: str) -> None:
    case = Case(default_id("rllib_multi_agent"), 3, 1, rollout_length=30)
    contestant = CONTESTANTS[name](case)
    # RLlib's own loop may take a step more of the environments that did not end
    assert 90 <= contestant.collect() <= 92
    contestant.close()


def test_a_game_that_mpe2_does_not_have_is_said() -> None:
    with pytest.raises(EngineError, match=r"steps TagGridWorld-v0 of mpe2.*rllib-over-rollouts"):
        CONTESTANTS["rllib"](Case("TagGridWorld-v0", 2, 1))
