# SPDX-License-Identifier: Apache-2.0
"""dm_control's own environments, begun where ours begin and stepped beside them."""

from __future__ import annotations

import functools
import importlib
import struct
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import mujoco
import numpy as np

import rollouts
from rollouts.errors import EnvError
from rollouts.mujoco import integration_state

SPEC = mujoco.mjtState.mjSTATE_INTEGRATION
_contexts: list[property] = []
_LENGTH = struct.Struct("<Q")

# by name, what a field of the model becomes where the file has the argument
Changes = Mapping[str, Callable[[np.ndarray], np.ndarray]]

# id -> domain and task of dm_control's suite
TASKS = {
    "AcrobotSwingup-v1": ("acrobot", "swingup"),
    "AcrobotSwingupSparse-v1": ("acrobot", "swingup_sparse"),
    "BallInCupCatch-v1": ("ball_in_cup", "catch"),
    "CartpoleBalance-v1": ("cartpole", "balance"),
    "CartpoleBalanceSparse-v1": ("cartpole", "balance_sparse"),
    "CartpoleSwingup-v1": ("cartpole", "swingup"),
    "CartpoleSwingupSparse-v1": ("cartpole", "swingup_sparse"),
    "CartpoleTwoPoles-v1": ("cartpole", "two_poles"),
    "CartpoleThreePoles-v1": ("cartpole", "three_poles"),
    "CheetahRun-v1": ("cheetah", "run"),
    "DogFetch-v1": ("dog", "fetch"),
    "DogRun-v1": ("dog", "run"),
    "DogStand-v1": ("dog", "stand"),
    "DogTrot-v1": ("dog", "trot"),
    "DogWalk-v1": ("dog", "walk"),
    "FingerSpin-v1": ("finger", "spin"),
    "FingerTurnEasy-v1": ("finger", "turn_easy"),
    "FingerTurnHard-v1": ("finger", "turn_hard"),
    "FishSwim-v1": ("fish", "swim"),
    "FishUpright-v1": ("fish", "upright"),
    "HopperHop-v1": ("hopper", "hop"),
    "HopperStand-v1": ("hopper", "stand"),
    "HumanoidRun-v1": ("humanoid", "run"),
    "HumanoidRunPureState-v1": ("humanoid", "run_pure_state"),
    "HumanoidStand-v1": ("humanoid", "stand"),
    "HumanoidWalk-v1": ("humanoid", "walk"),
    "HumanoidCMURun-v1": ("humanoid_CMU", "run"),
    "HumanoidCMUStand-v1": ("humanoid_CMU", "stand"),
    "HumanoidCMUWalk-v1": ("humanoid_CMU", "walk"),
    "LqrLqr21-v1": ("lqr", "lqr_2_1"),
    "LqrLqr62-v1": ("lqr", "lqr_6_2"),
    "ManipulatorBringBall-v1": ("manipulator", "bring_ball"),
    "ManipulatorBringPeg-v1": ("manipulator", "bring_peg"),
    "ManipulatorInsertBall-v1": ("manipulator", "insert_ball"),
    "ManipulatorInsertPeg-v1": ("manipulator", "insert_peg"),
    "PendulumSwingup-v1": ("pendulum", "swingup"),
    "PointMassEasy-v1": ("point_mass", "easy"),
    "PointMassHard-v1": ("point_mass", "hard"),
    "QuadrupedEscape-v1": ("quadruped", "escape"),
    "QuadrupedFetch-v1": ("quadruped", "fetch"),
    "QuadrupedRun-v1": ("quadruped", "run"),
    "QuadrupedWalk-v1": ("quadruped", "walk"),
    "ReacherEasy-v1": ("reacher", "easy"),
    "ReacherHard-v1": ("reacher", "hard"),
    "StackerStack2-v1": ("stacker", "stack_2"),
    "StackerStack4-v1": ("stacker", "stack_4"),
    "SwimmerSwimmer6-v1": ("swimmer", "swimmer6"),
    "SwimmerSwimmer15-v1": ("swimmer", "swimmer15"),
    "WalkerRun-v1": ("walker", "run"),
    "WalkerStand-v1": ("walker", "stand"),
    "WalkerWalk-v1": ("walker", "walk"),
}


@functools.cache
def suite() -> Any:
    """dm_control's suite, taught what MuJoCo 4 has renamed.

    Its wrapper lists the arrays of the models that it was built for, and fails on those that are
    gone. None of them is of rigid bodies.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # GLFW finds no display
        sizes = importlib.import_module("dm_control.mujoco.wrapper.mjbindings.sizes")
        for name, kind in (("mjmodel", mujoco.MjModel), ("mjdata", mujoco.MjData)):
            arrays = sizes.array_sizes[name]
            for gone in [array for array in arrays if not hasattr(kind, array)]:
                del arrays[gone]
        # quadruped's heights go to the graphics card, where there is one
        engine = importlib.import_module("dm_control.mujoco.engine")
        _contexts.append(engine.Physics.contexts)
        engine.Physics.contexts = property(lambda _: None)
        return importlib.import_module("dm_control.suite")


def gl_contexts() -> property:
    """The contexts of OpenGL that `suite` has taken away from dm_control's Physics."""
    suite()
    return _contexts[0]


def make_dm_control(env_id: str, seed: int = 0) -> Any:
    domain, task = TASKS[env_id]
    return suite().load(domain, task, task_kwargs={"random": seed})


