# SPDX-License-Identifier: Apache-2.0
"""Options that differ by environment: at construction, at reset, in pickles and in states.

tests/parity/test_env_options_data.py compares the data.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import numpy as np
import pytest

import rollouts
from rollouts.errors import ClosedError, ProtocolError, SpecError

N = 5
LENGTHS = np.linspace(0.4, 0.6, N)

needs_atari = pytest.mark.skipif(
    "ALE/Pong-v5" not in rollouts.env_ids(), reason="needs the ale-py package"
)


def mask_of(*envs: int) -> np.ndarray:
    mask = np.zeros(N, np.bool_)
    mask[list(envs)] = True
    return mask


@pytest.fixture
def env() -> Iterator[rollouts.VectorEnv]:
    with rollouts.make_vec("CartPole-v1", N, seed=1, pole_half_length=LENGTHS) as made:
        made.reset()
        yield made


def step(env: rollouts.VectorEnv) -> np.ndarray:
    return env.step(np.ones(env.num_envs, np.int32))[0].copy()


@pytest.mark.parametrize(
    "given", [LENGTHS, LENGTHS.tolist(), tuple(LENGTHS), list(LENGTHS), LENGTHS.astype("f8")]
)
def test_lists_tuples_and_arrays_give_each_environment_its_value(given: object) -> None:
    with rollouts.make_vec("CartPole-v1", N, pole_half_length=given, gravity=3) as env:
        np.testing.assert_array_equal(env.env_options["pole_half_length"], LENGTHS)
        assert env.env_options["gravity"] == 3.0
        assert env.env_options["mass_cart"] == 1.0


def test_values_may_be_bools_and_numpy_scalars() -> None:
    flags = [np.True_, False, True, np.False_, True]
    arguments = {"is_slippery": flags, "success_rate": np.float32(0.5), "reward_goal": np.array(2)}
    with rollouts.make_vec("FrozenLake-v1", N, **arguments) as env:
        assert env.env_options["is_slippery"].tolist() == [bool(flag) for flag in flags]
        assert env.env_options["success_rate"] == 0.5
        assert env.env_options["reward_goal"] == 2.0


@pytest.mark.parametrize("given", [[1.0] * (N - 1), (1.0,) * (N + 1), [], np.ones(1)])
def test_a_wrong_number_of_values_is_an_error(given: object) -> None:
    expected = f"option 'gravity' has {len(given)} values, .*each of the {N} environments"
    with pytest.raises(SpecError, match=expected):
        rollouts.make_vec("CartPole-v1", N, gravity=given)


def test_an_array_of_two_axes_is_an_error() -> None:
    with pytest.raises(SpecError, match=r"'gravity' has shape \(5, 1\), expected .* 5 env"):
        rollouts.make_vec("CartPole-v1", N, gravity=np.ones((N, 1)))


def test_a_wrong_type_names_option_and_row() -> None:
    with pytest.raises(SpecError, match="row 3: option 'gravity' must be a float, got a str"):
        rollouts.make_vec("CartPole-v1", N, gravity=[1, 2, 3, "four", 5])
    with pytest.raises(SpecError, match="'gravity' must be a bool, int, float or str"):
        rollouts.make_vec("CartPole-v1", N, gravity=[1, 2, 3, None, 5])


def test_a_single_environment_takes_a_list_of_one() -> None:
    with rollouts.make_vec("CartPole-v1", gravity=[2.5]) as env:
        assert env.env_options["gravity"] == 2.5


def test_env_spec_shows_the_first_value() -> None:
    with rollouts.make_vec("CartPole-v1", N, pole_half_length=LENGTHS) as env:
        assert env.env_spec.options["pole_half_length"] == LENGTHS[0]
        assert env.env_spec == rollouts.env_spec("CartPole-v1", pole_half_length=LENGTHS)


def test_pickles_carry_the_options_of_the_construction(env: rollouts.VectorEnv) -> None:
    env.reset(seed=3)
    want = step(env)
    env.reset(options={"gravity": 1.0})
    with pickle.loads(pickle.dumps(env)) as other:
        np.testing.assert_array_equal(other.env_options["pole_half_length"], LENGTHS)
        assert other.env_options["gravity"] == 9.8
        other.reset(seed=3)
        np.testing.assert_array_equal(step(other), want)


def test_changing_the_array_later_changes_nothing() -> None:
    lengths = LENGTHS.copy()
    with rollouts.make_vec("CartPole-v1", N, pole_half_length=lengths) as env:
        lengths[:] = 9
        np.testing.assert_array_equal(env.env_options["pole_half_length"], LENGTHS)
        with pickle.loads(pickle.dumps(env)) as other:
            np.testing.assert_array_equal(other.env_options["pole_half_length"], LENGTHS)


def test_reset_options_hold_until_they_are_changed(env: rollouts.VectorEnv) -> None:
    env.reset(options={"gravity": 1.0, "pole_half_length": LENGTHS[::-1]})
    for _ in range(2):
        assert env.env_options["gravity"] == 1.0
        np.testing.assert_array_equal(env.env_options["pole_half_length"], LENGTHS[::-1])
        env.reset()


def test_reset_options_reach_marked_environments_alone(env: rollouts.VectorEnv) -> None:
    gravity = np.array([1.0, 2, 3, 4, 5])
    env.reset(options={"reset_mask": mask_of(1, 4), "gravity": gravity})
    assert env.env_options["gravity"].tolist() == [9.8, 2, 9.8, 9.8, 5]

    # with equal states, what differs from a pool of the construction's options is gravity
    with rollouts.make_vec("CartPole-v1", N, pole_half_length=LENGTHS) as other:
        starts = env.reset(seed=8)[0].copy()
        np.testing.assert_array_equal(other.reset(seed=8)[0], starts)
        for _ in range(3):
            differs = (step(env) != step(other)).any(axis=1)
        assert differs.tolist() == mask_of(1, 4).tolist()


def test_reset_with_options_mask_and_seed(env: rollouts.VectorEnv) -> None:
    before = step(env)
    obs, info = env.reset(seed=21, options={"reset_mask": mask_of(2), "gravity": 2.0})
    np.testing.assert_array_equal(np.delete(obs, 2, axis=0), np.delete(before, 2, axis=0))
    assert info["episode_length"].tolist() == [1, 1, 0, 1, 1]
    with rollouts.make_vec("CartPole-v1", N, gravity=2.0, pole_half_length=LENGTHS) as other:
        np.testing.assert_array_equal(other.reset(seed=21)[0][2], obs[2])
        np.testing.assert_array_equal(step(other)[2], step(env)[2])


def test_unknown_reset_options_are_named(env: rollouts.VectorEnv) -> None:
    with pytest.raises(SpecError, match=r"\['gravitas'\].*'reset_mask'.*CartPole-v1.*gravity, "):
        env.reset(options={"gravitas": 1.0})


@needs_atari
def test_internal_options_cannot_be_set_at_reset() -> None:
    with (
        rollouts.make_vec("ALE/Pong-v5") as env,
        pytest.raises(SpecError, match=r"unknown reset options \['rom_path'\]"),
    ):
        env.reset(options={"rom_path": "/dev/null"})


@pytest.mark.parametrize(
    "options",
    [
        {"gravity": 2.0, "pole_half_length": [0.5] * (N + 1)},
        {"gravity": 2.0, "pole_half_length": "long"},
        {"gravity": 2.0, "pole_half_length": [0.5, 0.5, 0.5, 0.5, "long"]},
        {"gravity": 2.0, "no_such": 1},
        {"gravity": 2.0, "reset_mask": np.zeros(N + 1, np.bool_)},
    ],
)
def test_a_refused_reset_changes_nothing(env: rollouts.VectorEnv, options: dict) -> None:
    state, before = env.get_state(), env.env_options
    with pytest.raises(SpecError):
        env.reset(seed=99, options=options)
    assert env.get_state() == state
    np.testing.assert_equal(env.env_options, before)


def test_options_for_a_mask_that_marks_nothing_reach_nobody(env: rollouts.VectorEnv) -> None:
    state, before = env.get_state(), env.env_options
    env.reset(seed=99, options={"gravity": 2.0, "reset_mask": np.zeros(N, np.bool_)})
    assert env.get_state() == state
    np.testing.assert_equal(env.env_options, before)


def test_a_bad_seed_changes_no_options(env: rollouts.VectorEnv) -> None:
    with pytest.raises(SpecError, match="seed has 2 entries"):
        env.reset(seed=[1, 2], options={"gravity": 2.0})
    assert env.env_options["gravity"] == 9.8


def test_options_wait_for_environments_in_flight(env: rollouts.VectorEnv) -> None:
    env.send(np.ones(N, np.int32))
    with pytest.raises(ProtocolError, match="in flight"):
        env.reset(options={"reset_mask": mask_of(0), "gravity": 2.0})
    env.recv()
    assert env.env_options["gravity"] == 9.8


def test_a_mask_may_not_leave_out_what_was_never_reset() -> None:
    with rollouts.make_vec("CartPole-v1", N) as env:
        with pytest.raises(ProtocolError, match="never reset"):
            env.reset(options={"reset_mask": mask_of(0), "gravity": 2.0})
        assert env.env_options["gravity"] == 9.8


def test_an_interrupt_before_the_reset_leaves_nothing_to_step(env: rollouts.VectorEnv) -> None:
    # what reset does first; an engine that was just built has no game to step
    env.engine.pool.change(mask_of(3), {"gravity": 2.0}, [])
    with pytest.raises(ProtocolError, match="env_id 3 was never reset"):
        env.step(np.ones(N, np.int32))
    env.reset(options={"reset_mask": mask_of(3)})
    step(env)


def test_reset_options_work_in_asynchronous_mode() -> None:
    with rollouts.make_vec("CartPole-v1", N, batch_size=2, num_threads=2, seed=1) as env:
        env.reset()
        env.send(np.ones(2, np.int32))
        gravity = np.arange(1.0, N + 1)
        env.reset(options={"gravity": gravity})
        np.testing.assert_array_equal(env.env_options["gravity"], gravity)
        with pytest.raises(SpecError, match="needs a synchronous"):
            env.reset(options={"gravity": gravity, "reset_mask": mask_of(0)})


def test_states_of_other_options_are_refused_per_environment(env: rollouts.VectorEnv) -> None:
    states = env.get_state()
    env.set_state(None, states)
    for wrong in ([states[1], *states[1:]], states[::-1]):
        with pytest.raises(SpecError, match="state 0 is of a CartPole environment with other opt"):
            env.set_state(None, wrong)
    with rollouts.make_vec("CartPole-v1", 1, pole_half_length=LENGTHS[3]) as single:
        single.set_state(None, [states[3]])
        np.testing.assert_array_equal(step(single)[0], step(env)[3])


def test_reset_options_change_which_states_are_understood(env: rollouts.VectorEnv) -> None:
    before = env.get_state([2])
    env.reset(options={"reset_mask": mask_of(2), "gravity": 2.0})
    with pytest.raises(SpecError, match="other options"):
        env.set_state([2], before)
    after = env.get_state([2])
    env.reset(options={"reset_mask": mask_of(2), "gravity": 9.8})
    env.set_state([2], before)
    with pytest.raises(SpecError, match="other options"):
        env.set_state([2], after)


def test_env_options_of_a_closed_environment_is_an_error(env: rollouts.VectorEnv) -> None:
    env.close()
    with pytest.raises(ClosedError):
        env.env_options  # noqa: B018


@needs_atari
class TestAtari:
    """Heavy environments: options change by building the environment anew."""

    def test_environments_whose_options_change_are_built_anew(self) -> None:
        actions = np.zeros(2, np.int32)
        with rollouts.make_vec("ALE/Pong-v5", 2, seed=1, num_threads=1) as env:
            env.reset()
            env.step(actions)
            mask = np.array([False, True])
            obs, info = env.reset(options={"reset_mask": mask, "frameskip": 2, "noop_max": 0})
            assert info["episode_length"].tolist() == [1, 0]
            assert env.env_options["frameskip"].tolist() == [4, 2]
            obs, _, _, _, info = env.step(actions)
            assert info["episode_length"].tolist() == [2, 1]
            with rollouts.make_vec("ALE/Pong-v5", 2, seed=1, frameskip=2, noop_max=0) as other:
                other.reset()
                # the second episode of this random stream, as in `env`
                other.reset()
                np.testing.assert_array_equal(other.step(actions)[0][1], obs[1])

    def test_options_that_would_change_the_spaces_are_refused(self) -> None:
        with rollouts.make_vec("ALE/Pong-v5", 2, seed=1, num_threads=1) as env:
            env.reset()
            state = env.get_state()
            for options, part in [
                ({"grayscale": False}, "observation space"),
                ({"full_action_space": [False, True]}, "action space"),
            ]:
                with pytest.raises(SpecError, match=f"would change the {part}"):
                    env.reset(options={"frameskip": 2, **options})
            assert env.env_options["frameskip"] == 4
            assert env.get_state() == state
            env.step(np.zeros(2, np.int32))

    def test_values_out_of_range_change_nothing(self) -> None:
        with rollouts.make_vec("ALE/Pong-v5", 2, seed=1, num_threads=1) as env:
            env.reset()
            with pytest.raises(SpecError, match="frameskip is 0"):
                env.reset(options={"frameskip": [2, 0]})
            assert env.env_options["frameskip"] == 4
            env.step(np.zeros(2, np.int32))

    def test_spaces_that_differ_by_environment_are_refused(self) -> None:
        with pytest.raises(SpecError, match="environments 0 and 1 make them differ in the obs"):
            rollouts.make_vec("ALE/Pong-v5", 2, img_height=[84, 42])
