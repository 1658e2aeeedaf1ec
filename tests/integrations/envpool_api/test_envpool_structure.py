# SPDX-License-Identifier: Apache-2.0
"""Spaces and results have EnvPool's structure: that of a written table, and of EnvPool itself."""

from __future__ import annotations

from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import rollouts.integrations.envpool as ours
from gymnasium import spaces
from rollouts.integrations.envpool.observations import Missions
from rollouts.integrations.envpool.python.env_spec import in_package

import rollouts
from rollouts.errors import DTypeError, SpecError
from rollouts.families.minigrid import decode_mission, mission_words

pytestmark = pytest.mark.system

pytest.importorskip("mujoco", reason="MuJoCo tasks need mujoco")

F64, U8, I32 = np.dtype(np.float64), np.dtype(np.uint8), np.dtype(np.int32)
# as EnvPool 1.2.5 has them: id -> name -> dtype and shape of one environment, in its order
GRID = {"direction": (I32, ()), "image": (U8, (7, 7, 3))}
OBSERVATIONS: dict[str, dict[str, tuple[Any, tuple[int, ...]]]] = {
    "CheetahRun-v1": {"position": (F64, (8,)), "velocity": (F64, (9,))},
    "WalkerWalk-v1": {"orientations": (F64, (14,)), "height": (F64, ()), "velocity": (F64, (9,))},
    "ReacherEasy-v1": {
        "position": (F64, (2,)),
        "to_target": (F64, (2,)),
        "velocity": (F64, (2,)),
    },
    "FingerSpin-v1": {
        "position": (F64, (4,)),
        "velocity": (F64, (3,)),
        "touch": (F64, (2,)),
        "target_position": (F64, (2,)),
        "dist_to_target": (F64, ()),
    },
    "FishSwim-v1": {
        "joint_angles": (F64, (7,)),
        "upright": (F64, ()),
        "velocity": (F64, (13,)),
        "target": (F64, (3,)),
    },
    "StackerStack2-v1": {
        "arm_pos": (F64, (8, 2)),
        "arm_vel": (F64, (8,)),
        "touch": (F64, (5,)),
        "hand_pos": (F64, (4,)),
        "box_pos": (F64, (2, 4)),
        "box_vel": (F64, (6,)),
        "target_pos": (F64, (2,)),
    },
    "MiniGrid-DoorKey-5x5-v0": {**GRID, "mission": (U8, (96,))},
    "BabyAI-GoTo-v0": {**GRID, "mission": (U8, (512,))},
}
# EnvPool's keys of info that our environments call otherwise, or do not report
INFOS: dict[str, dict[str, tuple[Any, tuple[int, ...]]]] = {
    "Acrobot-v1": {"state": (np.dtype(np.float32), (2,))},
    "Ant-v4": {"reward_contact": (F64, ())},
    "CliffWalking-v1": {"prob": (np.dtype(np.float32), ())},
    "HalfCheetah-v5": {"reward_run": (F64, ()), "reward_ctrl": (F64, ())},
    "Humanoid-v4": {"reward_impact": (F64, ())},
    "Humanoid-v5": {
        "reward_linvel": (F64, ()),
        "reward_quadctrl": (F64, ()),
        "reward_alive": (F64, ()),
        "reward_impact": (F64, ()),
    },
    "HumanoidStandup-v5": {"reward_linup": (F64, ()), "reward_alive": (F64, ())},
    "Pusher-v4": {"reward_near": (F64, ())},
    "Swimmer-v5": {"reward_fwd": (F64, ())},
}
# one of each structure; others of these families differ in numbers alone
COMPARED = [
    *OBSERVATIONS,
    *INFOS,
    "CarRacing-v3",
    "CartPole-v1",
    "DogRun-v1",
    "FrozenLake-v1",
    "HumanoidRunPureState-v1",
    "LqrLqr21-v1",
    "LunarLander-v3",
    "Pendulum-v1",
    "QuadrupedFetch-v1",
    "Reacher-v5",
    "Taxi-v3",
]
NOT_REPORTED = {"agent_pos"}  # an info of MiniGrid and BabyAI


