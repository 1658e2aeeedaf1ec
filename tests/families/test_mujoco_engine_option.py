# SPDX-License-Identifier: Apache-2.0
"""Option `engine` of environments on MuJoCo, and what says which engine it has come to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rollouts
from rollouts.errors import SpecError
from rollouts.mujoco import Scaled

ENVS: dict[str, dict[str, Any]] = {
    "Hopper-v5": {},
    "Hopper-v4": {},
    "HopperHop-v1": {},
    "MuJoCo-v0": {"xml_file": "hopper.xml"},
}
FALLING = """<mujoco>
  <worldbody>
    <geom type="plane" size="5 5 .1"/>
    <body pos="0 0 .1"><joint name="below" type="slide" axis="0 0 1"/>
      <geom type="sphere" size=".1"/></body>
    <body pos="0 0 .6"><joint name="fall" type="slide" axis="0 0 1"/>
      <geom type="{}" size=".1 .1 .1"/></body>
  </worldbody>
  <actuator><motor joint="fall" ctrlrange="-1 1"/></actuator>
</mujoco>"""


def step_once(env: rollouts.VectorEnv) -> None:
    env.step(np.zeros(env.action_space.shape, np.float32))


@pytest.mark.parametrize("env_id", ENVS)
def test_every_family_takes_an_engine(env_id: str) -> None:
    for engine, used in (("auto", "lanes"), ("lanes", "lanes"), ("mujoco", "mujoco")):
        with rollouts.make_vec(env_id, 2, engine=engine, **ENVS[env_id]) as env:
            assert env.env_options["engine"] == engine
            assert env.mujoco_engine == used
            # lanes leave some starts to MuJoCo, such as capsules that touch and are parallel
            env.reset(seed=1)
            step_once(env)
            stats = env.stats()
            counts = [stats.num_steps_in_lanes, stats.num_steps_by_mujoco]
            assert counts == ([2, 0] if used == "lanes" else [0, 2])
            env.reset_stats()
            assert env.stats().num_steps_in_lanes == env.stats().num_steps_by_mujoco == 0


@pytest.mark.parametrize("env_id", ENVS)
def test_an_engine_that_there_is_not_is_refused(env_id: str) -> None:
    with pytest.raises(SpecError, match=r"'engine' must be 'auto' or 'lanes' or 'mujoco'"):
        rollouts.make_vec(env_id, 2, engine="warp", **ENVS[env_id])


def test_environments_without_a_choice_name_no_engine() -> None:
    with rollouts.make_vec("CartPole-v1", 2) as env:
        assert env.mujoco_engine is None
        assert env.why_not_lanes == ""


@pytest.mark.parametrize("env_id", ["FishSwim-v1", "DogRun-v1"])
def test_a_model_beyond_lanes_is_mujocos_and_says_why(env_id: str) -> None:
    with rollouts.make_vec(env_id, 2) as env:
        assert env.mujoco_engine == "mujoco"
        assert env.why_not_lanes
        env.reset()
        step_once(env)
        assert env.stats().num_steps_by_mujoco == 2
        why = env.why_not_lanes
    with pytest.raises(SpecError) as caught:
        rollouts.make_vec(env_id, 2, engine="lanes")
    assert "engine='lanes' cannot step the model" in str(caught.value)
    assert why in str(caught.value)


@pytest.mark.parametrize("kind", ["sphere", "box"])
def test_what_lanes_leave_to_mujoco_is_mujocos(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "robot.xml"
    path.write_text(FALLING.format(kind))
    given: dict[str, Any] = {"xml_file": path, "seed": 3, "reset_noise_scale": 0.01}
    with (
        rollouts.make_vec("MuJoCo-v0", 8, **given) as env,
        rollouts.make_vec("MuJoCo-v0", 8, engine="mujoco", **given) as mujoco,
    ):
        assert env.mujoco_engine == "lanes"
        env.reset()
        mujoco.reset()
        action = np.full((8, 1), 0.1, np.float32)
        left = []
        for _ in range(150):
            before = env.stats().num_steps_by_mujoco
            found, want = env.step(action)[0], mujoco.step(action)[0]
            left.append(env.stats().num_steps_by_mujoco - before)
            # one thing that falls is not chaotic
            np.testing.assert_allclose(found, want, rtol=0, atol=1e-8)
    # in the air nothing is left to MuJoCo, at last it depends on what lies on the sphere
    assert left[0] == 0
    assert left[-1] == (0 if kind == "sphere" else 8)


def test_a_model_with_a_mesh_is_mujocos(tmp_path: Path) -> None:
    vertices = " ".join(f"{x} {y} {z}" for x in (0, 0.1) for y in (0, 0.1) for z in (0, 0.1))
    text = FALLING.format("mesh").replace('type="mesh" size=".1 .1 .1"', 'type="mesh" mesh="one"')
    assets = f'<asset><mesh name="one" vertex="{vertices}"/></asset><worldbody>'
    path = tmp_path / "robot.xml"
    path.write_text(text.replace("<worldbody>", assets))
    with rollouts.make_vec("MuJoCo-v0", 2, xml_file=path) as env:
        assert env.mujoco_engine == "mujoco"
        assert env.why_not_lanes
        env.reset()
        step_once(env)


def test_arrays_that_lanes_do_not_write_are_mujocos() -> None:
    given: dict[str, Any] = {"xml_file": "hopper.xml", "seed": 3}
    with rollouts.make_vec("MuJoCo-v0", 2, info=["qfrc_bias"], **given) as env:
        assert env.mujoco_engine == "mujoco"
        assert "'observation' and 'info' name arrays" in env.why_not_lanes
    with rollouts.make_vec("MuJoCo-v0", 2, info=["xpos:torso", "cfrc_ext", "time"], **given) as env:
        assert env.mujoco_engine == "lanes"
        env.reset()
        step_once(env)
        info = env.step(np.zeros((2, 3), np.float32))[4]
        with rollouts.make_vec(
            "MuJoCo-v0", 2, info=["xpos:torso", "cfrc_ext", "time"], engine="mujoco", **given
        ) as other:
            other.reset()
            step_once(other)
            want = other.step(np.zeros((2, 3), np.float32))[4]
        for name in ("xpos:torso", "cfrc_ext", "time"):
            np.testing.assert_allclose(info[name], want[name], rtol=1e-10, atol=1e-10)


def test_a_model_that_differs_from_its_file_stays_in_lanes() -> None:
    with rollouts.make_vec("Hopper-v5", 3, seed=3, num_threads=1) as env:
        masses = env.model_field("body_mass")
        heavy = masses * np.array([1.0, 1.2, 1.0])[:, None]
        env.reset(options={"model": {"body_mass": heavy}})
        step_once(env)
        stats = env.stats()
        assert [stats.num_steps_in_lanes, stats.num_steps_by_mujoco] == [3, 0]
        with rollouts.make_vec("Hopper-v5", 3, seed=3, engine="mujoco") as other:
            other.reset(options={"model": {"body_mass": Scaled(1.2, 1.2)}})
            step_once(other)
            np.testing.assert_allclose(
                env.step(np.ones((3, 3), np.float32))[0][1],
                other.step(np.ones((3, 3), np.float32))[0][1],
                rtol=0,
                atol=1e-9,
            )
        env.reset_stats()
        env.reset(options={"model": {"body_mass": masses}})
        step_once(env)
        assert env.stats().num_steps_in_lanes == 3


CALLBACK = """
import ctypes, pathlib
import mujoco, numpy as np, rollouts

