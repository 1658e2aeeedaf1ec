# SPDX-License-Identifier: Apache-2.0
"""A saved state goes on as its source did, in any environment of its kind."""

from __future__ import annotations

import numpy as np
import pytest
from contract_envs import ATARI_IDS, HEAVY_IDS, every_id, every_kind
from state_envs import action_of, make, play, state_of

from rollouts.errors import ClosedError, DTypeError, ProtocolError, SpecError

pytestmark = pytest.mark.system


def steps_of(env_id: str) -> int:
    return 40 if env_id in HEAVY_IDS else 150


@every_kind
@pytest.mark.parametrize("autoreset_mode", ["next_step", "same_step"])
def test_same_environment_goes_on_as_it_did_after_its_episode_ended(
    env_id: str, autoreset_mode: str
) -> None:
    with make(env_id, autoreset_mode=autoreset_mode) as env:
        env.reset()
        play(env, 1, 0, 17)
        state = env.get_state([1])
        want = play(env, 1, 100, steps_of(env_id))
        assert any(row[3] or row[4] for row in want), "an episode ends in between"
        for _ in range(2):
            env.set_state([1], state)
            assert play(env, 1, 100, steps_of(env_id)) == want


@every_kind
def test_another_environment_of_the_pool_goes_on_as_the_source_and_keeps_its_id(
    env_id: str,
) -> None:
    with make(env_id, env_id_offset=10) as env:
        env.reset()
        play(env, 12, 50, 5)
        play(env, 10, 0, 8)
        state = env.get_state([10])
        want = play(env, 10, 100, steps_of(env_id))
        env.set_state([11, 12], state * 2)
        assert play(env, 12, 100, steps_of(env_id)) == want  # play() checks env_id
        assert play(env, 11, 100, steps_of(env_id)) == want


# each environment has a state of its own
@every_id
def test_fresh_pool_with_another_seed_goes_on_without_a_reset(env_id: str) -> None:
    with make(env_id) as env, make(env_id, seed=99, env_id_offset=7) as fresh:
        env.reset()
        for one in range(3):
            play(env, one, 0, 3 + one)
        states = env.get_state()
        want = [play(env, one, 100, steps_of(env_id)) for one in range(3)]
        fresh.set_state(None, states)
        assert [play(fresh, 7 + one, 100, steps_of(env_id)) for one in range(3)] == want


@every_kind
def test_whole_rounds_with_threads_go_on_too(env_id: str) -> None:
    with make(env_id, 4, num_threads=2) as env:
        env.reset()
        actions = [np.repeat(action_of(env, step), 4, axis=0) for step in range(30)]
        env.step(actions[0])
        states = env.get_state()

        def roll() -> list[list[bytes]]:
            found = []
            for action in actions:
                *values, info = env.step(action)
                found.append([np.asarray(x).tobytes() for x in (*values, *info.values())])
            return found

        want = roll()
        env.set_state(None, states)
        assert roll() == want


@every_kind
def test_state_of_an_ended_episode_begins_the_same_next_one(env_id: str) -> None:
    with make(env_id, max_episode_steps=6) as env:
        env.reset()
        ends = [bool(row[3] or row[4]) for row in play(env, 0, 0, 6)]
        play(env, 0, 6, ends.index(True) + 1 if not ends[-1] else 0)
        state = env.get_state([0])
        want = play(env, 0, 100, 20)
        env.set_state([2], state)
        assert play(env, 2, 100, 20) == want


@every_kind
def test_saving_changes_nothing_and_states_of_the_same_moment_are_equal(env_id: str) -> None:
    with make(env_id) as env, make(env_id) as watched:
        env.reset()
        watched.reset()
        for step in range(0, 12, 3):
            assert play(env, 0, step, 3) == play(watched, 0, step, 3)
            assert env.get_state([0]) == watched.get_state([0])
            assert env.get_state([0]) == env.get_state([0])
        env.set_state([1], env.get_state([0]))
        assert env.get_state([1]) == env.get_state([0])


@every_kind
def test_reset_with_a_seed_ends_sharing_a_stream(env_id: str) -> None:
    with make(env_id) as env, make(env_id) as other:
        env.reset()
        other.reset(seed=3)
        env.set_state(None, env.get_state([0]) * 3)
        env.reset(seed=3)
        for one in range(3):
            assert play(env, one, 0, 40) == play(other, one, 0, 40)


@every_kind
def test_asynchronous_pool_saves_and_restores(env_id: str) -> None:
    with make(env_id) as env, make(env_id, batch_size=1, num_threads=2) as other:
        env.reset()
        play(env, 2, 0, 4)
        state = env.get_state([2])
        want = play(env, 2, 100, 20)
        other.set_state([1], state)
        assert play(other, 1, 100, 20) == want


