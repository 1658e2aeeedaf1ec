# SPDX-License-Identifier: Apache-2.0
"""Worlds whose models differ, beside MuJoCo with those models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from physics_peer import NUM_STATES, errors

import rollouts
from rollouts import SpecError
from rollouts.mujoco import Scaled, Uniform

pytestmark = pytest.mark.system

pytest.importorskip("mujoco_warp")

# the model whose kernels compile fastest
ENV_ID = "InvertedPendulum-v5"
FACTORS = np.array([0.5, 1.0, 2.0, 4.0])


def make(*, device: str | None = "cpu-emulation", **kwargs: Any) -> Any:
    arguments = {"seed": 1, **kwargs}
    if device is None:
        return rollouts.make_vec(ENV_ID, 4, obs_dtype="float32", **arguments)
    return rollouts.make_vec(ENV_ID, 4, device=device, **arguments)


def masses(env: Any) -> np.ndarray:
    return np.asarray(env.model_field("body_mass", of_file=True)) * FACTORS[:, None]


def push(env: Any, size: float = 1.0) -> np.ndarray:
    pushes = np.full((4, 1), size, np.float32)
    device = getattr(env, "device", None)
    return np.asarray(env.step(pushes if device is None else torch.from_numpy(pushes))[0])


def test_a_step_is_mujocos_with_the_worlds_own_model() -> None:
    file = rollouts.make_vec("Hopper-v5", NUM_STATES)
    factor = np.linspace(0.4, 2.5, NUM_STATES)
    model = {
        name: file.model_field(name) * factor.reshape(-1, *[1] * (file.model_field(name).ndim - 1))
        for name in ("body_mass", "body_inertia", "geom_friction", "dof_damping")
    }
    model["opt.gravity"] = np.array([0, 0, -9.81]) * factor[::-1, None]
    of_obs, of_reward, ends = errors("Hopper-v5", model)
    # the tolerances of test_one_step.py
    assert of_obs.max() < 5e-4
    assert of_reward.max() < 1e-5
    assert ends == 0


def test_what_episodes_draw_is_the_pools_of_threads() -> None:
    model = {
        "dof_damping": Scaled(0.5, 2.0),
        "body_mass": np.array([0, 8.0, 4.0]),
        "opt.gravity": Uniform([0, 0, -11], [0, 0, -8]),
    }
    arguments = {"model": model, "max_episode_steps": 2, "autoreset_mode": "same_step"}
    env, pool = make(**arguments), make(device=None, **arguments)
    np.testing.assert_allclose(env.reset()[0], pool.reset()[0], atol=1e-8)
    seen = []
    for _ in range(5):
        for name in model:
            found, expected = env.model_field(name), pool.model_field(name)
            np.testing.assert_allclose(found, expected, rtol=1e-7, err_msg=name)
        seen.append(env.model_field("opt.gravity")[:, 2])
        # 32 bits through up to two steps
        np.testing.assert_allclose(push(env), push(pool), atol=1e-5)
    assert (seen[0] == seen[1]).all()
    assert len({*np.stack(seen).flatten()}) == 3 * 4


def test_a_reset_changes_the_models_of_those_who_begin() -> None:
    env, pool = make(), make(device=None)
    mask = np.array([True, False, True, False])
    for one in (env, pool):
        one.reset()
        push(one)
        model = {"body_mass": masses(one), "opt.timestep": 0.01}
        one.reset(options={"model": model, "reset_mask": mask})
        for _ in range(3):
            shown = push(one)
        # what is not named stays
        one.reset(options={"model": {"body_mass": None}, "reset_mask": mask})
    for name in ("body_mass", "opt.timestep"):
        np.testing.assert_allclose(env.model_field(name), pool.model_field(name), rtol=1e-7)
    assert (env.model_field("opt.timestep") == np.float32([0.01, 0.02, 0.01, 0.02])).all()
    np.testing.assert_allclose(push(env), push(pool), atol=1e-5)
    assert shown.shape == (4, 4)


def test_others_go_on_while_models_change() -> None:
    env, other = make(), make()
    for one in (env, other):
        one.reset()
        push(one)
    mask = np.array([True, False, False, True])
    env.reset(options={"model": {"dof_damping": 3.0 * np.ones(2)}, "reset_mask": mask})
    for _ in range(3):
        assert (push(env)[1:3] == push(other)[1:3]).all()
    assert env.stats().env_steps == other.stats().env_steps


def test_quaternions_that_episodes_draw_are_the_rotations_of_the_pools_of_threads() -> None:
    # places of geoms and bodies are refused: of what does not move, mujoco_warp computes them once
    arguments = {"model": {"site_quat": Uniform(-1, 1)}, "seed": 1}
    names = ("InvertedDoublePendulum-v5", 4)
    env = rollouts.make_vec(*names, device="cpu-emulation", **arguments)
    pool = rollouts.make_vec(*names, **arguments)
    env.reset()
    pool.reset()
    found, expected = env.model_field("site_quat"), pool.model_field("site_quat")
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(expected, axis=-1), 1, rtol=1e-9)
    assert len(np.unique(found)) == 16


def test_states_have_the_worlds_models() -> None:
    env = make(model={"body_mass": masses(make(device=None)), "dof_damping": Scaled(0.5, 2.0)})
    env.reset()
    saved = env.get_state()
    expected = [push(env) for _ in range(3)]
    env.set_state(None, saved[::-1])
    found = [push(env) for _ in range(3)]
    assert all((one[::-1] == two).all() for one, two in zip(found, expected, strict=True))
    with pytest.raises(SpecError, match="another environment, model or options"):
        make().set_state(None, saved)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"geom_contype": 1}, "'geom_contype' is one for all worlds of mujoco_warp"),
        ({"body_weight": 1}, "'body_weight' is none that can be set.*did you mean"),
        ({"body_mass": np.ones(2)}, r"has shape \(2,\), expected \(3,\)"),
        ({"body_mass": [0, np.nan, 1]}, "not finite"),
        ({"body_mass": Scaled(0.5, 2.0)}, "'body_mass' cannot be drawn by every episode"),
        ({"opt.density": 1.0}, "'opt.density' is 0 in the model's file"),
        ({"opt.timestep": 0.0}, "must be positive"),
        ({"geom_pos": np.ones((3, 3))}, "'geom_pos' moves number 0, which no joint moves"),
        ({"body_mass": [0, 0, 0]}, "MuJoCo refuses model fields"),
    ],
)
def test_what_a_model_cannot_have_is_refused(
    model: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # where MuJoCo's log goes
    monkeypatch.chdir(tmp_path)
    env = make()
    env.reset()
    before = env.get_state()
    with pytest.raises(SpecError, match=message):
        env.reset(options={"model": model})
    assert env.get_state() == before
