# SPDX-License-Identifier: Apache-2.0
"""A state that is damaged, foreign or of other options is refused and changes nothing."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contract_envs import ATARI_IDS, LIGHT_IDS, every_kind, every_kind_of
from crafted import HEADER, sealed
from state_envs import make, play, state_of

import rollouts
from rollouts.errors import ProtocolError, SpecError
from rollouts.mujoco import Scaled


def damaged(state: bytes, at: int, bit: int = 0) -> bytes:
    return state[:at] + bytes([state[at] ^ 1 << bit]) + state[at + 1 :]


def with_version(state: bytes, version: int) -> bytes:
    magic, _, *rest = HEADER.unpack_from(state)
    return HEADER.pack(magic, version, *rest) + state[HEADER.size :]


BAD_STATES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda state: b"", "truncated"),
    "header only in part": (lambda state: state[:20], "truncated"),
    "header only": (lambda state: state[: HEADER.size], "truncated"),
    "last byte gone": (lambda state: state[:-1], "truncated"),
    "one byte more": (lambda state: state + b"\0", "header says otherwise"),
    "not a state": (lambda state: b"x" * 500, "not a state"),
    "other magic": (lambda state: damaged(state, 3), "not a state"),
    "later version": (lambda state: with_version(state, 6), "format version 6"),
    "checksum": (lambda state: damaged(state, HEADER.size - 1, 7), "damaged"),
    "type name": (lambda state: damaged(state, HEADER.size), "damaged"),
    "fingerprint": (lambda state: damaged(state, 16), "damaged"),
    "last bit": (lambda state: damaged(state, len(state) - 1, 7), "damaged"),
}


@every_kind
def test_bad_states_are_refused_and_change_nothing(env_id: str) -> None:
    # states of one pool: games and engines are slow to start
    with make(env_id) as env:
        env.reset()
        good = env.get_state([0])[0]
        play(env, 1, 0, 3)
        before = env.get_state()
        for kind, (spoil, message) in BAD_STATES.items():
            # a good state before the bad one is not applied either
            with pytest.raises(SpecError, match=f"state 1 .*{message}"):
                env.set_state([1, 2], [good, spoil(good)])
            assert env.get_state() == before, kind


@every_kind_of(LIGHT_IDS)
def test_every_flipped_bit_is_found(env_id: str) -> None:
    with make(env_id) as env:
        env.reset()
        before = env.get_state()
        for at in range(len(before[0])):
            for bit in range(8):
                with pytest.raises(SpecError):
                    env.set_state([0], [damaged(before[0], at, bit)])
        assert env.get_state() == before


@every_kind
def test_state_of_another_type_is_refused(env_id: str) -> None:
    other = "CartPole-v1" if not env_id.startswith("CartPole") else "Pendulum-v1"
    with make(env_id) as env:
        env.reset()
        before = env.get_state()
        with pytest.raises(SpecError, match=f"of a {other.split('-')[0]} environment, expected"):
            env.set_state([0], [state_of(other)])
        assert env.get_state() == before


@pytest.mark.parametrize(
    ("env_id", "options"),
    [
        ("CartPole-v1", {"sutton_barto_reward": True}),
        ("FrozenLake-v1", {"is_slippery": False}),
        ("Hopper-v5", {"frame_skip": 3}),
        *[(i, {"frameskip": 3}) for i in ATARI_IDS[:1]],
    ],
)
def test_state_of_other_options_is_refused(env_id: str, options: dict) -> None:
    with make(env_id, **options) as env:
        env.reset()
        before = env.get_state()
        with pytest.raises(SpecError, match="other options"):
            env.set_state([0], [state_of(env_id)])
        assert env.get_state() == before


@pytest.mark.skipif(len(ATARI_IDS) < 2, reason="needs ale-py")
def test_state_of_another_game_is_refused() -> None:
    with make("ALE/Pong-v5", 1) as env, pytest.raises(SpecError, match="other options"):
        env.set_state(None, [state_of("ALE/Breakout-v5")])


def test_checksum_is_the_documented_one() -> None:
    state = state_of("CartPole-v1")
    assert sealed(state) == state


def state_without_emulator(good: bytes) -> bytes:
    """A game's state that only the emulator finds wrong."""
    # type name, clock and the game's own values come before the emulator's text
    at = HEADER.size + len("Atari") + 33 + 30
    length = int.from_bytes(good[at : at + 8], "little")
    magic, version, name, fingerprint, size, _ = HEADER.unpack_from(good)
    head = HEADER.pack(magic, version, name, fingerprint, size - length, 0)
    return sealed(head + good[HEADER.size : at] + bytes(8) + good[at + 8 + length :])


@pytest.mark.parametrize("env_id", ATARI_IDS[:1])
@pytest.mark.parametrize("strength", [float("nan"), float("inf"), 1e6])
def test_state_of_an_impossible_paddle_is_refused(env_id: str, strength: float) -> None:
    good = state_of(env_id)
    # after the type name, the clock and the action
    at = HEADER.size + len("Atari") + 33 + 4
    bad = sealed(good[:at] + struct.pack("<f", strength) + good[at + 4 :])
    with make(env_id) as env:
        with pytest.raises(SpecError, match="turns a paddle"):
            env.set_state([0], [bad])
        env.set_state([0], [good])


