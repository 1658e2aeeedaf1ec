# SPDX-License-Identifier: Apache-2.0
"""ViZDoom's environments are equal to vizdoom's own Gymnasium ones, step by step.

Both run the same game: our pool tells the seed of each episode, the reference is given it, and
both get the same actions. Screens, game variables, rewards and ends are then equal to the bit.
"""

from __future__ import annotations

import ctypes
import functools
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rollouts
from rollouts.families.vizdoom import scenarios

pytest.importorskip("vizdoom", reason="needs the vizdoom package")
import vizdoom
from vizdoom.gymnasium_wrapper.gymnasium_env_defns import VizdoomScenarioEnv

pytestmark = pytest.mark.system

SHORT = [
    "VizdoomBasic-v1",
    "VizdoomBasicAudio-v1",
    "VizdoomDefendCenter-MultiBinary-v1",
    "VizdoomDeathmatch-v1",
]
STEPS = 10_000
Observation = dict[str, np.ndarray]


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference's game writes its settings where it runs."""
    monkeypatch.chdir(tmp_path)


def has_sound() -> bool:
    """Tells if games find OpenAL; without it, they are silent."""
    try:
        ctypes.CDLL("libopenal.so.1")
    except OSError:
        return False
    return True


OWN_GAME = """
import pathlib, vizdoom
game = vizdoom.DoomGame()
game.load_config(str(pathlib.Path(vizdoom.scenarios_path) / "basic_audio.cfg"))
game.set_window_visible(False)
game.init()
game.make_action([0, 0, 0], 4)
game.close()
"""


@functools.cache
def effects_end_games() -> bool:
    """Tells if effects of sound end vizdoom's own game, as an OpenAL built with assertions does."""
    return subprocess.run([sys.executable, "-c", OWN_GAME], capture_output=True).returncode != 0


class Reference:
    """One of vizdoom's environments, whose episodes have seeds that are given."""

    def __init__(self, env_id: str, **options: Any) -> None:
        scenario = scenarios()[env_id]
        has_audio = "Audio" in env_id or options.get("audio_buffer_enabled")
        if has_audio and effects_end_games():
            options["game_args"] = "+snd_efx 0"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.env = VizdoomScenarioEnv(
                f"{scenario.cfg}.cfg", max_buttons_pressed=scenario.max_buttons_pressed, **options
            )
        # texts are not ours to give
        self.env.notifications = False

    def reset(self, seed: int) -> Observation:
        # the wrapper's reset draws its seed from it
        self.env._np_random = self  # type: ignore[assignment]
        self.seed = seed
        return self.env.reset()[0]

    def integers(self, *bounds: int, dtype: type) -> int:
        return self.seed

    def step(self, action: Any) -> tuple[Any, ...]:
        if self.env.num_delta_buttons and self.env.max_buttons_pressed == 0:
            amounts, numbers = np.split(action, [self.env.num_delta_buttons])
            action = {"binary": (numbers > 0.5).astype(np.int8), "continuous": amounts}
        elif self.env.num_delta_buttons:
            amounts, numbers = np.split(action, [self.env.num_delta_buttons])
            # ours presses the largest number above a half
            combinations = [list(one) for one in self.env.button_map]
            pressed = np.zeros(len(numbers), int)
            if numbers.max() > 0.5:
                pressed[numbers.argmax()] = 1
            index = combinations.index(pressed.tolist())
            action = {"binary": index, "continuous": amounts}
        elif self.env.max_buttons_pressed == 0:
            action = action.astype(np.int8)
        return self.env.step(action)

    def close(self) -> None:
        self.env.close()


def random_action(env: rollouts.VectorEnv, generator: np.random.Generator) -> Any:
    space = env.single_action_space
    if hasattr(space, "n"):
        return generator.integers(space.n, size=1)
    if hasattr(space, "nvec"):
        return generator.integers(space.nvec, size=(1, *space.shape))
    # turns of some degrees, and mostly one button
    amounts = int((space.high > 1).sum())
    action = generator.uniform(0, 0.6, (1, *space.shape))
    action[:, :amounts] = generator.normal(0, 5, (1, amounts))
    return action.astype(np.float32)