library = ctypes.CDLL(str(next(pathlib.Path(mujoco.__file__).parent.glob("libmujoco.*"))))
passive = ctypes.c_void_p.in_dll(library, "mjcb_passive")
calls = []
callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(lambda *_: calls.append(1))
with rollouts.make_vec("Hopper-v5", 2, num_threads=1) as env:
    assert env.mujoco_engine == "lanes"
    env.reset()
    env.step(np.zeros((2, 3), np.float32))
    passive.value = ctypes.cast(callback, ctypes.c_void_p).value
    env.step(np.zeros((2, 3), np.float32))
    assert calls
    passive.value = None
    env.step(np.zeros((2, 3), np.float32))
    stats = env.stats()
    assert (stats.num_steps_in_lanes, stats.num_steps_by_mujoco) == (4, 2)
"""


def test_callbacks_of_users_have_a_part_in_every_step() -> None:
    # a process of its own: callbacks are the process's
    found = subprocess.run(
        [sys.executable, "-c", CALLBACK], capture_output=True, text=True, timeout=120
    )
    assert found.returncode == 0, found.stderr[-3000:]


@pytest.mark.parametrize(("env_id", "engine"), [("Hopper-v5", "lanes"), ("FishSwim-v1", "mujoco")])
def test_the_command_line_says_which_engine(env_id: str, engine: str) -> None:
    found = subprocess.run(
        [sys.executable, "-m", "rollouts", "envs", env_id], capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr[-3000:]
    assert f"stepped by         {engine}" in found.stdout
