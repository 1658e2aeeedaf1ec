# SPDX-License-Identifier: Apache-2.0
"""A call that is refused changes nothing that a later call shares with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rollouts
from rollouts import SpecError
from rollouts.envs.kernel.graph import HostGraph

ROLLOUTS: list[dict[str, Any]] = [
    {"action_seed": -1},
    {"action_seed": "one"},
    {"action_seed": 2**64, "record": True},
    {"num_steps": 0},
    {"actions": "best"},
]


@pytest.mark.parametrize("env_id", ["CartPole-v1", "TagGridWorld-v0"])
@pytest.mark.parametrize("wrong", ROLLOUTS)
def test_a_rollout_that_is_refused_leaves_the_next_step_as_it_was(
    env_id: str, wrong: dict[str, Any]
) -> None:
    def played(*, tries: bool) -> list[Any]:
        with rollouts.make_vec(env_id, 3, device="cpu-emulation", seed=1) as env:
            env.reset()
            env.action_space.seed(1)
            seen = []
            for _ in range(4):
                if tries:
                    with pytest.raises((SpecError, TypeError, ValueError)):
                        env.rollout(**{"num_steps": 5, **wrong})
                obs, reward, *_ = env.step(env.action_space.sample())
                seen.append([leaves(obs), leaves(reward)])
            return [*seen, env.stats().env_steps]

    np.testing.assert_equal(played(tries=True), played(tries=False))


def leaves(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: one.clone().numpy() for name, one in value.items()}
    return value.clone().numpy()


def test_a_graph_records_nothing_of_what_did_not_run_to_its_end() -> None:
    graph, runs = HostGraph(), []

    def launch(*, fails: bool) -> None:
        runs.append("recorded" if graph.is_recorded else "run")
        if fails:
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        graph.run("key", lambda: launch(fails=True))
    recorded = []
    graph._record = recorded.append  # type: ignore[method-assign, assignment]
    graph.run("key", lambda: launch(fails=False))
    assert recorded == [], "the first launch that ends well gets libraries ready"
    graph.run("key", lambda: launch(fails=False))
    assert len(recorded) == 1
