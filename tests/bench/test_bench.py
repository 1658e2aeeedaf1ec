# SPDX-License-Identifier: Apache-2.0
"""`rollouts.bench`: turns, counting, equal load for every library, and the report."""

from __future__ import annotations

import importlib.util
import inspect
import json
from typing import Any

import gymnasium
import numpy as np
import pytest
from numpy.typing import NDArray

import rollouts
from rollouts.bench import PEERS, Comparison, Measurement, OpenEnv, Settings, compare
from rollouts.bench import peers as peers_module
from rollouts.bench.atari_options import (
    ale_atari_options,
    envpool_atari_options,
    gymnasium_atari_options,
)
from rollouts.bench.report import Machine, footer, header, table, to_json
from rollouts.bench.runner import action_batches, measure
from rollouts.errors import EngineError, SpecError
from rollouts.mujoco import integration_state
from rollouts.pool.registry import env_spec

Array = NDArray[Any]

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


class FakeEnv:
    """Writes down who was called with what."""

    def __init__(self, name: str, log: list[str], *, batch_size: int = 4) -> None:
        self.name, self.log, self.batch_size = name, log, batch_size
        self.actions: list[Array] = []
        self.sent_ids: list[int] = []
        self.received = 0

    def start(self) -> None:
        self.log.append(self.name)

    def step(self, actions: Array) -> None:
        self.actions.append(actions)
        self.log.append(self.name)

    def recv(self) -> tuple[Any, ...]:
        ids = np.array([self.received % 4])
        self.received += 1
        return None, None, None, None, {"env_id": ids}

    def send(self, actions: Array, env_id: Array) -> None:
        self.sent_ids += env_id.tolist()

    def open(self) -> OpenEnv:
        return OpenEnv(
            self.name, "1.0", self, 4, self.batch_size, 1, start=self.start, close=lambda: None
        )


ACTIONS = [np.array([0, 1, 0, 1]), np.array([1, 1, 0, 0])]


def test_libraries_take_turns() -> None:
    log: list[str] = []
    lines: list[str] = []
    envs = [FakeEnv("ours", log).open(), FakeEnv("peer", log).open()]
    measure(envs, [ACTIONS] * 2, duration_s=1e-4, repeats=3, on_progress=lines.append)
    turns = [name for name, before in zip(log, [None, *log], strict=False) if name != before]
    # one warm-up and three repeats each
    assert turns == ["ours", "peer"] * 4
    assert [line for line in lines if "repeat" in line] == [
        f"{name}: repeat {repeat} of 3" for repeat in (1, 2, 3) for name in ("ours", "peer")
    ]


def test_every_library_gets_the_same_actions_in_turn() -> None:
    envs = [FakeEnv("ours", []), FakeEnv("peer", [])]
    measure([env.open() for env in envs], [ACTIONS] * 2, duration_s=1e-4, repeats=1)
    for env in envs:
        assert {id(actions) for actions in env.actions} == {id(actions) for actions in ACTIONS}


def test_asynchronous_mode_sends_to_the_environments_just_received() -> None:
    env = FakeEnv("ours", [], batch_size=1)
    (found,) = measure([env.open()], [[np.array([0])]], duration_s=1e-4, repeats=2)
    assert env.sent_ids == [i % 4 for i in range(env.received)]
    assert found.api == "recv/send"


def test_env_steps_are_rows_returned() -> None:
    found = Measurement("ours", "1", 4, 1, "step", calls=100, elapsed_s=(2.0, 1.0, 4.0))
    assert found.env_steps_per_s == (200.0, 400.0, 100.0)
    assert found.median == 200.0
    assert found.us_per_call == 20_000.0