def leaves(value: Any, prefix: str = "") -> dict[str, Any]:
    """dtype and shape of each array in dicts, tuples and named tuples, by its path."""
    if isinstance(value, tuple):
        names = getattr(value, "_fields", range(len(value)))
        value = dict(zip(names, value, strict=True))
    if not isinstance(value, dict):
        return {prefix: (value.dtype, value.shape)}
    return {
        path: found
        for name in value
        for path, found in leaves(value[name], f"{prefix}/{name}").items()
    }


def space_shape(space: Any) -> Any:
    if isinstance(space, spaces.Dict):
        return [(name, space_shape(part)) for name, part in space.items()]
    return (
        (space.n, space.start) if isinstance(space, spaces.Discrete) else (space.shape, space.dtype)
    )


def play(module: Any, task: str, face: str, **options: Any) -> tuple[Any, Any]:
    """The results of reset and of a step with no force, of 2 environments."""
    env = module.make(task, env_type=face, num_envs=2, seed=1, **options)
    first = env.reset()
    action = env.spec.action_space
    step = env.step(np.zeros((2, *action.shape), action.dtype))
    env.close()
    return first, step


@pytest.mark.parametrize("task", OBSERVATIONS)
def test_observations_are_dicts_of_envpools_names(task: str) -> None:
    expected = OBSERVATIONS[task]
    space = ours.make_spec(task).observation_space
    assert isinstance(space, spaces.Dict) and list(space) == list(expected)
    for first in play(ours, task, "gymnasium"):
        obs = first[0]
        assert {name: (part.dtype, part.shape[1:]) for name, part in obs.items()} == expected
        for row in range(2):
            assert space.contains(OrderedDict((name, obs[name][row, ...]) for name in space))


@pytest.mark.parametrize("task", INFOS)
def test_infos_have_envpools_names_and_dtypes(task: str) -> None:
    spec = ours.make_spec(task)
    for info in (result[-1] for result in play(ours, task, "gymnasium")):
        for name, (dtype, shape) in INFOS[task].items():
            assert (info[name].dtype, info[name].shape) == (dtype, (2, *shape)), name
            described = spec.state_array_spec[f"info:{name}"]
            assert (described.dtype, described.shape) == (dtype, list(shape) or [-1])


def test_infos_of_other_names_are_what_they_say() -> None:
    env = ours.make_gymnasium("Humanoid-v5", num_envs=2, seed=1)
    env.reset()
    _, reward, *_, info = env.step(np.full((2, 17), 0.3))
    names = ("linvel", "quadctrl", "alive", "impact")
    np.testing.assert_allclose(reward, sum(info[f"reward_{name}"] for name in names), rtol=1e-6)
    env = ours.make_gymnasium("Pusher-v4", num_envs=2, seed=1)
    obs, _ = env.reset()
    *_, info = env.step(np.ones((2, 7)))
    # between the arm's tip and the object, before the step
    near = np.linalg.norm(obs[:, 17:20] - obs[:, 14:17], axis=1)
    np.testing.assert_allclose(info["reward_near"], -near, rtol=1e-6)
    env = ours.make_gymnasium("Acrobot-v1", num_envs=2, seed=1)
    obs, info = env.reset()
    np.testing.assert_allclose(np.cos(info["state"]), obs[:, [0, 2]], rtol=1e-6)
    np.testing.assert_allclose(np.sin(info["state"]), obs[:, [1, 3]], rtol=1e-6)


@pytest.mark.parametrize("task", ["CheetahRun-v1", "BabyAI-GoTo-v0"])
def test_parts_of_a_dict_are_those_of_a_flat_row(task: str) -> None:
    dicts, rows = (
        ours.make_gymnasium(task, num_envs=3, seed=4, flatten_observation=flat)
        for flat in (False, True)
    )
    reference = rollouts.make_vec(task, 3, seed=4, flatten_observation=False)
    assert rows.observation_space == rollouts.env_spec(task).single_observation_space
    for _ in range(3):
        obs, expected = dicts.reset()[0], reference.reset()[0]
        assert rows.reset()[0].shape == (3, *rows.observation_space.shape)
        for name in set(obs) - {"mission"}:
            np.testing.assert_array_equal(obs[name], expected[name])
        for row in range(3 if "mission" in obs else 0):
            said = bytes(obs["mission"][row]).rstrip(b"\0").decode()
            assert said == decode_mission(expected["mission"][row])


