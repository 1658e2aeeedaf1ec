# SPDX-License-Identifier: Apache-2.0
"""Environments with several agents in `rollouts.bench`, and the loop to measure them by."""

from __future__ import annotations

import numpy as np
import pytest

import rollouts
from rollouts import _native
from rollouts.bench import Settings, compare, stepper
from rollouts.bench.report import describe_machine, table, to_json

OPTIONS = {"num_taggers": 3, "num_runners": 9, "grid_length": 3.0, "tagging_distance": 0.2}


def test_agent_steps_are_counted_beside_env_steps() -> None:
    settings = Settings("TagContinuous-v0", 4, 4, 1, duration_s=0.02, repeats=1)
    peers = [stepper("all-pairs")]
    comparison = compare(settings, peers)
    assert comparison.num_agents == 11
    assert [each.library for each in comparison.measurements] == ["rollouts", "all-pairs"]
    assert "agent-steps/s" in table([comparison])
    found = to_json([comparison], describe_machine(peers), command="")["results"][0]
    assert all(each["num_agents"] == 11 for each in found["measurements"])


def test_the_loop_plays_the_same_game() -> None:
    env = rollouts.make_multi_agent_vec("TagContinuous-v0", 2, max_episode_steps=30, **OPTIONS)
    with env:
        loop = _native.TagLoop(dict(env.env_options), 2, 30)
        env.reset()
        loop.reset()
        random = np.random.default_rng(3)
        tags = 0
        for _ in range(60):
            actions = random.integers(0, 11, (2, 12, 2)).astype(np.int32)
            loop.step(actions)
            _, reward, *_ = env.step({"tagger": actions[:, :3], "runner": actions[:, 3:]})
            ours = np.concatenate([reward["tagger"], reward["runner"]], axis=1)
            np.testing.assert_allclose(np.reshape(loop.reward, (2, 12)), ours, atol=1e-6)
            tags += int((reward["tagger"] > 0).sum())
        assert tags > 0


@pytest.mark.parametrize("env_id", ["simple_spread_v3", "simple_tag_v3"])
def test_mpe2_in_our_own_processes_is_a_peer(env_id: str) -> None:
    pytest.importorskip("mpe2")
    settings = Settings(env_id, 2, 2, 1, duration_s=0.02, repeats=1)
    ours, hosted = compare(settings, [stepper("pettingzoo")]).measurements
    assert (ours.library, hosted.library) == ("rollouts", "pettingzoo")
    assert hosted.calls > 0
    assert "from_parallel_env_fns" in hosted.notes[0]


def test_peers_without_the_environment_say_so() -> None:
    settings = Settings("TagGridWorld-v0", 2, 2, 1, duration_s=0.01, repeats=1)
    with pytest.raises(rollouts.SpecError, match="'all-pairs' steps TagContinuous-v0 alone"):
        compare(settings, [stepper("all-pairs")])