def run_beside(env_id: str, steps: int, *, frame_skip: int = 4, **options: Any) -> int:
    """Steps both; returns how many episodes ended."""
    generator = np.random.default_rng(3)
    ours = rollouts.make_vec(
        env_id, 1, seed=5, flatten_observation=False, frame_skip=frame_skip, **options
    )
    theirs = Reference(env_id, frame_skip=frame_skip, **reference_options(options))
    ends = 0
    with ours:
        obs, info = ours.reset()
        check(obs, theirs.reset(int(info["game_seed"][0])))
        assert {*ours.single_observation_space} == {*obs}
        has_variables = "gamevariables" in obs
        assert has_variables == ("gamevariables" in theirs.env.observation_space.spaces)
        for name, space in ours.single_observation_space.items():
            assert space == theirs.env.observation_space[name]
        for _ in range(steps):
            action = random_action(ours, generator)
            obs, reward, terminated, truncated, info = ours.step(action)
            want = theirs.step(action[0] if action.ndim > 1 else int(action[0]))
            check(obs, want[0])
            got = (float(reward[0]), bool(terminated[0]), bool(truncated[0]))
            assert got == (float(want[1]), want[2], want[3])
            if has_variables:
                np.testing.assert_array_equal(
                    info["gamevariables"][0].astype(np.float32), want[0]["gamevariables"]
                )
            if terminated[0]:
                ends += 1
                obs, _, _, _, info = ours.step(action)
                check(obs, theirs.reset(int(info["game_seed"][0])))
    theirs.close()
    return ends


def reference_options(options: dict[str, Any]) -> dict[str, Any]:
    """The same by the names and types that vizdoom's set_config takes."""
    result = dict(options)
    if "screen_resolution" in result:
        name = result["screen_resolution"]
        result["screen_resolution"] = getattr(vizdoom.ScreenResolution, name)
    if "screen_format" in result:
        result["screen_format"] = getattr(vizdoom.ScreenFormat, result["screen_format"])
    return result


def check(obs: dict[str, np.ndarray], want: Observation) -> None:
    # where a game shows nothing, the reference has an empty one all the same
    want = {name: value for name, value in want.items() if name != "notifications"}
    assert {*obs} == {*want}
    for name, value in want.items():
        assert obs[name].dtype == value.dtype
        np.testing.assert_array_equal(obs[name][0], value, err_msg=name)


@pytest.mark.parametrize("env_id", SHORT)
def test_steps_equal_the_reference(env_id: str) -> None:
    assert run_beside(env_id, 250) >= (0 if "Deathmatch" in env_id else 1)


@pytest.mark.skipif(not has_sound(), reason="needs libopenal1, or games are silent")
def test_games_are_heard_whether_or_not_openal_stands_their_effects() -> None:
    options: dict[str, Any] = {"flatten_observation": False, "frame_skip": 4, "num_threads": 2}
    with rollouts.make_vec("VizdoomBasicAudio-v1", 2, seed=1, **options) as env:
        env.reset()
        heard = np.zeros(2, int)
        for step in range(30):
            obs = env.step(np.full(2, step % 3))[0]
            heard += np.abs(obs["audio"].astype(int)).sum((1, 2))
        assert (heard > 0).all()


def test_all_buffers_and_formats_equal_the_reference() -> None:
    buffers = {f"{name}_buffer_enabled": True for name in ("depth", "labels", "automap", "audio")}
    run_beside(
        "VizdoomTakeCover-v1",
        100,
        frame_skip=2,
        screen_format="GRAY8",
        screen_resolution="RES_200X125",
        doom_skill=2,
        **buffers,
    )


@pytest.mark.slow
@pytest.mark.parametrize("env_id", [i for i, one in scenarios().items() if not one.doom_map])
def test_ten_thousand_frames_equal_the_reference(env_id: str) -> None:
    run_beside(env_id, STEPS // 4)