def test_missions_are_the_sentences_of_their_words() -> None:
    rng = np.random.default_rng(0)
    words = np.zeros((40, 20), np.uint8)
    for row, count in enumerate(rng.integers(0, 21, 40)):
        # a comma is never first
        words[row, :count] = rng.integers(1, len(mission_words()), count)
        words[row, :1] = min(count, 1)
    full, cut = Missions(300), Missions(9)
    for row in range(40):
        sentence = decode_mission(words[row]).encode()
        assert bytes(full.of(words)[row]) == sentence.ljust(300, b"\0")
        assert bytes(cut.of(words)[row]) == sentence[:9].ljust(9, b"\0")


def test_missions_follow_their_environments() -> None:
    env = ours.make_gymnasium("BabyAI-GoTo-v0", num_envs=4, batch_size=2, seed=3)
    plain = Missions(512)
    rows = rollouts.make_vec("BabyAI-GoTo-v0", 4, seed=3)
    said: dict[int, bytes] = {}
    env.async_reset()
    for _ in range(4):
        obs, *_, info = env.recv()
        for row, env_id in enumerate(info["env_id"]):
            said.setdefault(int(env_id), bytes(obs["mission"][row]))
        env.send(np.zeros(2, np.int32), info["env_id"])
    expected = plain.of(rows.reset()[0][:, -76:])
    assert all(sentence == bytes(expected[env_id]) for env_id, sentence in said.items())
    assert len(said) >= 2


def test_what_a_task_of_a_domain_has_not_is_zero() -> None:
    task = "HumanoidRunPureState-v1"
    obs = play(ours, task, "gymnasium")[1][0]
    assert obs["position"].any() and obs["velocity"].shape == (2, 27)
    for name in ("joint_angles", "head_height", "extremities", "torso_vertical", "com_velocity"):
        assert not obs[name].any()


@pytest.mark.parametrize("task", ["HalfCheetah-v5", "CheetahRun-v1", "FingerSpin-v1"])
def test_frame_stack_adds_an_axis_of_frames_the_oldest_first(task: str) -> None:
    stacked = ours.make_gymnasium(task, num_envs=2, seed=1, frame_stack=3)
    single = ours.make_gymnasium(task, num_envs=2, seed=1)
    assert stacked.config["frame_stack"] == 3 and single.config["frame_stack"] == 1

    def parts(obs: Any) -> dict[str, Any]:
        return obs if isinstance(obs, dict) else {"obs": obs}

    frames = [parts(single.reset()[0])] * 3
    action = np.ones((2, *single.action_space.shape))
    obs = parts(stacked.reset()[0])
    for _ in range(4):
        for name, part in obs.items():
            np.testing.assert_array_equal(part, np.stack([one[name] for one in frames[-3:]], 1))
        frames.append(parts(single.step(action)[0]))
        obs = parts(stacked.step(action)[0])
    described = parts(getattr(stacked.observation_space, "spaces", stacked.observation_space))
    assert {name: part.shape[1:] for name, part in obs.items()} == {
        name: space.shape for name, space in described.items()
    }


def test_actions_of_mujoco_are_float64_with_finite_bounds() -> None:
    humanoid = ours.make_spec("Humanoid-v5").action_space
    assert humanoid == spaces.Box(-0.4, 0.4, (17,), np.float64)
    assert ours.make_spec("LqrLqr21-v1").action_space == spaces.Box(-1e10, 1e10, (1,), np.float64)
    assert ours.make_spec("Pendulum-v1").action_space.dtype == np.float32
    env = ours.make_gymnasium("Humanoid-v5", num_envs=2)
    env.reset()
    env.step(np.stack([env.action_space.high] * 2))