REFUSALS = [("ale", "ALE refuses"), ("native", "is shorter than its parts")]


@pytest.mark.parametrize(("engine", "refusal"), REFUSALS)
@pytest.mark.parametrize("env_id", ATARI_IDS[:1])
def test_state_that_the_engine_refuses_puts_back_those_before_it(
    env_id: str, engine: str, refusal: str
) -> None:
    good = state_of(env_id, engine=engine)
    no_emulator = state_without_emulator(good)
    with make(env_id, engine=engine) as env, make(env_id, engine=engine) as watched:
        for one in (env, watched):
            one.reset()
            play(one, 0, 0, 9)
        with pytest.raises(SpecError, match=f"state 1 for env_id 2: {refusal}"):
            env.set_state([0, 2], [good, no_emulator])
        assert env.get_state() == watched.get_state()
        assert [play(env, i, 9, 20) for i in range(3)] == [
            play(watched, i, 9, 20) for i in range(3)
        ]


@pytest.mark.parametrize(("engine", "refusal"), REFUSALS)
@pytest.mark.parametrize("env_id", ATARI_IDS[:1])
def test_state_that_the_engine_refuses_changes_no_game_before_its_first_reset(
    env_id: str, engine: str, refusal: str
) -> None:
    good = state_of(env_id, engine=engine)
    with make(env_id, engine=engine) as env, make(env_id, engine=engine) as watched:
        with pytest.raises(SpecError, match=f"state 1 for env_id 2: {refusal}"):
            env.set_state([0, 2], [good, state_without_emulator(good)])
        np.testing.assert_array_equal(env.reset()[0], watched.reset()[0])
        assert [play(env, i, 0, 20) for i in range(3)] == [
            play(watched, i, 0, 20) for i in range(3)
        ]


# two robots in files of one name, which states do not tell apart
ROBOT = """
<mujoco>
  <worldbody>
    <body name="one"><joint name="one" type="slide"/><geom size="0.1" mass="1"/></body>
    {more}
  </worldbody>
  <actuator><motor joint="one"/></actuator>
</mujoco>
"""
SECOND_BODY = '<body name="two"><joint type="slide"/><geom size="0.1" mass="1"/></body>'


def robot(folder: Path, more: str = "", **arguments: Any) -> rollouts.VectorEnv:
    folder.mkdir(exist_ok=True)
    path = folder / "robot.xml"
    path.write_text(ROBOT.format(more=more))
    return rollouts.make_vec(
        "MuJoCo-v0",
        2,
        num_threads=1,
        seed=5,
        xml_file=str(path),
        observation=["qpos[0:1]", "qvel[0:1]"],
        reset_noise_scale=0.1,
        max_episode_steps=4,
        **arguments,
    )


def robot_states(tmp_path: Path) -> tuple[bytes, bytes]:
    """One that a robot takes, and one of the other robot."""
    with robot(tmp_path / "own") as env, robot(tmp_path / "other", SECOND_BODY) as other:
        env.reset(seed=77, options={"model": {"body_mass": [0.0, 7.0]}})
        env.step(np.ones((2, 1), np.float32))
        other.reset()
        return env.get_state()[0], other.get_state()[0]


@pytest.mark.parametrize("model", [{}, {"body_mass": [0.0, 3.0]}, {"body_mass": Scaled(1, 5)}])
def test_refused_state_changes_nothing_before_the_first_reset(
    tmp_path: Path, model: dict[str, Any]
) -> None:
    """The episode's random stream, the model and its next fields stay."""
    states = robot_states(tmp_path)
    with robot(tmp_path / "own", model=model) as env, robot(tmp_path / "own", model=model) as want:
        for _ in range(2):
            with pytest.raises(SpecError, match="state 1 for env_id 1: has"):
                env.set_state(None, states)
        with pytest.raises(ProtocolError, match="never reset"):
            env.get_state()
        # no seed is given: it is that of make_vec yet
        np.testing.assert_array_equal(env.reset()[0], want.reset()[0])
        for _ in range(3):
            np.testing.assert_array_equal(
                env.model_field("body_mass"), want.model_field("body_mass")
            )
            for _ in range(5):
                action = np.ones((2, 1), np.float32)
                np.testing.assert_array_equal(env.step(action)[0], want.step(action)[0])
        assert env.get_state() == want.get_state()


def test_refused_state_leaves_own_fields_and_episodes_in_place(tmp_path: Path) -> None:
    states = robot_states(tmp_path)
    model = {"body_mass": np.array([[0.0, 3.0], [0.0, 4.0]])}
    with robot(tmp_path / "own", model=model) as env, robot(tmp_path / "own", model=model) as want:
        for one in (env, want):
            one.reset()
            one.step(np.ones((2, 1), np.float32))
        with pytest.raises(SpecError, match="state 1 for env_id 1: has"):
            env.set_state(None, states)
        assert env.get_state() == want.get_state()
        for _ in range(10):
            action = np.ones((2, 1), np.float32)
            np.testing.assert_array_equal(env.step(action)[0], want.step(action)[0])
        np.testing.assert_array_equal(env.model_field("body_mass"), model["body_mass"])
