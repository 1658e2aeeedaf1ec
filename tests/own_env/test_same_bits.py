# SPDX-License-Identifier: Apache-2.0
"""The text of one of our headers under another name computes the same bits as ours."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rollouts

pytestmark = pytest.mark.system

# vector loops, with draws in the step and with infos; without; agents, with tables and without
CASES = {
    "CartPole-v1": {"pole_half_length": np.linspace(0.3, 0.7, 150)},
    "NChain-v0": {"slip": np.linspace(0, 1, 150)},
    "Blackjack-v1": {},
    "TagGridWorld-v0": {"num_taggers": 3, "randomize_starts": True},
    "TagContinuous-v0": {"num_taggers": 2, "num_runners": 7},
}


def copied(env_id: str, folder: Path) -> str:
    """Registers the copy of an environment's header; returns its id."""
    entry = rollouts.env_spec(env_id)
    source = rollouts.include_dir() / "rollouts" / entry.header
    header = folder / f"copy_of_{source.name}"
    # the folder's name is no part of it, so that it is compiled once for all runs
    header.write_text(source.read_text())
    (env_type,) = re.findall(r"^struct (\w+) \{$", header.read_text(), flags=re.MULTILINE)
    return rollouts.register_env(
        f"Copy-of-{env_id}",
        header=header,
        type=env_type,
        max_episode_steps=entry.max_episode_steps,
        reward_threshold=entry.reward_threshold,
    )


def flat(value: Any) -> list[Any]:
    """The arrays in nested dicts and tuples, in order."""
    if isinstance(value, dict):
        return [array for name in sorted(value) for array in flat(value[name])]
    if isinstance(value, tuple):
        return [array for one in value for array in flat(one)]
    if isinstance(value, np.ndarray) and value.dtype == object:
        # None or an array for each row
        return [np.array([]) if one is None else np.array(one) for one in value]
    return [np.array(value)]


def played(env_id: str, options: dict[str, Any]) -> list[list[Any]]:
    with rollouts.make_vec(
        env_id, 150, seed=5, num_threads=2, autoreset_mode="same_step", **options
    ) as env:
        env.action_space.seed(2)
        seen = [flat(env.reset())]
        seen += [flat(env.step(env.action_space.sample())) for _ in range(120)]
        return seen


# an optimising compiler spends seconds on each: one of vector loops, one without, one of agents
SLOW = ("NChain-v0", "TagContinuous-v0")


@pytest.mark.parametrize(
    "env_id", [pytest.param(one, marks=pytest.mark.slow if one in SLOW else ()) for one in CASES]
)
def test_a_copy_of_our_header_gives_the_same_bits(env_id: str, tmp_path: Path) -> None:
    ours, copies = (played(one, CASES[env_id]) for one in (env_id, copied(env_id, tmp_path)))
    for step, (one, other) in enumerate(zip(ours, copies, strict=True)):
        for array, same in zip(one, other, strict=True):
            assert array.dtype == same.dtype
            np.testing.assert_array_equal(array, same, err_msg=f"step {step}")