@pytest.mark.parametrize("task", ["FingerSpin-v1", "BabyAI-GoTo-v0", "Humanoid-v5", "Acrobot-v1"])
@pytest.mark.parametrize("face", ["gymnasium", "dm"])
def test_compiled_functions_return_the_same_structure(task: str, face: str) -> None:
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    if face == "dm":
        pytest.importorskip("dm_env", reason="the dm face needs dm-env")
    expected = play(ours, task, face)[1]
    env = ours.make(task, env_type=face, num_envs=2, seed=1)
    env.reset()
    handle, _, _, step = env.xla()
    space = env.spec.action_space
    dtype = np.float32 if isinstance(space, spaces.Box) else np.int32
    _, got = jax.jit(step)(handle, jax.numpy.zeros((2, *space.shape), dtype))
    assert jax.tree_util.tree_structure(got) == jax.tree_util.tree_structure(expected)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        # without x64 JAX has float32
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


def test_the_dm_face_has_parts_and_infos_as_fields() -> None:
    pytest.importorskip("dm_env", reason="the dm face needs dm-env")
    _, step = play(ours, "CheetahRun-v1", "dm")
    assert step.observation._fields[:4] == ("env_id", "players", "position", "velocity")
    _, step = play(ours, "HalfCheetah-v5", "dm")
    spec = ours.make_spec("HalfCheetah-v5").observation_spec()
    assert spec._fields == step.observation._fields and "reward_run" in spec._fields
    described = {name: (one[0], (2, *one[1])) for name, one in leaves(spec).items()}
    assert described == leaves(step.observation)


def test_a_dict_of_spaces_is_one_of_the_package_gym() -> None:
    package = SimpleNamespace(
        Dict=lambda parts: ("Dict", parts),
        Discrete=lambda n: ("Discrete", n),
        Box=lambda low, high, shape, dtype: ("Box", shape),
    )
    kind, parts = in_package(ours.make_spec("BabyAI-GoTo-v0").observation_space, package)
    assert kind == "Dict" and isinstance(parts, OrderedDict)
    assert list(parts.items()) == [
        ("direction", ("Discrete", 4)),
        ("image", ("Box", (7, 7, 3))),
        ("mission", ("Box", (512,))),
    ]


@pytest.mark.parametrize(
    ("task", "given", "error", "message"),
    [
        ("CartPole-v1", {"flatten_observation": False}, SpecError, "have no named parts here"),
        ("CheetahRun-v1", {"flatten_observation": 1}, DTypeError, "must be True or False, got 1"),
        ("HalfCheetah-v5", {"frame_stack": 0}, SpecError, "frame_stack is 0, expected a whole"),
        ("CartPole-v1", {"frame_stack": 2}, SpecError, "CartPole-v1 has no options frame_stack"),
        ("BabyAI-GoTo-v0", {"mission_bytes": 0}, SpecError, "mission_bytes is 0, expected a whole"),
    ],
)
def test_a_structure_that_cannot_be_is_refused(
    task: str, given: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        ours.make_spec(task, **given)


@pytest.mark.parametrize("task", COMPARED)
def test_spaces_are_those_of_envpool_itself(task: str) -> None:
    theirs = pytest.importorskip("envpool", reason="EnvPool itself is not installed")
    mine, their = ours.make_spec(task), theirs.make_spec(task)
    # bounds of EnvPool's observations are the smallest positive number where it knows none
    assert space_shape(mine.observation_space) == space_shape(their.observation_space)
    assert mine.action_space == their.action_space
    arrays = {name: (one.dtype, list(one.shape)) for name, one in mine.state_array_spec.items()}
    for name, one in their.state_array_spec.items():
        if name.removeprefix("info:") not in NOT_REPORTED:
            assert arrays[name] == (one.dtype, list(one.shape)), name


@pytest.mark.parametrize("face", ["gymnasium", "dm"])
@pytest.mark.parametrize("task", COMPARED)
def test_results_are_those_of_envpool_itself(task: str, face: str) -> None:
    theirs = pytest.importorskip("envpool", reason="EnvPool itself is not installed")
    stack = {"frame_stack": 3} if "frame_stack" in ours.make_spec(task).config._fields else {}
    for options in ({}, stack):
        for mine, their in zip(
            play(ours, task, face, **options), play(theirs, task, face, **options), strict=True
        ):
            got = leaves(mine)
            for path, expected in leaves(their).items():
                if path.rsplit("/", 1)[1] not in NOT_REPORTED:
                    assert got[path] == expected, path
