# SPDX-License-Identifier: Apache-2.0
"""Episodes of a `PhysicsEngine`: starts, limits, autoreset, faults and what it refuses."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import numpy as np
import pytest
import torch

import rollouts
from rollouts import ClosedError, EngineError, EnvError, ProtocolError, SpecError

pytestmark = pytest.mark.system

pytest.importorskip("mujoco_warp")

# the model whose kernels compile fastest
ENV_ID = "InvertedPendulum-v5"


def make(num_envs: int = 4, env_id: str = ENV_ID, **kwargs: Any) -> Any:
    return rollouts.make_vec(env_id, num_envs, device="cpu-emulation", **{"seed": 1, **kwargs})


def still(num_envs: int = 4) -> torch.Tensor:
    return torch.zeros(num_envs, 1)


def test_starts_are_the_pools_of_threads() -> None:
    env, pool = make(env_id_offset=5), rollouts.make_vec(ENV_ID, 4, seed=1, env_id_offset=5)
    for seed in (None, 7, [1, 2**64 - 1, None, 3], None):
        obs, expected = env.reset(seed=seed)[0], pool.reset(seed=seed)[0]
        assert obs.dtype == torch.float32
        # drawn in 64 bits there and here, and rounded once
        np.testing.assert_array_equal(obs.numpy(), expected.astype(np.float32))
    assert obs.abs().max() < 0.01


@pytest.mark.parametrize("mode", ("next_step", "same_step"))
def test_autoreset_is_the_pools_of_threads(mode: str) -> None:
    kwargs = {"autoreset_mode": mode, "max_episode_steps": 3}
    env, pool = make(**kwargs), rollouts.make_vec(ENV_ID, 4, seed=1, **kwargs)
    env.reset(), pool.reset()
    for _ in range(8):
        obs, reward, terminated, truncated, info = env.step(still())
        expected = pool.step(np.zeros((4, 1), np.float32))
        # 32 bits through up to three steps
        np.testing.assert_allclose(obs, expected[0], atol=1e-6)
        np.testing.assert_array_equal(reward, expected[1])
        np.testing.assert_array_equal(terminated, expected[2])
        np.testing.assert_array_equal(truncated, expected[3])
        for name in ("env_id", "episode_return", "episode_length"):
            np.testing.assert_array_equal(info[name], expected[4][name], err_msg=name)
        np.testing.assert_array_equal(info["reward_survive"], expected[4]["reward_survive"])
        if mode == "same_step" and bool(truncated.any()):
            own, theirs = (one["final_info"]["reward_survive"] for one in (info, expected[4]))
            np.testing.assert_array_equal(own, theirs)
            np.testing.assert_allclose(
                info["final_obs"], np.stack([*expected[4]["final_obs"]]), atol=1e-6
            )
    stats = env.stats()
    assert (stats.env_steps, int(stats.num_episodes), float(stats.episode_length)) == (32, 8, 3)


def test_without_autoreset_an_ended_episode_stays() -> None:
    env = make(max_episode_steps=1, autoreset_mode="disabled")
    env.reset()
    obs, _, _, truncated, _ = env.step(still())
    assert truncated.all()
    assert torch.equal(env.step(still())[0], obs)
    with pytest.raises(EnvError, match="environment 0 was stepped after its episode had ended"):
        env.synchronize()
    mask = torch.tensor([True, False, False, True])
    begun, _ = env.reset(options={"reset_mask": mask})
    assert (begun != obs).any(1).tolist() == mask.tolist()
    env.reset(options={"reset_mask": np.ones(4, np.bool_)})
    env.step(still())
    env.synchronize()


def test_a_world_goes_on_as_if_its_neighbours_did_not_begin() -> None:
    env, other = make(), make()
    env.reset(), other.reset()
    env.step(still()), other.step(still())
    env.reset(options={"reset_mask": torch.tensor([True, False, True, False])})
    for _ in range(3):
        mine, theirs = env.step(still())[0], other.step(still())[0]
        assert torch.equal(mine[1::2], theirs[1::2])


@pytest.mark.parametrize("mode", ("next_step", "same_step"))
def test_a_state_that_is_not_finite_ends_its_own_episode(mode: str) -> None:
    env = make(autoreset_mode=mode, env_id_offset=10)
    env.reset()
    actions = still()
    actions[1] = torch.nan
    obs, reward, terminated, truncated, info = env.step(actions)
    assert (truncated.tolist(), terminated.any()) == ([False, True, False, False], False)
    assert reward[1] == 0
    assert (info["final_obs"] if mode == "same_step" else obs)[1].tolist() == [0] * 4
    with pytest.raises(EnvError, match="environment 11 its action or its state was not finite"):
        env.synchronize()
    if mode == "next_step":
        obs = env.step(still())[0]
    assert 0 < obs[1].abs().max() < 0.01
    env.step(still())
    env.synchronize()


def test_what_is_returned_stays_and_may_be_written_into() -> None:
    env, other = make(), make()
    env.reset(), other.reset()
    kept = env.step(still())
    copies = [one.clone() for one in kept[:4]]
    other.step(still())[0].fill_(7)
    assert torch.equal(env.step(still())[0], other.step(still())[0])
    assert all(torch.equal(one, copy) for one, copy in zip(kept[:4], copies, strict=True))


def test_worlds_may_have_options_of_their_own() -> None:
    env = make(2, reset_noise_scale=[0.0, 0.01])
    assert (env.reset()[0] != 0).any(1).tolist() == [False, True]
    obs, _ = env.reset(options={"reset_noise_scale": 0.0})
    assert not obs.any()
    with pytest.raises(SpecError, match="'frame_skip' differs between environments"):
        make(2, frame_skip=[1, 2])
    with pytest.raises(SpecError, match=r"reset options \['frame_skip'\] cannot change"):
        env.reset(options={"frame_skip": 1})


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (torch.zeros(4), r"torch.float32 \(4,\), expected torch.float32 \(4, 1\)"),
        (torch.zeros(3, 1), r"\(3, 1\), expected .* \(4, 1\)"),
        (torch.zeros(2, 4, 1), "a row for 2 steps"),
    ],
)
def test_wrong_actions_are_refused(actions: torch.Tensor, message: str) -> None:
    env = make()
    with pytest.raises(ProtocolError, match="call reset first"):
        env.step(still())
    env.reset()
    with pytest.raises(SpecError, match=message):
        env.step(actions)


def test_what_it_is_not_made_of_is_refused() -> None:
    with pytest.raises(SpecError, match="obs_dtype is 'float64', expected 'float32'"):
        make(obs_dtype="float64")
    with pytest.raises(SpecError, match="hosts an engine of the CPU"):
        make(env_id="Humanoid-v4")
    if not torch.cuda.is_available():
        with pytest.raises(EngineError, match="torch finds no GPU"):
            rollouts.make_vec(ENV_ID, 4, device="cuda")


def test_a_missing_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mujoco_warp", None)
    with pytest.raises(EngineError, match=r"pip install 'rollouts\[mujoco-warp\]'"):
        make()


def test_it_is_pickled_by_its_arguments() -> None:
    env = make(autoreset_mode="same_step")
    copy = pickle.loads(pickle.dumps(env))
    assert repr(copy) == repr(env)
    assert torch.equal(copy.reset()[0], env.reset()[0])
    copy.close()
    copy.close()
    with pytest.raises(ClosedError):
        copy.step(still())
