# SPDX-License-Identifier: Apache-2.0
"""Contacts and constraints beyond the memory that there is for them."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch

import rollouts
from rollouts import EnvError, SpecError

pytestmark = pytest.mark.system

pytest.importorskip("mujoco_warp")


def make(**memory: Any) -> Any:
    return rollouts.make_vec(
        "Hopper-v5",
        4,
        device="cpu-emulation",
        seed=1,
        terminate_when_unhealthy=False,
        env_id_offset=3,
        **memory,
    )


def steps_until_cut(env: Any) -> int | None:
    """The number of steps of a falling hopper until an episode is cut off."""
    env.reset()
    for step in range(1, 31):
        _, reward, _, truncated, _ = env.step(torch.zeros(4, 3))
        if truncated.any():
            assert not reward[truncated].any()
            return step
    return None


@pytest.mark.parametrize(
    ("memory", "told"),
    [
        ({"njmax": 3}, r"environment \d had more rows of constraints .* with njmax above 3\."),
        ({"nconmax": 1}, r"environment 3 or others had more contacts .* with nconmax above 1,"),
    ],
)
def test_what_does_not_fit_is_told_with_the_option_to_raise(
    memory: dict[str, int], told: str
) -> None:
    env = make(**memory)
    # in the air nothing touches
    first = steps_until_cut(env)
    assert first is not None and first > 1
    with pytest.raises(EnvError, match=told):
        env.synchronize()
    # told once; the episodes that follow begin as others do
    env.reset()
    env.step(torch.zeros(4, 3))
    env.synchronize()
    # the copy has as little
    assert steps_until_cut(pickle.loads(pickle.dumps(env))) == first


def test_enough_memory_tells_nothing() -> None:
    env = make(njmax=40, nconmax=10)
    assert steps_until_cut(env) is None
    env.synchronize()


def test_memory_that_is_none_is_refused() -> None:
    with pytest.raises(SpecError, match="njmax"):
        make(njmax=0)
    with pytest.raises(SpecError, match=r"reset options \['njmax'\] cannot change"):
        make().reset(options={"njmax": 10})
