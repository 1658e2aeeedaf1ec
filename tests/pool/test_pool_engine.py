# SPDX-License-Identifier: Apache-2.0
"""Engines do what they say; faces hold, copy and close their engines."""

from __future__ import annotations

import contextlib
import copy
import importlib
import pickle
import re
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

import rollouts
from rollouts import EngineError, ProtocolError, SpecError
from rollouts.envs.engine import Engine
from rollouts.envs.hosted.hosted_engine import HostedEngine
from rollouts.envs.native import NativeEngine
from rollouts.envs.of_engine import OfEngine
from rollouts.features import FEATURES

KERNEL = "rollouts.envs.kernel.kernel_engine:KernelEngine"
PHYSICS = "rollouts.envs.physics.physics_engine:PhysicsEngine"
NATIVE = "rollouts.envs.native:NativeEngine"
CELLS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "one agent": (NATIVE, "CartPole-v1", {}),
    "asynchronous": (NATIVE, "CartPole-v1", {"batch_size": 2}),
    "several agents": (NATIVE, "TagGridWorld-v0", {}),
    "parts": (NATIVE, "MiniGrid-Empty-8x8-v0", {"flatten_observation": False}),
    "a model": (NATIVE, "InvertedPendulum-v5", {}),
    "functions": (NATIVE, "MuJoCo-v0", {"env_options": {"xml_file": "hopper.xml"}}),
    "masks": (NATIVE, "Taxi-v4", {}),
    "statistics": (NATIVE, "CartPole-v1", {"env_options": {"normalize_observation": True}}),
    "a kernel": (KERNEL, "CartPole-v1", {}),
    "a kernel that shows masks": (KERNEL, "Taxi-v3", {}),
    "a kernel of agents": (KERNEL, "TagGridWorld-v0", {}),
    "physics": (PHYSICS, "InvertedPendulum-v5", {}),
}

HOSTED: dict[str, dict[str, Any]] = {
    "Python in this process": {"num_processes": 0},
    "Python in processes": {"num_processes": 2},
    "Python, asynchronous": {"num_processes": 2, "batch_size": 2},
}


def make_cart_pole() -> gymnasium.Env[Any, Any]:
    return gymnasium.make("CartPole-v1")


def make_engine(cell: str) -> Engine:
    if cell in HOSTED:
        return HostedEngine([make_cart_pole] * 4, seed=1, **HOSTED[cell])
    place, env_id, arguments = CELLS[cell]
    if env_id.startswith(("MuJoCo", "Inverted")):
        pytest.importorskip("mujoco")
    if place == PHYSICS:
        pytest.importorskip("mujoco_warp")
    module, _, name = place.partition(":")
    make = getattr(importlib.import_module(module), name)
    where = {"num_threads": 1} if place == NATIVE else {"device": "cpu-emulation"}
    made: Engine = make(env_id, 4, seed=1, **where, **arguments)
    return made


def read_statistics(engine: Engine) -> None:
    engine.statistics.read("observation")


def step_into(engine: Engine) -> None:
    spaces = [group.single_action_space for group in engine.groups]
    num_envs = engine.num_envs
    if spaces:
        counts = [group.num_agents for group in engine.groups]
        actions: Any = [
            np.stack([[space.sample() for _ in range(count)] for _ in range(num_envs)])
            for space, count in zip(spaces, counts, strict=True)
        ]
    else:
        actions = np.stack([engine.single_action_space.sample() for _ in range(num_envs)])
    env_id = np.arange(num_envs) + engine.env_id_offset
    engine.step(actions, env_id, {"episode_length": np.zeros(num_envs, np.int32)})


def ask_to_collect(engine: Engine) -> None:
    if why_not := engine.why_not_collects:
        raise SpecError(why_not)


def draw(engine: Engine) -> None:
    # a machine without OpenGL draws nothing
    with contextlib.suppress(EngineError):
        engine.render(None, None)


# features of how an engine is made or wrapped, which no call of its own tries
CHOSEN = {"async", "graph", "agent_rows", "joins"}
TRIALS: dict[str, Callable[[Engine], Any]] = {
    "out": step_into,
    "collect": ask_to_collect,
    "states": lambda engine: engine.save(None),
    "options": lambda engine: engine.env_options(),
    "model": lambda engine: engine.model_fields(),
    "masks": lambda engine: engine.action_masks(),
    "statistics": read_statistics,
    "xla": lambda engine: engine.xla_handle(),
    "render": draw,
    "rollout": lambda engine: engine.rollout(3, "random", 0, True),
    "python": lambda engine: OfEngine("python", "call").of(engine)("render_mode"),
    "recipe": lambda engine: engine.recipe,
}


@pytest.fixture(params=[*CELLS, *HOSTED], ids=lambda name: name.replace(" ", "_"))
def engine(request: pytest.FixtureRequest) -> Any:
    made = make_engine(request.param)
    made.reset(None, None)
    made.drain(None)
    yield made
    made.close()


