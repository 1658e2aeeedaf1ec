# SPDX-License-Identifier: Apache-2.0
"""Libraries that `rollouts bench` measures: each is made as ours is, or says what it lacks."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rollouts
from comparisons.stepping import vector_libraries
from comparisons.stepping.atari_options import (
    ale_atari_options,
    envpool_atari_options,
    gymnasium_atari_options,
)
from rollouts import _native
from rollouts.bench import Settings, compare, stepper
from rollouts.bench.interleaved import action_batches
from rollouts.cli.main import main
from rollouts.envs.registry import env_spec
from rollouts.errors import EngineError, SpecError
from rollouts.families.atari import load_engine, rom_path
from rollouts.mujoco import integration_state

pytestmark = pytest.mark.system

ATARI_OPTIONS = {
    "frameskip": 4,
    "stack_num": 4,
    "img_height": 84,
    "img_width": 84,
    "grayscale": True,
    "maxpool": True,
    "noop_max": 30,
    "use_fire_reset": True,
    "episodic_life": False,
    "life_loss_info": False,
    "reward_clipping": True,
    "repeat_action_probability": 0.25,
    "full_action_space": False,
    "continuous": False,
    "continuous_action_threshold": 0.5,
    "mode": -1,
    "difficulty": -1,
    "ram_info": False,
    "engine": "auto",
    "obs_type": "screen",
    "use_inter_area_resize": True,
}


@pytest.mark.parametrize("batch_size", [4, 2])
def test_compare_measures_our_pool_and_gymnasium(batch_size: int) -> None:
    settings = Settings("CartPole-v1", 4, batch_size, 1, duration_s=0.01, repeats=2)
    found = compare(settings, [stepper("gymnasium")])
    ours, peer = found.measurements
    assert (ours.library, ours.batch_size) == ("rollouts", batch_size)
    assert (peer.library, peer.batch_size, peer.num_threads) == ("gymnasium", 4, 1)
    assert len(ours.elapsed_s) == len(peer.elapsed_s) == 2
    assert min(*ours.elapsed_s, *peer.elapsed_s) > 0
    assert found.ratio(peer) == ours.median / peer.median
    assert any("no recv and send" in note for note in peer.notes) == (batch_size == 2)


@pytest.mark.parametrize("batch_size", [4, 2])
@pytest.mark.skipif(importlib.util.find_spec("envpool") is None, reason="envpool is missing")
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "HalfCheetah-v5"])
def test_compare_measures_envpool(env_id: str, batch_size: int) -> None:
    settings = Settings(env_id, 4, batch_size, 1, duration_s=0.01, repeats=1)
    ours, peer = compare(settings, [stepper("envpool")]).measurements
    assert (peer.batch_size, peer.api) == (batch_size, ours.api)
    assert peer.median > 0


@pytest.mark.parametrize("batch_size", [4, 2])
def test_compare_measures_python_environments_that_we_host(batch_size: int) -> None:
    settings = Settings("CartPole-v1", 4, batch_size, 2, duration_s=0.01, repeats=1)
    ours, hosted = compare(settings, [stepper("rollouts-hosted")]).measurements
    assert (hosted.batch_size, hosted.num_threads, hosted.api) == (batch_size, 2, ours.api)
    assert hosted.median > 0


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1"])
def test_compare_measures_the_plain_loop(env_id: str) -> None:
    settings = Settings(env_id, 4, 4, 2, duration_s=0.01, repeats=1)
    _, loop = compare(settings, [stepper("loop")]).measurements
    assert (loop.library, loop.batch_size, loop.num_threads, loop.api) == ("loop", 4, 1, "step")
    assert loop.median > 0


def test_compare_measures_emulators_alone() -> None:
    settings = Settings("ALE/Pong-v5", 2, 2, 1, duration_s=0.05, repeats=1)
    peers = [stepper("emulation-native"), stepper("emulation-ale")]
    _, *emulators = compare(settings, peers).measurements
    for emulator in emulators:
        assert (emulator.batch_size, emulator.options) == (2, {"frameskip": 4})
        # true of any machine: a frame takes microseconds, not nanoseconds or a millisecond
        assert 1e2 < emulator.median < 1e6


def test_an_emulator_alone_takes_the_actions_that_there_are() -> None:
    load_engine()
    emulation = _native.AtariEmulation(str(rom_path("ALE/Pong-v5")), 4)
    assert emulation.run(np.arange(18, dtype=np.int32)) > 0
    with pytest.raises(SpecError, match=r"action is 18, expected 0\.\.17"):
        emulation.run(np.array([18], np.int32))


@pytest.mark.parametrize("peer", ["emulation-native", "emulation-ale"])
def test_emulators_have_games_only(peer: str) -> None:
    with pytest.raises(SpecError, match="Atari games only"):
        compare(Settings("CartPole-v1", 1, 1, 1), [stepper(peer)])


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize(("peer", "nstep"), [("mujoco", 32), ("mujoco-batch", 2)])
def test_compare_measures_mujocos_own_threads(peer: str, nstep: int, num_threads: int) -> None:
    settings = Settings("InvertedPendulum-v5", 3, 3, num_threads, duration_s=0.01, repeats=1)
    _, engine = compare(settings, [stepper(peer)]).measurements
    assert (engine.library, engine.batch_size, engine.num_threads) == (peer, 3, num_threads)
    assert engine.options["nstep"] == nstep
    assert engine.median > 0


@pytest.mark.parametrize("peer", ["mujoco", "mujoco-batch"])
def test_mujocos_own_threads_go_where_our_environments_go(peer: str) -> None:
    settings = Settings("Hopper-v5", 2, 2, 1, seed=3)
    spec = env_spec("Hopper-v5", terminate_when_unhealthy=False)
    engine = stepper(peer).make(settings, spec)
    batches = action_batches(env_spec("Hopper-v5").single_action_space, 2, seed=0)
    options: dict[str, Any] = {"terminate_when_unhealthy": False}
    if "engine" in spec.options:
        options["engine"] = "mujoco"  # bit for bit
    with rollouts.make_vec("Hopper-v5", 2, seed=3, **options) as env:
        env.reset()
        engine.start()
        for batch in batches:
            env.step(batch)
            engine.env.step(batch)
        ours = np.stack([integration_state(state) for state in env.get_state()])
    theirs = engine.env._states if peer == "mujoco" else engine.env._batch.state
    # time, positions and velocities come first
    np.testing.assert_array_equal(theirs[:, :13], ours[:, :13])
    if peer == "mujoco-batch":
        np.testing.assert_array_equal(theirs, ours)
    engine.close()


@pytest.mark.parametrize("peer", ["mujoco", "mujoco-batch"])
def test_the_mujoco_peers_refuse_what_is_not_mujoco(peer: str) -> None:
    settings = Settings("CartPole-v1", 2, 2, 1, duration_s=0.01)
    with pytest.raises(SpecError, match=f"'{peer}' has MuJoCo's environments only"):
        compare(settings, [stepper(peer)])


@pytest.mark.parametrize("env_id", ["VizdoomBasic-v1", "VizdoomBasic-MultiBinary-v1"])
def test_compare_measures_vizdooms_engine_alone(
    env_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("vizdoom", reason="needs the vizdoom package")
    monkeypatch.chdir(tmp_path)
    settings = Settings(env_id, 2, 2, 2, duration_s=0.01, repeats=1, env_options={"frame_skip": 4})
    ours, engine = compare(settings, [stepper("vizdoom")]).measurements
    assert (engine.library, engine.num_threads) == ("vizdoom", 2)
    assert min(ours.median, engine.median) > 0
    # a game's settings are written elsewhere
    assert not list(tmp_path.iterdir())


def test_vizdooms_engine_goes_where_our_environments_go() -> None:
    pytest.importorskip("vizdoom", reason="needs the vizdoom package")
    settings = Settings("VizdoomBasic-v1", 2, 2, 2, seed=3)
    spec = env_spec(settings.id)
    engine = stepper("vizdoom").make(settings, spec)
    with rollouts.make_vec(settings.id, 2, seed=3) as env:
        _, info = env.reset()
        for game, seed in zip(engine.env._games, info["game_seed"], strict=True):
            game.set_seed(int(seed))
        engine.start()
        for batch in action_batches(spec.single_action_space, 2, seed=0):
            obs = env.step(batch)[0]
            screens = engine.env.step(engine.translate(batch))
            np.testing.assert_array_equal(np.stack(screens), obs)
    engine.close()


@pytest.mark.parametrize(
    ("env_id", "options", "message"),
    [
        ("CartPole-v1", {}, "'vizdoom' has ViZDoom's scenarios only"),
        ("VizdoomDeathmatch-v1", {}, "those of 'VizdoomDeathmatch-v1' have amounts"),
        ("VizdoomBasic-v1", {"stack_num": 4}, "leave out stack_num"),
    ],
)
def test_vizdooms_engine_refuses_what_it_has_not(
    env_id: str, options: dict[str, int], message: str
) -> None:
    pytest.importorskip("vizdoom", reason="needs the vizdoom package")
    with pytest.raises(SpecError, match=message):
        compare(Settings(env_id, 1, 1, 1, env_options=options), [stepper("vizdoom")])


def test_the_plain_loop_takes_the_options_of_the_environment() -> None:
    spec = env_spec("CartPole-v1", sutton_barto_reward=True)
    loop = stepper("loop").make(Settings("CartPole-v1", 2, 2, 1), spec)
    loop.start()
    assert loop.env.step(np.zeros(2, np.int64))[1].tolist() == [0, 0]


@pytest.mark.parametrize(("name", "module"), [("envpool", "envpool"), ("ale", "ale_py")])
def test_a_missing_peer_says_what_to_install(
    name: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(wanted: str) -> None:
        raise ImportError(f"No module named {wanted!r}")

    peer = stepper(name)
    monkeypatch.setattr(vector_libraries.importlib, "import_module", refuse)
    with pytest.raises(EngineError, match=f"peer '{name}' needs .*{module}.*pip install"):
        peer.version()


def test_gymnasium_without_an_engine_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, name)
    # None is what sys.modules holds for a module that cannot be imported
    monkeypatch.setitem(sys.modules, "Box2D", None)
    settings = Settings("LunarLander-v3", 2, 2, 1, duration_s=0.01, repeats=1)
    with pytest.raises(EngineError, match="cannot make 'LunarLander-v3': Box2D is not installed"):
        compare(settings, [stepper("gymnasium")])


def test_the_ale_peer_refuses_what_is_not_atari() -> None:
    settings = Settings("CartPole-v1", 2, 2, 1, duration_s=0.01)
    with pytest.raises(SpecError, match="'ale' has Atari games only, got id 'CartPole-v1'"):
        compare(settings, [stepper("ale")])


def test_options_that_a_peer_cannot_be_given_are_refused() -> None:
    settings = Settings("Pendulum-v1", 2, 2, 1, env_options={"gravity": 9.0})
    with pytest.raises(SpecError, match=r"no equal of the options \['gravity'\] of Pendulum-v1"):
        compare(settings, [stepper("gymnasium")])


def test_our_engine_is_no_option_that_a_peer_would_need() -> None:
    settings = Settings("Pendulum-v1", 2, 2, 1, env_options={"engine": "mujoco"})
    _, options, _ = vector_libraries.gymnasium_maker(settings, env_spec("Pendulum-v1"))
    assert options == {}


def test_envpool_gets_our_atari_options_in_its_words() -> None:
    options = envpool_atari_options({**ATARI_OPTIONS, "frameskip": 2, "episodic_life": True})
    assert options == {
        "frame_skip": 2,
        "stack_num": 4,
        "img_height": 84,
        "img_width": 84,
        "gray_scale": True,
        "noop_max": 30,
        "use_fire_reset": True,
        "episodic_life": True,
        "reward_clip": True,
        "repeat_action_probability": 0.25,
        "full_action_space": False,
        "mode": -1,
        "difficulty": -1,
        "use_inter_area_resize": True,
    }


def test_each_engine_of_an_atari_game_is_a_peer() -> None:
    settings = Settings(id="ALE/Breakout-v5", num_envs=2, batch_size=2, num_threads=1)
    made = [
        stepper(f"rollouts-{name}").make(settings, env_spec(settings.id))
        for name in ("native", "ale")
    ]
    try:
        assert [one.options["engine"] for one in made] == ["native", "ale"]
        for one in made:
            one.start()
            one.env.step(np.zeros(2, int))
    finally:
        for one in made:
            one.close()


def test_each_engine_of_a_mujoco_id_is_a_peer() -> None:
    settings = Settings("Hopper-v5", 2, 2, 1, duration_s=0.01, repeats=1)
    found = compare(settings, [stepper("rollouts-lanes"), stepper("rollouts-mujoco")]).measurements
    assert [one.options["engine"] for one in found[1:]] == ["lanes", "mujoco"]


def test_ids_without_an_engine_are_refused_by_its_peer() -> None:
    settings = Settings("CartPole-v1", 2, 2, 1)
    with pytest.raises(SpecError, match="'CartPole-v1' has one: measure an 'ALE/"):
        stepper("rollouts-mujoco").make(settings, env_spec("CartPole-v1"))
    settings = Settings("ALE/Pong-v5", 2, 2, 1)
    with pytest.raises(SpecError, match=r"'rollouts-mujoco' cannot make 'ALE/Pong-v5': .*'ale'"):
        stepper("rollouts-mujoco").make(settings, env_spec("ALE/Pong-v5"))


def test_gymnasium_gets_our_atari_options_in_its_words() -> None:
    options = gymnasium_atari_options({**ATARI_OPTIONS, "mode": 1, "img_width": 80})
    assert options["make"] == {
        "frameskip": 1,
        "repeat_action_probability": 0.25,
        "full_action_space": False,
        "continuous": False,
        "continuous_action_threshold": 0.5,
        "mode": 1,
    }
    assert options["AtariPreprocessing"]["screen_size"] == (80, 84)


def test_gymnasium_gets_our_grid_options_in_minigrids_words() -> None:
    pytest.importorskip("minigrid", reason="needs minigrid, which has no wheel for 3.14")
    options = {"observation": "rgb_partial", "tile_size": 4, "agent_view_size": 5}
    settings = Settings("BabyAI-GoToLocal-v0", 2, 2, 1, env_options=options)
    theirs = stepper("gymnasium").make(settings, env_spec(settings.id))
    try:
        assert theirs.env.single_observation_space["image"].shape == (20, 20, 3)
        assert theirs.options == {
            "make": {"agent_view_size": 5},
            "RGBImgPartialObsWrapper": {"tile_size": 4},
        }
    finally:
        theirs.close()
    other = Settings("BabyAI-GoToLocal-v0", 2, 2, 1, env_options={"see_through_walls": True})
    with pytest.raises(SpecError, match=r"gets no options \['see_through_walls'\] of MiniGrid"):
        compare(other, [stepper("gymnasium")])


def test_ale_py_gets_our_atari_options_in_its_words() -> None:
    vector_env = pytest.importorskip("ale_py.vector_env")
    options = ale_atari_options({**env_spec("ALE/Pong-v5").options, "episodic_life": "restart"})
    assert options.keys() <= inspect.signature(vector_env.AtariVectorEnv).parameters.keys()
    assert options["episodic_life"] is True
    for other in ({"mode": 1}, {"difficulty": 1}, {"episodic_life": True}):
        with pytest.raises(SpecError, match=f"'ale' has no equal of {next(iter(other))}="):
            ale_atari_options({**ATARI_OPTIONS, **other})


@pytest.mark.parametrize("translate", [envpool_atari_options, gymnasium_atari_options])
def test_atari_options_without_an_equal_are_refused(translate: Any) -> None:
    with pytest.raises(SpecError, match="no equal of maxpool=False"):
        translate({**ATARI_OPTIONS, "maxpool": False})
    refused = "continuous=True" if translate is envpool_atari_options else "noop_max=30"
    with pytest.raises(SpecError, match=f"no equal of {refused}"):
        translate({**ATARI_OPTIONS, "continuous": True})


@pytest.mark.parametrize("subject", ["latency", "memory"])
def test_a_peer_that_steps_by_itself_has_no_calls_to_measure(
    subject: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ale_py", reason="needs ale-py")
    given = ["--env-id", "ALE/Pong-v5", "--num-envs", "1", "--peer", "emulation-native"]
    assert main(["bench", subject, *given]) == 2
    said = capsys.readouterr().err
    assert f"'emulation-native' steps by itself, and {subject} is measured around each call" in said
