# SPDX-License-Identifier: Apache-2.0
"""Frames of MPE's scenarios against mpe2's: every pixel, where both write with the same letters.

With pygame's own letters, which users get, frames differ in the lines of text alone: a strip of 35
pixels above the lower edge for each agent that may speak.
"""

from __future__ import annotations

import importlib
from typing import Any

import mpe2
import numpy as np
import pytest
from mpe_worlds import begin_reference, read_world

import rollouts
from rollouts.rendering import particles

# id -> options beside the defaults
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "simple_v3": [],
    "simple_spread_v3": [{"N": 5}],
    "simple_tag_v3": [{"num_good": 2, "num_adversaries": 4, "num_obstacles": 3}],
    "simple_adversary_v3": [{"N": 4}],
    "simple_push_v3": [],
    "simple_crypto_v3": [{"continuous_actions": True}],
    "simple_reference_v3": [{"continuous_actions": True}],
    "simple_speaker_listener_v4": [{"continuous_actions": True}],
    "simple_world_comm_v3": [
        {"continuous_actions": True},
        {"num_good": 3, "num_adversaries": 2, "num_obstacles": 2, "num_food": 3, "num_forests": 4},
    ],
}
CASES = [
    pytest.param(env_id, options, id=f"{env_id}-{index}")
    for env_id, variants in VARIANTS.items()
    for index, options in enumerate([{}, *variants])
]
# after how many steps frames are compared
STEPS = (0, 1, 9)
SPEAKERS = {
    "simple_crypto_v3": 3,
    "simple_reference_v3": 2,
    "simple_speaker_listener_v4": 1,
    "simple_world_comm_v3": 1,
}


class Pair:
    """One of our environments, and mpe2's in the same state."""

    def __init__(self, env_id: str, options: dict[str, Any], seed: int) -> None:
        self.env = rollouts.make_multi_agent_vec(env_id, 1, seed=seed, **options)
        self.env.reset()
        self.env.action_space.seed(seed)
        module = importlib.import_module(f"{mpe2.__name__}.{env_id}")
        self.theirs = module.parallel_env(render_mode="rgb_array", **options)
        state = bytearray(self.env.engine.pool.get_state(0))
        begin_reference(env_id, self.theirs, read_world(env_id, state, len(self.env.agents)))
        if env_id == "simple_crypto_v3":
            self._take_our_places(env_id)

    def _take_our_places(self, env_id: str) -> None:
        (world,) = self.env.engine.pool.read_worlds([0], False)
        scene = particles._SCENES[env_id](world, {})
        theirs = self.theirs.unwrapped
        assert scene.positions is not None
        places = [*scene.positions, *scene.places]
        for entity, place in zip(theirs.world.entities, places, strict=True):
            entity.state.p_pos = place.copy()
        theirs.original_cam_range = np.abs(places).max()

    def step(self) -> None:
        action = self.env.action_space.sample()
        self.env.step(action)
        rows = [*action[0]] if len(self.env.groups) == 1 else []
        rows = rows or [row for name in self.env.groups for row in action[name][0]]
        self.theirs.step(dict(zip(self.env.agents, rows, strict=True)))

    def frames(self) -> tuple[Any, Any]:
        return self.env.render()[0], self.theirs.render()

    def close(self) -> None:
        self.env.close()


@pytest.mark.parametrize(("env_id", "options"), CASES)
def test_frames_are_mpe2s(
    env_id: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    zooms = 0
    for seed in range(3):
        pair = Pair(env_id, options, seed)
        letters = pair.theirs.unwrapped.game_font
        monkeypatch.setattr(particles, "font", lambda size, letters=letters: letters)
        for step in range(max(STEPS) + 1):
            if step in STEPS:
                ours, theirs = pair.frames()
                np.testing.assert_array_equal(ours, theirs)
            pair.step()
        places = [entity.state.p_pos for entity in pair.theirs.unwrapped.world.entities]
        zooms += np.abs(places).max() != pair.theirs.unwrapped.original_cam_range
        pair.close()
    # the size of things in a frame depends on how far the episode's first frame had to see
    assert zooms or env_id in ("simple_crypto_v3", "simple_speaker_listener_v4")


@pytest.mark.parametrize("env_id", SPEAKERS)
def test_other_letters_change_lines_of_text_alone(env_id: str) -> None:
    pair = Pair(env_id, {}, seed=1)
    pair.step()
    ours, theirs = pair.frames()
    text = 700 - 35 * SPEAKERS[env_id] - 5
    np.testing.assert_array_equal(ours[:text], theirs[:text])
    # and something is written there
    dark = (ours[text:] < 50).all(axis=2).sum()
    assert dark > 300 * SPEAKERS[env_id]
    pair.close()


def test_a_frame_is_drawn_without_mpe2(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for name in [name for name in sys.modules if name.split(".")[0] == "mpe2"]:
        monkeypatch.setitem(sys.modules, name, None)
    with rollouts.make_multi_agent_vec("simple_tag_v3", 2) as env:
        env.reset()
        assert [frame.shape for frame in env.render()] == [(700, 700, 3)] * 2
