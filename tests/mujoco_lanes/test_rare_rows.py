# SPDX-License-Identifier: Apache-2.0
"""Rows that lanes leave to MuJoCo: those with bad numbers and rare contacts, and those alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from comparing import compare_scene, loaded, scene_in, states_after
from mujoco_scenes import FLOOR, arm, falling, scene

from comparisons.verify_mujoco.driver import STATE, starts_of_model

_BAD = [np.nan, np.inf, -np.inf, 1e11, -1e300]


@pytest.mark.parametrize("env_id", ["HalfCheetah-v5", "Ant-v5", "Humanoid-v5", "CheetahRun-v1"])
@pytest.mark.parametrize("value", _BAD)
@pytest.mark.parametrize("array", ["qpos", "qvel"])
def test_bad_numbers_are_left_to_mujoco_and_disturb_nobody(
    env_id: str, array: str, value: float
) -> None:
    subject = loaded(env_id)
    states = states_after(subject.id, 30, 16)
    clean = subject.comparer.step(*states.arrays())
    getattr(states, array)[5, -1] = value
    found = subject.comparer.step(*states.arrays(), outputs=subject.comparer.outputs)
    assert found["handed_back"][5] and found["warned"][5]
    others = np.arange(16) != 5
    assert not found["handed_back"][others & ~clean["handed_back"]].any()
    stepped = others & ~clean["handed_back"]
    for name in STATE:
        one, two = clean[name][0][stepped], found[name][0][stepped]
        np.testing.assert_allclose(two, one, rtol=0, atol=1e-11 * np.abs(one).max(initial=1))


@pytest.mark.parametrize("env_id", ["HalfCheetah-v5", "Humanoid-v5", "CheetahRun-v1"])
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e11])
def test_bad_controls_are_left_to_mujoco_or_stepped_as_it_does(env_id: str, value: float) -> None:
    subject = loaded(env_id)
    states = states_after(subject.id, 30, 16)
    states.ctrl[3, 0] = value
    found = subject.comparer.step(*states.arrays())
    # MuJoCo takes all controls for 0 and warns, which is to be seen
    assert found["handed_back"][3] or not found["warned"][3]
    if not found["handed_back"][3]:
        for name in STATE:
            one, two = (each[3] for each in found[name])
            np.testing.assert_allclose(one, two, rtol=0, atol=1e-11 * np.abs(two).max(initial=1))


def test_rows_that_are_handed_back_are_as_they_were() -> None:
    subject = loaded("Ant-v5")
    states = states_after(subject.id, 30, 16)
    states.qvel[5, 3] = np.nan
    found = subject.comparer.step(*states.arrays(), outputs=subject.comparer.outputs)
    assert found["handed_back"][5]
    for name in STATE:
        np.testing.assert_array_equal(found[name][0][5], getattr(states, name)[5])
    assert found["time"][0][5] == 0
    for name in subject.comparer.outputs:
        # nothing was written over what marks the unwritten
        assert np.isnan(found[name][0][5]).all(), name


@pytest.mark.parametrize(
    "angle", [0.0, 1e-12, 1e-9, 1e-6, 9e-5, 9.99e-5, 1.01e-4, 1.1e-4, 1e-3, 1e-2]
)
def test_capsules_that_are_nearly_parallel_are_left_to_mujoco_or_equal(
    angle: float, tmp_path: Path
) -> None:
    capsule = 'type="capsule" size=".1 .5" euler="0 1.5707963267948966 0"'
    world = falling(capsule, "one", "0 0 0") + falling(capsule, "two", ".1 0 .19")
    comparer, model = scene_in(tmp_path, scene(world))
    assert comparer.why_not == ""
    qpos = np.tile(model.qpos0, (8, 1))
    turn = np.array([np.cos(angle / 2), 0, 0, np.sin(angle / 2)])
    qpos[:, 10:14] = _product(turn, model.qpos0[10:14])
    none = np.zeros((8, 0))
    found = comparer.forward(qpos, np.zeros((8, 12)), none, np.zeros((8, 12)), none)
    ours = ~found["handed_back"]
    np.testing.assert_array_equal(found["nefc"][0][ours], found["nefc"][1][ours])
    if angle >= 1e-2:
        assert ours.all()
    # where the axes meet is a quotient by the square of the angle's sine
    bound = 1e-11 + 1e-15 / max(angle, 1e-4) ** 2
    for name in ("qacc", "qfrc_constraint"):
        one, two = (array[ours] for array in found[name])
        np.testing.assert_allclose(one, two, rtol=0, atol=bound * np.abs(two).max(initial=1))


def test_centres_in_one_place_are_left_to_mujoco_or_equal(tmp_path: Path) -> None:
    world = falling(name="one", pos="0 0 1") + falling(name="two", pos="0 0 1")
    comparer, model = scene_in(tmp_path, scene(world))
    none = np.zeros((3, 0))
    qpos = np.tile(model.qpos0, (3, 1))
    qpos[1, 0] += 1e-13
    qpos[2, 0] += 1e-3
    found = comparer.step(qpos, np.zeros((3, 12)), none, np.zeros((3, 12)), none)
    ours = ~found["handed_back"]
    assert ours[2]
    one, two = (array[ours] for array in found["qvel"])
    np.testing.assert_allclose(one, two, rtol=0, atol=1e-11 * np.abs(two).max(initial=1))


def test_a_crowd_of_contacts_is_left_to_mujoco_or_equal(tmp_path: Path) -> None:
    balls = "".join(
        f'<geom type="sphere" size=".1" pos="{0.1 * (i % 8)} {0.1 * (i // 8)} 0"/>'
        for i in range(64)
    )
    body = f'<body pos="0 0 .05"><freejoint/>{balls}</body>'
    comparer, model = scene_in(tmp_path, scene(FLOOR + body + falling(name="o", pos=".3 .3 .3")))
    assert comparer.why_not == ""
    found = compare_scene(comparer, model, 64 * 10, ("resting",))
    assert found.beyond == found.other_rows == found.other_iterations == 0


def test_energy_of_a_pendulum_without_damping_stays(tmp_path: Path) -> None:
    xml = scene(arm(), option='integrator="RK4" timestep=".002"', flags='energy="enable"')
    comparer, model = scene_in(tmp_path, xml)
    import mujoco

    states = starts_of_model(model, 8, np.random.default_rng(0))
    data = mujoco.MjData(model)

    def energies() -> np.ndarray:
        found = []
        for qpos, qvel in zip(states.qpos, states.qvel, strict=True):
            data.qpos[:], data.qvel[:] = qpos, qvel
            mujoco.mj_forward(model, data)
            found.append(data.energy.sum())
        return np.array(found)

    before = energies()
    found = comparer.step(*states.arrays(), substeps=5000)
    assert not found["handed_back"].any()
    for name in STATE:
        getattr(states, name)[:] = found[name][0]
    # 10 s; RK4 of this step keeps six digits
    np.testing.assert_allclose(energies(), before, rtol=1e-6)


def _product(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    vector = p[0] * q[1:] + q[0] * p[1:] + np.cross(p[1:], q[1:])
    return np.array([p[0] * q[0] - p[1:] @ q[1:], *vector])
