# SPDX-License-Identifier: Apache-2.0
"""MuJoCo-v0 on a device: the user's model and functions, beside the pool of threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rollouts
from rollouts import DTypeError, EnvError, ProtocolError, SpecError

pytest.importorskip("mujoco_warp")

NUM_ENVS = 3
# the model whose kernels compile fastest
PENDULUM: dict[str, Any] = {
    "xml_file": "inverted_pendulum.xml",
    "frame_skip": 2,
    "observation": ["qpos", "qvel", "xpos:pole[1:3]"],
    "info": ["xpos:cart", "qvel:hinge", "time"],
    "reset_noise_scale": 0.01,
}


def reward(step: Any) -> Any:
    return (step["qpos"][:, 0] - step.previous["qpos"][:, 0]) / step.dt - step.actions[:, 0] ** 2


def terminated(step: Any) -> Any:
    return abs(step["qpos"][:, 1]) > 0.05


def make(*, device: str | None = "cpu-emulation", **options: Any) -> Any:
    given = {"seed": 1, **PENDULUM, **options}
    if device is None:
        return rollouts.make_vec("MuJoCo-v0", NUM_ENVS, obs_dtype="float32", **given)
    return rollouts.make_vec("MuJoCo-v0", NUM_ENVS, device=device, **given)


def assert_steps_agree(env: Any, pool: Any, num_steps: int, atol: float) -> int:
    """Compares steps of pushes; returns how many episodes ended."""
    generator = np.random.default_rng(0)
    found, expected = env.reset(), pool.reset()
    np.testing.assert_allclose(found[0], expected[0], atol=atol)
    num_ended = 0
    size = env.single_action_space.shape[0]
    for _ in range(num_steps):
        actions = generator.uniform(-1, 1, (NUM_ENVS, size)).astype(np.float32)
        found, expected = env.step(torch.from_numpy(actions)), pool.step(actions)
        for ours, theirs in zip(found[:4], expected[:4], strict=True):
            np.testing.assert_allclose(ours, theirs, atol=atol)
        ended = found[2] | found[3]
        num_ended += int(ended.sum())
        for name in (*env_infos(env), "episode_return", "episode_length"):
            np.testing.assert_allclose(
                found[4][name], expected[4][name], atol=30 * atol, err_msg=name
            )
        if "final_obs" in found[4] and ended.any():
            theirs = np.stack([one for one in expected[4]["final_obs"] if one is not None])
            np.testing.assert_allclose(found[4]["final_obs"][ended], theirs, atol=atol)
    env.synchronize()
    return num_ended


def env_infos(env: Any) -> list[str]:
    given = env.env_spec.options["info"]
    return [name.strip() for name in given.split(",") if name.strip()]


@pytest.mark.parametrize("mode", ("next_step", "same_step"))
def test_episodes_are_the_pools_of_threads(mode: str) -> None:
    functions = {"reward": reward, "terminated": terminated}
    arguments = {**functions, "autoreset_mode": mode, "max_episode_steps": 9}
    env, pool = make(**arguments), make(device=None, **arguments)
    assert env.single_observation_space == pool.single_observation_space
    # 32 bits through steps of up to nine, differences of positions over 0.04 s among them
    assert assert_steps_agree(env, pool, 25, 2e-5) > NUM_ENVS * 2


def test_without_functions_nothing_is_rewarded() -> None:
    env = make()
    env.reset()
    _, found, terminated, _, info = env.step(torch.ones(NUM_ENVS, 1))
    assert not found.any() and not terminated.any()
    assert info["xpos:cart"].shape == (NUM_ENVS, 3)
    assert info["time"].flatten().tolist() == pytest.approx([0.04] * NUM_ENVS)


def test_a_function_that_raises_loses_its_batch() -> None:
    def fails(step: Any) -> Any:
        return step["nowhere"]

    env = make(reward=fails)
    env.reset()
    with pytest.raises(KeyError, match="'nowhere' is not among the names"):
        env.step(torch.zeros(NUM_ENVS, 1))
    for again in (lambda: env.step(torch.zeros(NUM_ENVS, 1)), env.get_state):
        with pytest.raises(ProtocolError, match=r"reward raised .* call reset\(\) first"):
            again()
    env.reset()
    env.get_state()


@pytest.mark.parametrize(
    ("functions", "error", "message"),
    [
        ({"reward": lambda step: step["qpos"]}, SpecError, r"reward returned shape \(3, 2\)"),
        ({"terminated": lambda step: step.dt}, DTypeError, "expected torch.bool"),
        ({"reward": lambda step: "much"}, DTypeError, "reward returned str"),
    ],
)
def test_what_functions_may_not_return_is_refused(functions: Any, error: Any, message: str) -> None:
    env = make(**functions)
    env.reset()
    with pytest.raises(error, match=message):
        env.step(torch.zeros(NUM_ENVS, 1))


def test_a_reward_that_is_not_finite_ends_its_own_episode() -> None:
    env = make(reward=lambda step: torch.where(step.env_ids == 1, torch.nan, 1.0))
    env.reset()
    _, found, _, truncated, _ = env.step(torch.zeros(NUM_ENVS, 1))
    assert (found.tolist(), truncated.tolist()) == ([1, 0, 1], [False, True, False])
    with pytest.raises(EnvError, match="environment 1 got a reward from its function"):
        env.synchronize()


def test_what_one_model_on_a_device_cannot_be_is_refused() -> None:
    files = ["inverted_pendulum.xml", "hopper.xml", "hopper.xml"]
    with pytest.raises(SpecError, match="'xml_file' differs between environments"):
        make(xml_file=files)
    with pytest.raises(SpecError, match="obs_dtype is 'float64'"):
        make(obs_dtype="float64")
    with pytest.raises(SpecError, match="neither an array nor a sensor of that name"):
        make(observation=["qpoz"])
    env = make()
    with pytest.raises(SpecError, match=r"reset options \['keyframe'\] cannot change"):
        env.reset(options={"keyframe": "0"})


MODEL = """
<mujoco>
  <option timestep="0.005" integrator="implicitfast"/>
  <worldbody>
    <geom type="plane" size="5 5 1"/>
    <body name="lift" mocap="true" pos="0 0 2"/>
    <body name="ball" pos="0 0 0.5">
      <freejoint name="free"/>
      <geom type="sphere" size="0.2" mass="1"/>
      <site name="eye" pos="0.1 0 0"/>
      <body name="arm" pos="0 0 0.2">
        <joint name="swing" axis="0 1 0" damping="0.1"/>
        <geom type="capsule" fromto="0 0 0 0 0 0.3" size="0.03" mass="0.2"/>
      </body>
    </body>
  </worldbody>
  <actuator>
    <general name="motor" joint="swing" dyntype="filter" dynprm="0.1" gainprm="2" ctrlrange="-1 1"/>
  </actuator>
  <sensor><gyro name="gyro" site="eye"/><accelerometer name="push" site="eye"/></sensor>
  <keyframe>
    <key name="low" time="3" qpos="0 0 0.195 1 0 0 0 0.3" qvel="0.1 0 0 0 0 0 1"
      act="0.5" mpos="1 2 3"/>
  </keyframe>
</mujoco>
"""


@pytest.mark.system
def test_a_model_of_ones_own_is_stepped_as_by_mujoco(tmp_path: Path) -> None:
    file = tmp_path / "ball.xml"
    file.write_text(MODEL)
    options: dict[str, Any] = {
        "xml_file": file,
        "observation": ["qpos", "qvel", "act", "gyro", "xpos:arm", "actuator_force:motor"],
        "info": ["mocap_pos:lift", "cfrc_ext:ball", "qacc", "time"],
        "keyframe": "low",
        "reset_noise_scale": 0.001,
        "qvel_noise": "normal",
        "max_episode_steps": 2,
        "reward": lambda step: step["gyro"].sum(axis=1),
    }
    env, pool = make(**options), make(device=None, **options)
    # a contact's forces of tens of newtons in 32 bits
    assert assert_steps_agree(env, pool, 6, 1e-4) == 2 * NUM_ENVS