@pytest.mark.parametrize(
    "space",
    [
        gymnasium.spaces.Discrete(3),
        gymnasium.spaces.Discrete(3, start=-1),
        gymnasium.spaces.Box(-2.0, 2.0, (2,), np.float32),
    ],
)
def test_actions_depend_on_the_seed_alone(space: gymnasium.Space[Any]) -> None:
    first, again, other = (action_batches(space, 5, seed=seed) for seed in (2**40, 2**40, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert all(row in space for batch in first for row in batch)
    assert len({batch.tobytes() for batch in first}) > 1


@pytest.mark.parametrize("batch_size", [4, 2])
def test_compare_measures_our_pool_and_gymnasium(batch_size: int) -> None:
    settings = Settings("CartPole-v1", 4, batch_size, 1, duration_s=0.01, repeats=2)
    found = compare(settings, [PEERS["gymnasium"]])
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
    ours, peer = compare(settings, [PEERS["envpool"]]).measurements
    assert (peer.batch_size, peer.api) == (batch_size, ours.api)
    assert peer.median > 0


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1"])
def test_compare_measures_the_plain_loop(env_id: str) -> None:
    settings = Settings(env_id, 4, 4, 2, duration_s=0.01, repeats=1)
    _, loop = compare(settings, [PEERS["loop"]]).measurements
    assert (loop.library, loop.batch_size, loop.num_threads, loop.api) == ("loop", 4, 1, "step")
    assert loop.median > 0


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize(("peer", "nstep"), [("mujoco", 32), ("mujoco-batch", 2)])
def test_compare_measures_mujocos_own_threads(peer: str, nstep: int, num_threads: int) -> None:
    settings = Settings("InvertedPendulum-v5", 3, 3, num_threads, duration_s=0.01, repeats=1)
    _, engine = compare(settings, [PEERS[peer]]).measurements
    assert (engine.library, engine.batch_size, engine.num_threads) == (peer, 3, num_threads)
    assert engine.options == {"nstep": nstep}
    assert engine.median > 0


@pytest.mark.parametrize("peer", ["mujoco", "mujoco-batch"])
def test_mujocos_own_threads_go_where_our_environments_go(peer: str) -> None:
    settings = Settings("Hopper-v5", 2, 2, 1, seed=3)
    spec = env_spec("Hopper-v5", terminate_when_unhealthy=False)
    engine = PEERS[peer].make(settings, spec)
    batches = action_batches(env_spec("Hopper-v5").single_action_space, 2, seed=0)
    with rollouts.make_vec("Hopper-v5", 2, seed=3, terminate_when_unhealthy=False) as env:
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
        compare(settings, [PEERS[peer]])


def test_the_plain_loop_takes_the_options_of_the_environment() -> None:
    spec = env_spec("CartPole-v1", sutton_barto_reward=True)
    loop = PEERS["loop"].make(Settings("CartPole-v1", 2, 2, 1), spec)
    loop.start()
    assert loop.env.step(np.zeros(2, np.int64))[1].tolist() == [0, 0]


def test_every_environment_is_closed_when_one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []

    class Broken:
        name = "broken"

        def version(self) -> str:
            return "1"

        def make(self, settings: Settings, spec: Any) -> OpenEnv:
            def fail(*_: object) -> None:
                raise KeyboardInterrupt

            return OpenEnv("broken", "1", self, 2, 2, 1, fail, lambda: closed.append("broken"))

    ours = peers_module.VectorEnv.close
    monkeypatch.setattr(
        peers_module.VectorEnv, "close", lambda env: (closed.append("rollouts"), ours(env))
    )
    with pytest.raises(KeyboardInterrupt):
        compare(Settings("CartPole-v1", 2, 2, 1, duration_s=1e-3), [Broken()])
    assert closed == ["broken", "rollouts"]


@pytest.mark.parametrize(("name", "module"), [("envpool", "envpool"), ("ale", "ale_py")])
def test_a_missing_peer_says_what_to_install(
    name: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(wanted: str) -> None:
        raise ImportError(f"No module named {wanted!r}")

    monkeypatch.setattr(peers_module.importlib, "import_module", refuse)
    with pytest.raises(EngineError, match=f"peer '{name}' needs .*{module}.*pip install"):
        PEERS[name].version()


def test_the_ale_peer_refuses_what_is_not_atari() -> None:
    settings = Settings("CartPole-v1", 2, 2, 1, duration_s=0.01)
    with pytest.raises(SpecError, match="'ale' has Atari games only, got env_id 'CartPole-v1'"):
        compare(settings, [PEERS["ale"]])


def test_options_that_a_peer_cannot_be_given_are_refused() -> None:
    settings = Settings("Pendulum-v1", 2, 2, 1, env_options={"gravity": 9.0})
    with pytest.raises(SpecError, match=r"no equal of the options \['gravity'\] of Pendulum-v1"):
        compare(settings, [PEERS["gymnasium"]])


@pytest.mark.parametrize("changes", [{"duration_s": 0.0}, {"duration_s": np.nan}, {"repeats": 0}])
def test_settings_out_of_range_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=f"{next(iter(changes))} must be"):
        Settings("CartPole-v1", 2, 2, 1, **changes)


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
    settings = Settings(env_id="ALE/Breakout-v5", num_envs=2, batch_size=2, num_threads=1)
    made = [
        PEERS[f"rollouts-{name}"].make(settings, env_spec(settings.env_id))
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
    cart_pole = Settings(env_id="CartPole-v1", num_envs=2, batch_size=2, num_threads=1)
    with pytest.raises(SpecError, match="measure an 'ALE/"):
        PEERS["rollouts-native"].make(cart_pole, env_spec("CartPole-v1"))


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


# -- report ----------------------------------------------------------------------------

MACHINE = Machine("Some CPU", 2, 0.5, {"rollouts": "0.1.0", "envpool": "1.2.5"})


def comparison(env_id: str = "CartPole-v1", **options: Any) -> Comparison:
    return Comparison(
        Settings(env_id, 4, 4, 2, repeats=3),
        options,
        (
            Measurement("rollouts", "0.1.0", 4, 2, "step", 1_000_000, (1.0, 2.0, 4.0)),
            Measurement("envpool", "1.2.5", 4, 2, "step", 100_000, (2.0, 2.0, 1.0), {}, ("Note.",)),
        ),
    )


def test_table_columns_are_aligned() -> None:
    lines = table([comparison(), comparison("Pendulum-v1")]).splitlines()
    assert len(lines) == 5
    for name in ("env-steps/s", "us/call"):
        end = lines[0].index(name) + len(name)
        assert all(line[end - 1] != " " and line[end : end + 1] in ("", " ") for line in lines)
    assert lines[1].split()[:8] == ["CartPole-v1", "4", "4", "2", "step", "rollouts", "2.00", "M"]
    assert lines[2].endswith("10.0x")


def test_markdown_table_has_the_same_cells() -> None:
    plain, markdown = (table([comparison()], markdown=each) for each in (False, True))
    head, rule, *rows = markdown.splitlines()
    assert set(rule) <= set("|-: ")
    assert {line.count("|") for line in (head, rule, *rows)} == {head.count("|")}
    for line, row in zip(plain.splitlines(), [head, *rows], strict=True):
        assert line.split() == row.replace("|", " ").split()


def test_frames_are_env_steps_times_frameskip() -> None:
    assert "frames/s" not in table([comparison()])
    lines = table([comparison("ALE/Pong-v5", frameskip=4), comparison()]).splitlines()
    assert "frames/s" in lines[0]
    assert "8.00 M" in lines[1]


def test_footer_says_what_is_counted_and_how_to_repeat_it() -> None:
    text = footer([comparison()], command="rollouts bench --env-id CartPole-v1")
    assert "3 repeats of about 1 s" in text
    assert "first observation of a new episode counts as one" in text
    assert "envpool: Note." in text
    assert text.endswith("Command: rollouts bench --env-id CartPole-v1")


def test_header_names_versions_and_cpu() -> None:
    expected = "rollouts 0.1.0, envpool 1.2.5, Some CPU, 2 usable CPUs, load average 0.5"
    assert header(MACHINE) == expected


def test_json_has_every_repeat() -> None:
    text = json.dumps(to_json([comparison()], MACHINE, command="x"), allow_nan=False)
    (result,) = json.loads(text)["results"]
    ours, peer = result["measurements"]
    assert [each["elapsed_s"] for each in ours["repeats"]] == [1.0, 2.0, 4.0]
    assert ours["env_steps_per_s"] == {"median": 2e6, "min": 1e6, "max": 4e6}
    assert ours["rollouts_ratio"] is None
    assert peer["rollouts_ratio"] == 10.0
    assert peer["notes"] == ["Note."]