@pytest.mark.skipif(not ATARI_IDS, reason="needs ale-py")
@pytest.mark.parametrize(
    ("env_id", "options"),
    [
        ("ALE/Pong-v5", {"frameskip": 1, "stack_num": 1, "grayscale": False}),
        ("ALE/Breakout-v5", {"episodic_life": True}),
        ("ALE/Breakout-v5", {"life_loss_info": True, "repeat_action_probability": 0.0}),
        ("ALE/YarsRevenge-v5", {}),
        ("ALE/Seaquest-v5", {"maxpool": False, "full_action_space": True}),
        (
            "ALE/Breakout-v5",  # its paddle always turns, mostly as far as the action before said
            {
                "continuous": True,
                "continuous_action_threshold": 0.0,
                "repeat_action_probability": 0.9,
            },
        ),
    ],
)
def test_games_go_on_exactly_with_other_options(env_id: str, options: dict) -> None:
    with make(env_id, 2, max_episode_steps=0, **options) as env:
        env.reset()
        for first in (0, 1, 40, 120):
            play(env, 0, first, 7)
            play(env, 1, 300, 5)
            state = env.get_state([0])
            want = play(env, 0, 100, 100)
            env.set_state([1, 0], state * 2)
            assert play(env, 1, 100, 100) == want
            assert play(env, 0, 100, 100) == want


def test_options_that_repeat_the_defaults_are_no_other_options() -> None:
    with make("FrozenLake-v1", 1, is_slippery=True) as env:
        env.set_state(None, [state_of("FrozenLake-v1")])


def test_environment_in_flight_is_neither_saved_nor_set() -> None:
    with make("CartPole-v1") as env:
        env.reset()
        states = env.get_state()
        env.send(np.zeros(1, np.int64), [1])
        with pytest.raises(ProtocolError, match="env_id 1 is in flight"):
            env.get_state()
        with pytest.raises(ProtocolError, match="env_id 1 is in flight"):
            env.set_state(None, states)
        assert env.get_state([0, 2]) == [states[0], states[2]]
        env.set_state([0], [states[2]])
        env.recv()
        env.send(np.zeros(3, np.int64))
        with pytest.raises(ProtocolError, match="env_id 0 is in flight"):
            env.get_state()
        with pytest.raises(ProtocolError, match="env_id 0 is in flight"):
            env.set_state(None, states)
        env.recv()
        env.set_state(None, states)
        assert env.get_state() == states


def test_environment_that_was_never_reset_has_no_state() -> None:
    with make("CartPole-v1") as env:
        with pytest.raises(ProtocolError, match="never reset"):
            env.get_state()
        env.set_state([1], [state_of("CartPole-v1")])
        assert env.get_state([1]) == [state_of("CartPole-v1")]
        with pytest.raises(ProtocolError, match="never reset"):
            env.step(np.zeros(3, np.int64))


def test_closed_environment_says_so() -> None:
    env = make("CartPole-v1")
    env.reset()
    states = env.get_state()
    env.close()
    with pytest.raises(ClosedError):
        env.get_state()
    with pytest.raises(ClosedError):
        env.set_state(None, states)


def test_wrong_arguments_are_named() -> None:
    state = state_of("CartPole-v1")
    with make("CartPole-v1", env_id_offset=10) as env:
        env.reset()
        before = env.get_state()
        with pytest.raises(SpecError, match="its ids are 10 to 12"):
            env.get_state([0])
        with pytest.raises(SpecError, match="got 1 states for 3"):
            env.set_state(None, [state])
        with pytest.raises(ProtocolError, match="env_id 11 is listed twice"):
            env.set_state([11, 11], [state, state])
        with pytest.raises(DTypeError, match="single state"):
            env.set_state([10], state)
        with pytest.raises(DTypeError, match="state 0 is of type str"):
            env.set_state([10], ["text"])  # type: ignore[list-item]
        assert env.get_state() == before
        env.set_state([10, 11, 12], [bytearray(state), memoryview(state), state])
        assert env.get_state() == [state] * 3


def test_ended_state_needs_a_reset_where_autoreset_is_disabled() -> None:
    with make("CartPole-v1", autoreset_mode="disabled", max_episode_steps=3) as env:
        env.reset()
        start = env.get_state([0])
        play(env, 0, 0, 3)
        ended = env.get_state([0])
        env.set_state([1], ended)
        with pytest.raises(ProtocolError, match=r"env_id 1 .*has ended"):
            play(env, 1, 0, 1)
        env.set_state([1], start)
        assert len(play(env, 1, 0, 3)) == 3


def test_reset_mask_shows_what_was_restored() -> None:
    with make("CartPole-v1") as env:
        first = env.reset()[0].copy()
        states = env.get_state()
        env.step(np.zeros(3, np.int64))
        env.set_state([0, 1], [states[1], states[0]])
        obs, info = env.reset(options={"reset_mask": np.array([False, False, True])})
        np.testing.assert_array_equal(obs[:2], first[[1, 0]])
        assert info["env_id"].tolist() == [0, 1, 2]
