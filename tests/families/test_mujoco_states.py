# SPDX-License-Identifier: Apache-2.0
"""States of MuJoCo's environments: what they hold is exact, and what is crafted is refused."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sealed_states import sealed

import rollouts
from rollouts import _native
from rollouts.errors import EnvError, RolloutsError, SpecError
from rollouts.mujoco import Scaled

BODY = '<body pos="0 {} .3"><freejoint/><geom type="box" size=".1 .1 .1"/></body>'
MODEL = """<mujoco>
  <option timestep=".005">{option}</option>
  <worldbody>
    <geom type="plane" size="5 5 .1"/>
    <body pos="0 2 .5"><joint name="slide" type="slide" axis="0 1 0" damping="1"/>
      <geom type="box" size=".1 .1 .1" mass="1"/><site name="tip"/></body>
    {bodies}
  </worldbody>
  <actuator>{actuator}</actuator>
  <sensor>{sensor}</sensor>
</mujoco>"""
MOTOR = '<motor joint="slide" gear="10" ctrlrange="-1 1" {}/>'
PARTS: dict[str, dict[str, str]] = {
    "islands": {"option": '<flag island="enable"/>', "bodies": BODY.format(0) + BODY.format(0.05)},
    "delayed control": {"actuator": MOTOR.format('delay=".02" nsample="6"')},
    "delayed sensor": {
        "sensor": '<framepos objtype="site" objname="tip" delay=".02" nsample="5"/>'
    },
    "rare sensor": {
        "sensor": '<framepos objtype="site" objname="tip" interval=".015 0" nsample="3"/>'
    },
    "activations": {
        "actuator": '<general joint="slide" dyntype="filterexact" dynprm=".1" gainprm="10"'
        ' ctrlrange="-1 1"/>'
    },
    "warm starts": {"bodies": "".join(BODY.format(0.21 * i) for i in range(5))},
}


def model(folder: Path, **parts: str) -> Path:
    texts = {"option": "", "bodies": "", "actuator": MOTOR.format(""), "sensor": "", **parts}
    path = folder / "robot.xml"
    path.write_text(MODEL.format(**texts))
    return path


def make(path: Path) -> rollouts.VectorEnv:
    observation = ["qpos", "qvel", *(["sensordata"] if "frame" in path.read_text() else [])]
    return rollouts.make_vec(
        *("MuJoCo-v0", 1), xml_file=path, observation=observation, seed=0, num_threads=1
    )


@pytest.mark.parametrize("part", PARTS)
def test_what_a_step_depends_on_is_in_a_state(tmp_path: Path, part: str) -> None:
    generator = np.random.default_rng(0)
    actions = generator.uniform(-1, 1, (60, 1, 1)).astype(np.float32)
    path = model(tmp_path, **PARTS[part])
    with make(path) as env, make(path) as other:
        env.reset()
        other.reset(seed=5)
        for action in actions[:30]:
            env.step(action)
        other.set_state(None, env.get_state())
        for action in actions[30:]:
            np.testing.assert_array_equal(other.step(action)[0], env.step(action)[0])


def test_a_state_of_bodies_that_may_sleep_is_refused(tmp_path: Path) -> None:
    path = model(tmp_path, option='<flag sleep="enable"/>', bodies=BODY.format(0))
    with make(path) as env:
        env.reset()
        env.step(np.zeros((1, 1), np.float32))
        with pytest.raises(SpecError, match=r"bodies may sleep.*Leave out <flag sleep"):
            env.set_state(None, env.get_state())


def words(state: bytes) -> int:
    """The number of 8-byte words at the end of a state, where an environment's numbers are."""
    return len(_native.env_state(state)) // 8


def crafted(state: bytes, generator: np.random.Generator) -> bytes:
    """A copy of the state with a few numbers changed, and with a checksum that fits."""
    body = bytearray(state)
    for _ in range(int(generator.integers(1, 4))):
        at = len(body) - 8 * int(generator.integers(1, words(state) + 1))
        real = REALS[int(generator.integers(len(REALS)))]
        whole = WHOLES[int(generator.integers(len(WHOLES)))]
        body[at : at + 8] = (
            struct.pack("<d", real) if generator.random() < 0.6 else struct.pack("<Q", whole)
        )
    return sealed(bytes(body))


REALS = [0, -1, 1, 5, 7.5, 1e9, -1e9, 1e300, -1e300, np.nan, np.inf, -np.inf, 2.0**31, -(2.0**31)]
WHOLES = [0, 1, 2, 2**31, 2**32 - 1, 2**40, 2**63, 2**64 - 1]
CRAFTED: dict[str, dict[str, Any]] = {
    "Ant-v5": {},
    "Humanoid-v5": {"model": {"body_mass": Scaled(0.9, 1.1)}},
    "QuadrupedWalk-v1": {},
    "DogFetch-v1": {},
    "own": {"model": {"geom_size": Scaled(0.9, 1.1)}},
}


@pytest.mark.parametrize("env_id", CRAFTED)
def test_crafted_states_are_refused_or_stepped(tmp_path: Path, env_id: str) -> None:
    options = dict(CRAFTED[env_id])
    if env_id == "own":
        parts = {
            "actuator": MOTOR.format('delay=".02" nsample="6"'),
            "sensor": PARTS["delayed sensor"]["sensor"] + PARTS["rare sensor"]["sensor"],
            "bodies": BODY.format(0),
        }
        options |= {"xml_file": model(tmp_path, **parts), "observation": ["qpos", "sensordata"]}
    name = "MuJoCo-v0" if env_id == "own" else env_id
    generator = np.random.default_rng(0)
    refused = 0
    with rollouts.make_vec(name, 1, seed=0, num_threads=1, **options) as env:
        env.reset()
        action = np.zeros(env.action_space.shape, np.float32)
        env.step(action)
        (good,) = env.get_state()
        for _ in range(60 if name != "MuJoCo-v0" else 400):
            try:
                env.set_state(None, [crafted(good, generator)])
            except RolloutsError:
                refused += 1
                continue
            try:
                for _ in range(3):
                    env.step(action)
            except EnvError:
                env.reset()
        env.set_state(None, [good])
        env.step(action)
    assert refused > 0


@pytest.mark.parametrize("cursor", [-1.0, 6.0, 2.5, 1e9, np.nan])
def test_a_buffer_of_past_controls_is_not_believed_where_its_newest_is(
    tmp_path: Path, cursor: float
) -> None:
    path = model(tmp_path, **PARTS["delayed control"])
    with make(path) as env:
        env.reset()
        env.step(np.ones((1, 1), np.float32))
        (state,) = env.get_state()
        numbers = rollouts.mujoco.integration_state(state)
        # time, positions and velocities come first, then a free number and the cursor
        at = state.index(numbers.tobytes()) + 8 * (1 + 1 + 1 + 1)
        assert numbers[4] in range(6)
        forged = state[:at] + struct.pack("<d", cursor) + state[at + 8 :]
        with pytest.raises(SpecError, match=r"6 past values|not finite"):
            env.set_state(None, [sealed(forged)])


def test_counts_of_an_own_model_are_those_that_mujoco_computes() -> None:
    with rollouts.make_vec("Humanoid-v5", 1, seed=0, num_threads=1) as env:
        env.reset(options={"model": {"body_mass": env.model_field("body_mass") * 1.1}})
        (state,) = env.get_state()
        # a field of the same length that is an index takes a mass's place
        name, other = b"body_subtreemass", b"tendon_treenum__"
        assert len(name) == len(other) and name in state
        with pytest.raises(SpecError, match="which this model does not have so"):
            env.set_state(None, [sealed(state.replace(name, other))])