def test_an_engine_does_what_it_says_and_refuses_the_rest(engine: Engine) -> None:
    for feature, use in TRIALS.items():
        if feature in engine.can:
            use(engine)
        else:
            with pytest.raises((SpecError, ProtocolError)):
                use(engine)
        engine.reset(None, None)
        engine.drain(None)


def test_every_feature_is_tried_or_chosen_at_construction(engine: Engine) -> None:
    assert {*TRIALS} | CHOSEN == {*FEATURES}
    assert engine.can <= {*FEATURES}


def test_copies_and_pickles_of_a_face_have_engines_of_their_own() -> None:
    with rollouts.make_vec("CartPole-v1", 3, seed=5) as env:
        first, _ = env.reset()
        twins = [copy.copy(env), copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
        assert len({id(one.engine) for one in [env, *twins]}) == 4
        for twin in twins:
            np.testing.assert_array_equal(twin.reset()[0], first)
            twin.close()
        env.step(env.action_space.sample())


def test_a_face_that_refuses_its_engine_closes_it() -> None:
    engine = NativeEngine("TagGridWorld-v0", 2)
    with pytest.raises(SpecError, match="several agents"):
        rollouts.VectorEnv(engine)
    assert engine.pool.closed


@pytest.mark.parametrize("face", [rollouts.VectorEnv, rollouts.MultiAgentVectorEnv])
def test_a_face_that_is_given_an_id_names_make_vec(face: Any) -> None:
    with pytest.raises(SpecError, match=r"takes an engine, got 'CartPole-v1': rollouts.make_vec"):
        face("CartPole-v1")


@pytest.mark.parametrize("face", [rollouts.VectorEnv, rollouts.MultiAgentVectorEnv])
@pytest.mark.parametrize("given", [None, 3, {}, object()])
def test_a_face_refuses_what_is_no_engine(face: Any, given: Any) -> None:
    expected = re.escape(f"{face.__name__} takes an engine, got {given!r}: rollouts.make_vec(id, ")
    with pytest.raises(SpecError, match=expected):
        face(given)


@pytest.mark.parametrize("face", [rollouts.VectorEnv, rollouts.MultiAgentVectorEnv])
def test_a_face_that_is_given_a_face_leaves_it_open(face: Any) -> None:
    with rollouts.make_vec("CartPole-v1", 2) as env:
        with pytest.raises(SpecError, match="it has one, a native pool, and is a VectorEnv alr"):
            face(env)
        env.reset()


@pytest.mark.parametrize("env_id", ["Taxi-v4", "CartPole-v1", "TagGridWorld-v0"])
def test_both_faces_name_the_infos_of_their_environments(env_id: str) -> None:
    with rollouts.make_vec(env_id, 2) as env:
        assert ("action_mask" in env.info_names) is (env_id == "Taxi-v4")


@pytest.mark.parametrize("name", ["call", "get_attr", "set_attr", "num_processes", "step_wait"])
def test_a_member_of_environments_in_python_is_missing_elsewhere_and_says_where_it_is(
    name: str,
) -> None:
    with rollouts.make_vec("CartPole-v1", 2) as env:
        assert not hasattr(env, name)
        with pytest.raises(SpecError, match=r"a native pool cannot call .*: those of from_env_fns"):
            getattr(env, name)


def test_the_face_of_several_agents_says_so_too() -> None:
    with rollouts.make_multi_agent_vec("TagGridWorld-v0", 2) as env:
        with pytest.raises(AttributeError, match="a native pool cannot call environments by name"):
            env.call("render_mode")
        assert not hasattr(env, "step_async")


def test_a_native_pool_keeps_the_generator_of_gymnasiums_class() -> None:
    with rollouts.make_vec("CartPole-v1", 2) as env:
        assert isinstance(env.np_random, np.random.Generator)
        assert isinstance(env.np_random_seed, int)


def test_hosted_environments_are_copied_and_pickled_as_others_are() -> None:
    functions = [make_cart_pole] * 3
    with rollouts.from_env_fns(functions, num_processes=0, seed=5) as env:
        first, _ = env.reset()
        for twin in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
            assert type(twin) is rollouts.VectorEnv and twin.engine is not env.engine
            np.testing.assert_array_equal(twin.reset()[0], first)
            twin.close()
        assert repr(env).startswith("rollouts.VectorEnv(a pool of environments in Python, num_envs")


def test_hosted_environments_draw_those_that_are_named() -> None:
    functions = [lambda: gymnasium.make("CartPole-v1", render_mode="rgb_array")] * 3
    with rollouts.from_env_fns(functions, num_processes=0, env_id_offset=7, seed=1) as env:
        env.reset()
        frames = env.render()
        (last,) = env.render(9)
        np.testing.assert_array_equal(last, frames[2])
        with pytest.raises(SpecError, match="camera is 'track', and environments in Python draw"):
            env.render(camera="track")
