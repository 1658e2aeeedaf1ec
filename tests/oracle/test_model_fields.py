# SPDX-License-Identifier: Apache-2.0
"""Model fields that differ by environment, beside MuJoCo's own Python package."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
from mujoco_oracle import begin_equal, make_gymnasium, physics_state
from processes import run_in_child

import rollouts
from rollouts.errors import ProtocolError, SpecError
from rollouts.mujoco import Scaled, Uniform

N = 3


def ant_fields(field: Callable[[str], np.ndarray]) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(5)

    def scaled(name: str) -> np.ndarray:
        value = field(name)
        return value * generator.uniform(0.6, 1.6, value.shape)

    names = ["body_mass", "body_inertia", "geom_friction", "geom_size", "actuator_gear"]
    return {**{name: scaled(name) for name in names}, "opt.gravity": scaled("opt.gravity")}


def walker_fields(field: Callable[[str], np.ndarray]) -> dict[str, np.ndarray]:
    low = np.array([1, 2, 3])
    return {
        "opt.timestep": field("opt.timestep") * np.array([0.5, 1.0, 1.5]),
        "dof_damping": field("dof_damping") + np.arange(9.0) * low[:, None],
        "geom_contype": np.stack([field("geom_contype")[0] | bits for bits in low]),
    }


def set_theirs(model: mujoco.MjModel, data: mujoco.MjData, fields: dict[str, np.ndarray]) -> None:
    """Sets fields as a user of MuJoCo does."""
    for name, value in fields.items():
        if name == "opt.timestep":
            model.opt.timestep = value
        else:
            target = model.opt.gravity if name == "opt.gravity" else getattr(model, name)
            target[:] = value
    mujoco.mj_setConst(model, data)


def humanoid_fields(field: Callable[[str], np.ndarray]) -> dict[str, np.ndarray]:
    # its reward is the speed of the centre of mass
    scales = np.linspace(0.5, 2, N * 14).reshape(N, 14)
    return {"body_mass": field("body_mass") * scales}


@pytest.mark.parametrize(
    ("env_id", "fields_of"),
    [("Ant-v5", ant_fields), ("Humanoid-v5", humanoid_fields), ("Walker2d-v5", walker_fields)],
)
def test_overrides_step_as_a_changed_mjmodel_does(env_id: str, fields_of: Any) -> None:
    generator = np.random.default_rng(0)
    theirs = [make_gymnasium(env_id, max_episode_steps=60) for _ in range(N)]
    with rollouts.make_vec(
        env_id, N, seed=3, num_threads=2, max_episode_steps=60, engine="mujoco"
    ) as ours:
        fields = fields_of(ours.model_field)
        obs, _ = ours.reset(options={"model": fields})
        for row, env in enumerate(theirs):
            own = {name: value[row] for name, value in fields.items()}
            set_theirs(env.unwrapped.model, env.unwrapped.data, own)
            np.testing.assert_array_equal(obs[row], begin_equal(env, physics_state(ours, row)))
        space = ours.single_action_space
        over = np.zeros(N, np.bool_)
        for _ in range(300):
            actions = generator.uniform(space.low, space.high, (N, *space.shape))
            actions = actions.astype(np.float32)
            obs, reward, terminated, truncated, _ = ours.step(actions)
            for row, env in enumerate(theirs):
                if over[row]:  # the step after an end begins the next episode
                    want = begin_equal(env, physics_state(ours, row))
                else:
                    want, want_reward, *ends, _ = env.step(actions[row])
                    np.testing.assert_allclose(reward[row], want_reward, rtol=1e-12, atol=1e-12)
                    assert [terminated[row], truncated[row]] == ends
                np.testing.assert_array_equal(obs[row], want)
            over = terminated | truncated
        for row, env in enumerate(theirs):
            found, want = physics_state(ours, row), np.empty(len(physics_state(ours)))
            mujoco.mj_getState(
                env.unwrapped.model, env.unwrapped.data, want, mujoco.mjtState.mjSTATE_INTEGRATION
            )
            if not over[row]:
                np.testing.assert_array_equal(found, want)


def test_every_field_reads_as_in_mujoco_and_own_copies_change_nothing() -> None:
    theirs = make_gymnasium("Humanoid-v5")
    model = theirs.unwrapped.model
    with (
        rollouts.make_vec("Humanoid-v5", 1, seed=1) as ours,
        rollouts.make_vec("Humanoid-v5", 1, seed=1) as untouched,
    ):
        fields = {name: ours.model_field(name) for name in ours.model_fields}
        assert len(fields) > 100
        for name, found in fields.items():
            want = np.asarray(
                getattr(model.opt, name.removeprefix("opt."))
                if name.startswith("opt.")
                else getattr(model, name)
            )
            np.testing.assert_array_equal(found[0], want, err_msg=name)
            assert found[0].shape == want.shape
            if want.ndim:
                assert found.dtype == want.dtype, name
        ours.reset(options={"model": fields})
        untouched.reset()
        for _ in range(30):
            action = ours.action_space.sample()
            np.testing.assert_array_equal(ours.step(action)[0], untouched.step(action)[0])
        assert ours.get_state()[0] != untouched.get_state()[0]  # it has the overrides
    theirs.close()


def play(env: rollouts.VectorEnv, steps: int = 40) -> np.ndarray:
    generator = np.random.default_rng(9)
    shape = env.single_action_space.shape
    actions = generator.uniform(-0.3, 0.3, (steps, env.num_envs, *shape)).astype(np.float32)
    return np.stack([env.step(action)[0].copy() for action in actions])


def make_hopper(**arguments: Any) -> rollouts.VectorEnv:
    return rollouts.make_vec("Hopper-v5", N, seed=4, max_episode_steps=15, **arguments)


def test_masked_overrides_stay_with_their_environments_until_none_is_given() -> None:
    mask = np.array([False, True, False])
    with (
        make_hopper(autoreset_mode="disabled") as ours,
        make_hopper(autoreset_mode="disabled") as plain,
    ):
        ours.reset()
        file = ours.model_field("body_mass")
        heavy = file * np.array([1, 2, 3])[:, None]
        ours.reset(options={"model": {"body_mass": heavy}, "reset_mask": mask})
        np.testing.assert_array_equal(
            ours.model_field("body_mass"), np.where(mask[:, None], heavy, file)
        )
        np.testing.assert_array_equal(ours.model_field("body_mass", of_file=True), file)
        # another field and another reset leave it
        ours.reset(options={"model": {"opt.gravity": [0, 0, -5.0]}})
        ours.reset(seed=4)
        np.testing.assert_array_equal(ours.model_field("body_mass")[1], heavy[1])
        plain.reset(seed=4)
        assert not np.array_equal(play(ours, 5), play(plain, 5))
        ours.reset(seed=4, options={"model": {"body_mass": None, "opt.gravity": None}})
        plain.reset(seed=4)
        np.testing.assert_array_equal(ours.model_field("body_mass"), file)
        np.testing.assert_array_equal(play(ours, 5), play(plain, 5))


def test_drawn_values_are_new_in_every_episode_and_the_same_for_any_threads() -> None:
    fields = {"body_mass": Scaled(0.5, 2), "opt.gravity": Uniform([0, 0, -12], [0, 0, -8])}
    seen = []
    for threads in (1, 3):
        with make_hopper(num_threads=threads) as env:
            env.reset(seed=4, options={"model": fields})
            file = env.model_field("body_mass", of_file=True)
            drawn = []
            for _ in range(5):
                mass, gravity = env.model_field("body_mass"), env.model_field("opt.gravity")
                assert ((mass >= 0.5 * file) & (mass <= 2 * file)).all()
                assert ((gravity[:, 2] >= -12) & (gravity[:, 2] < -8)).all()
                drawn.append((mass, gravity, play(env, 16)))
            assert len({mass[:, 1:].tobytes() for mass, _, _ in drawn}) == 5
            assert len(np.unique(drawn[0][0][:, 1:])) == 4 * N
            seen.append(drawn)
    for one, other in zip(*seen, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_model_given_at_construction_is_that_of_the_first_reset() -> None:
    fields = {"body_mass": Scaled(0.5, 2), "geom_friction": np.full((N, 5, 3), 0.7)}
    with make_hopper() as ours, make_hopper(model=fields) as at_once:
        ours.reset(seed=4, options={"model": fields})
        again = pickle.loads(pickle.dumps(at_once))
        for env in (at_once, again):
            env.reset(seed=4)
            np.testing.assert_array_equal(
                env.model_field("body_mass"), ours.model_field("body_mass")
            )
            np.testing.assert_array_equal(env.model_field("geom_friction"), fields["geom_friction"])
        played = play(ours)
        np.testing.assert_array_equal(play(at_once), played)
        np.testing.assert_array_equal(play(again), played)
        again.close()


def test_a_wrong_model_at_construction_is_refused() -> None:
    with pytest.raises(SpecError, match="did you mean 'body_mass'"):
        make_hopper(model={"body_mas": 1})
    with pytest.raises(SpecError, match=r"has shape \(2,\), expected \(5,\) for all"):
        make_hopper(model={"body_mass": [1, 2]})
    with pytest.raises(SpecError, match="no model with fields"):
        rollouts.make_vec("CartPole-v1", 2, model={"body_mass": 1})


def test_a_spec_needs_no_options_of_models_and_frames() -> None:
    options = {"model": {"body_mass": Scaled(0.5, 2)}, "width": 64, "render_height": 64}
    assert rollouts.env_spec("Hopper-v5", **options) == rollouts.env_spec("Hopper-v5")


def test_scaled_is_a_multiple_of_each_environments_own_file(tmp_path: Path) -> None:
    text = (Path(rollouts.mujoco.assets_dir()) / "hopper.xml").read_text()
    dense = tmp_path / "dense.xml"
    # ten times as heavy
    dense.write_text(text.replace("<geom conaffinity", '<geom density="10000" conaffinity', 1))
    files = ["hopper.xml", str(dense), "hopper.xml"]
    fields = {"body_mass": Scaled(0.9, 1.1)}
    with make_hopper(xml_file=files, model=fields) as env:
        env.reset()
        file = env.model_field("body_mass", of_file=True)
        assert (file[1, 1:] > 5 * file[0, 1:]).all()
        mass = env.model_field("body_mass")
        assert ((mass >= 0.9 * file) & (mass <= 1.1 * file)).all()
        # and so it is where a mask names one of them
        mask = np.array([False, True, True])
        env.reset(options={"reset_mask": mask, "model": {"body_mass": Scaled(2, 2)}})
        now = env.model_field("body_mass")
        np.testing.assert_array_equal(now[0], mass[0])
        np.testing.assert_array_equal(now[1:], 2 * file[1:])
        with pytest.raises(SpecError, match="change the file in one reset"):
            env.reset(options={"xml_file": str(dense), "model": fields})


@pytest.mark.parametrize("drawn", [False, True])
def test_a_restored_environment_goes_on_equal_in_a_pool_that_knows_nothing(drawn: bool) -> None:
    with make_hopper() as ours, make_hopper() as other:
        factors = np.array([0.7, 1.3, 2])[:, None]
        mass = Scaled(0.5, 2) if drawn else ours.model_field("body_mass") * factors
        gear = ours.model_field("actuator_gear") * 1.1
        ours.reset(options={"model": {"body_mass": mass, "actuator_gear": gear}})
        other.reset(seed=77, options={"model": {"opt.viscosity": 1}})
        play(ours, 7)
        other.set_state(None, ours.get_state())
        for name in ("body_mass", "actuator_gear", "opt.viscosity"):
            np.testing.assert_array_equal(other.model_field(name), ours.model_field(name))
        np.testing.assert_array_equal(play(other, 50), play(ours, 50))


def test_tasks_that_change_the_model_themselves_keep_overrides_and_states() -> None:
    # the fish's target is drawn into geom_pos; the same array has an override
    with (
        rollouts.make_vec("FishSwim-v1", 2, seed=4, max_episode_steps=9) as ours,
        rollouts.make_vec("FishSwim-v1", 2, seed=8, max_episode_steps=9) as other,
    ):
        ours.reset()
        moved = ours.model_field("geom_pos", of_file=True) + np.array([0, 0, 0.001])
        ours.reset(options={"model": {"geom_pos": moved, "body_mass": Scaled(0.5, 2)}})
        other.reset()
        play(ours, 4)
        other.set_state(None, ours.get_state())
        for _ in range(3):
            np.testing.assert_array_equal(play(other, 9), play(ours, 9))
            np.testing.assert_array_equal(
                other.model_field("geom_pos"), ours.model_field("geom_pos")
            )
        same = (ours.model_field("geom_pos") == moved).all(axis=(0, 2))
        assert same.sum() == len(same) - 1  # the target alone is the task's
        mass, file = ours.model_field("body_mass"), ours.model_field("body_mass", of_file=True)
        assert (mass <= 2 * file).all() and not np.allclose(mass, file)


def test_overrides_outlive_changed_options_and_reach_asynchronous_pools() -> None:
    with rollouts.make_vec("Hopper-v5", 4, batch_size=2, num_threads=2, seed=1) as env:
        env.async_reset()
        env.reset(options={"model": {"body_mass": Scaled(3, 3)}})
        env.recv()
        mass = env.model_field("body_mass")
        np.testing.assert_array_equal(mass, 3 * env.model_field("body_mass", of_file=True))
        env.reset(options={"ctrl_cost_weight": 0.5})
        env.recv()
        np.testing.assert_array_equal(env.model_field("body_mass"), mass)
        env.send(np.zeros((2, 3), np.float32), env_id=[0, 1])
        with pytest.raises(ProtocolError, match="env_id 0 is in flight"):
            env.model_field("body_mass")
        env.recv()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"body_mas": 1}, r"no field 'body_mas'.*did you mean 'body_mass'"),
        ({"body_mass": np.ones(N)}, r"shape \(3,\), expected \(5,\).* or \(3, 5\) for each"),
        ({"body_mass": ["heavy"] * 5}, "must be numbers"),
        ({"body_mass": np.full((N, 5), np.nan)}, "row 0: .*'body_mass'.*not finite"),
        ({"geom_contype": np.full(5, 0.5)}, "whole numbers"),
        ({"jnt_limited": np.full(6, 2)}, "expected 0 or 1"),
        ({"body_parentid": 0}, "what the model is made of"),
        ({"mesh_vert": 0}, "no field 'mesh_vert', or has it empty"),
        ({"dof_M0": 0}, "mj_setConst"),
        ({"opt.timestep": 0}, "must be positive"),
        ({7: 0}, "a model field is a str"),
        ([1], "must be a mapping"),
    ],
)
def test_refused_fields_say_why_and_change_nothing(fields: Any, message: str) -> None:
    with make_hopper() as env:
        env.reset()
        before = env.get_state()
        options = {"model": fields, "frame_skip": 2}
        with pytest.raises(SpecError, match=message):
            env.reset(seed=1, options=options)
        assert env.get_state() == before
        assert env.env_options["frame_skip"] == 4


def test_other_families_refuse_models() -> None:
    with rollouts.make_vec("CartPole-v1", 2) as env:
        with pytest.raises(SpecError, match="no model with fields; those of MuJoCo have"):
            env.reset(options={"model": {"body_mass": 1}})
        with pytest.raises(SpecError, match="no model with fields"):
            env.model_field("body_mass")


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_an_own_field_costs_what_it_holds(tmp_path: Path) -> None:
    run_in_child(assert_a_field_costs_what_it_holds, tmp_path)


def assert_a_field_costs_what_it_holds(tmp_path: Path) -> None:
    # a field of heights makes the model large: 1 MB
    text = (Path(rollouts.mujoco.assets_dir()) / "hopper.xml").read_text()
    heights = '<asset><hfield name="rough" nrow="500" ncol="500" size="1 1 1 1"/></asset>'
    path = tmp_path / "hopper.xml"
    path.write_text(text.replace("<worldbody>", f"{heights}<worldbody>", 1))
    with rollouts.make_vec("Hopper-v5", 64, seed=1, xml_file=str(path)) as env:
        env.reset()
        before = resident_bytes()
        env.reset(options={"model": {"body_mass": Scaled(0.5, 2), "geom_friction": Scaled(0.5, 2)}})
        assert resident_bytes() - before < 64 * 1_000_000 / 8