def physics_state(env: rollouts.VectorEnv, index: int = 0) -> np.ndarray:
    return integration_state(env.get_state([env.env_id_offset + index])[0])


def own_fields(state: bytes) -> Iterator[tuple[str, bytes]]:
    """Arrays of the model that the environment has for itself, by MuJoCo's names."""
    numbers = integration_state(state)
    # the bytes that follow those of the physics
    at = state.index(numbers.tobytes()) + numbers.nbytes

    def read() -> bytes:
        nonlocal at
        (length,) = _LENGTH.unpack_from(state, at)
        at += _LENGTH.size + length
        return state[at - length : at]

    (count,) = _LENGTH.unpack_from(state, at)
    at += _LENGTH.size
    for _ in range(count):
        name = read().decode()
        yield name, read()


def put_field(model: mujoco.MjModel, name: str, values: bytes | np.ndarray) -> None:
    """Sets an array of the model, or an entry of its options, as in "opt.gravity"."""
    *owners, last = name.split(".")
    owner = functools.reduce(getattr, owners, model)
    old = np.asarray(getattr(owner, last))
    new = np.frombuffer(values, old.dtype) if isinstance(values, bytes) else values
    if old.ndim:
        getattr(owner, last)[...] = new.reshape(old.shape)
    else:
        setattr(owner, last, new.item())


def change_models(ours: rollouts.VectorEnv, theirs: Any, changes: Changes) -> dict[str, np.ndarray]:
    """Gives dm_control's model other values; returns them for ours."""
    physics = theirs.physics
    fields = {
        name: change(ours.model_field(name, of_file=True)) for name, change in changes.items()
    }
    for name, values in fields.items():
        put_field(physics.model.ptr, name, values[0])
    mujoco.mj_setConst(physics.model.ptr, physics.data.ptr)
    return fields


def begin_equal(theirs: Any, state: bytes) -> dict[str, np.ndarray]:
    """Resets dm_control's environment to the start that ours drew; returns its observation."""
    theirs.reset()
    physics = theirs.physics
    for name, values in own_fields(state):
        put_field(physics.model.ptr, name, values)
    numbers = np.array(integration_state(state))
    mujoco.mj_resetData(physics.model.ptr, physics.data.ptr)
    physics.set_state(numbers, SPEC)
    physics.after_reset()
    # where the solver of the next step begins
    physics.set_state(numbers, SPEC)
    return theirs.task.get_observation(physics)


def flat(observation: dict[str, Any]) -> np.ndarray:
    return np.concatenate([np.ravel(value) for value in observation.values()])


def compare(
    env_id: str,
    *,
    episodes: int,
    least_steps: int = 0,
    limit: int | None = None,
    seed: int = 0,
    changes: Changes | None = None,
) -> int:
    """Steps both with the same random actions to the end of each episode; returns the steps.

    With `changes` their models have other fields than the file.

    Whole simulations are equal to the bit at each end. Observations and rewards are to 1e-12 of
    their size: NumPy's exp, sin and norm may round the last bit otherwise than the C library's.
    """
    theirs = make_dm_control(env_id, seed)
    generator = np.random.default_rng(seed)
    steps = episode = 0
    with rollouts.make_vec(
        *(env_id, 1),
        **{"seed": seed, "num_threads": 1, "max_episode_steps": limit},
        # to the bit, which lanes are not: test_mujoco_lanes.py
        **{"flatten_observation": False, "engine": "mujoco"},
    ) as ours:
        low, high = ours.single_action_space.low, ours.single_action_space.high
        low, high = np.maximum(low, -1.0), np.minimum(high, 1.0)
        theirs._step_limit = ours.env_spec.max_episode_steps
        fields = change_models(ours, theirs, changes) if changes else {}
        obs, _ = ours.reset(options={"model": fields})
        while episode < episodes or steps < least_steps:
            check_observation(obs, begin_equal(theirs, ours.get_state()[0]), env_id)
            over = False
            while not over:
                action = generator.uniform(low, high).astype(np.float32)
                where = f"{env_id} episode {episode}, {steps} steps"
                try:
                    obs, reward, terminated, truncated, _ = ours.step(action[None])
                except EnvError:
                    check_divergence(ours, theirs, action, where)
                    break
                want = theirs.step(action)
                check_observation(obs, want.observation, where)
                np.testing.assert_allclose(reward[0], want.reward, 1e-12, 1e-12, err_msg=where)
                ends = [want.last() and want.discount == 0, want.last() and want.discount == 1]
                assert [terminated[0], truncated[0]] == ends, where
                steps += 1
                over = want.last()
            if over:
                state, want_state = physics_state(ours), theirs.physics.get_state(SPEC)
                np.testing.assert_array_equal(state, want_state, err_msg=where)
            episode += 1
            obs, *_ = ours.step(action[None])
    return steps


def check_divergence(ours: rollouts.VectorEnv, theirs: Any, action: np.ndarray, where: str) -> None:
    """A simulation that diverges in ours does so in dm_control's in the same step."""
    try:
        theirs.step(action)
    except importlib.import_module("dm_control.rl.control").PhysicsError:
        assert ours.recv()[3][0], where
        return
    raise AssertionError(f"{where}: only ours diverged")


def check_observation(found: dict[str, Any], want: dict[str, Any], where: str) -> None:
    assert list(found) == list(want)
    for name, value in want.items():
        assert found[name].shape == (1, *np.shape(value)), name
        np.testing.assert_allclose(
            found[name][0], value, rtol=1e-12, atol=1e-12, err_msg=f"{where}: {name}"
        )
