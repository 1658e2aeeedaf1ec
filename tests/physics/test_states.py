# SPDX-License-Identifier: Apache-2.0
"""States of a `PhysicsEngine`: saved, loaded, branched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import rollouts
from rollouts import ProtocolError, SpecError

pytest.importorskip("mujoco_warp")

# the model whose kernels compile fastest
ENV_ID = "InvertedPendulum-v5"


def make(num_envs: int = 4, **kwargs: Any) -> Any:
    return rollouts.make_vec(ENV_ID, num_envs, device="cpu-emulation", **{"seed": 1, **kwargs})


def pushes(num_steps: int, num_envs: int = 4) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    return 3 * torch.rand(num_steps, num_envs, 1, generator=generator)


def run(env: Any, actions: torch.Tensor) -> list[torch.Tensor]:
    """Everything that the steps return but tensors of infos, one after the other."""
    found = []
    for one in actions:
        obs, reward, terminated, truncated, info = env.step(one)
        found += [obs, reward, terminated, truncated]
        found += [info["episode_return"], info["episode_length"]]
    return found


def assert_equal(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


@pytest.mark.parametrize("mode", ("next_step", "same_step"))
def test_a_loaded_state_goes_on_as_the_saved_one(mode: str) -> None:
    # episodes end and begin on the way, by termination and by their limit
    arguments = {"autoreset_mode": mode, "max_episode_steps": 12}
    env, other = make(**arguments), make(**arguments, seed=9)
    env.reset(), run(env, pushes(5))
    saved = env.get_state()
    expected = run(env, pushes(30))
    assert_equal(run_from(env, saved), expected)
    # an environment that was never reset, in the other's streams
    assert_equal(run_from(other, saved), expected)


def run_from(env: Any, states: list[bytes]) -> list[torch.Tensor]:
    env.set_state(None, states)
    return run(env, pushes(30))


def test_branches_of_one_state_do_the_same() -> None:
    env = make(env_id_offset=5)
    env.reset(), run(env, pushes(3))
    env.set_state([5, 6, 8], env.get_state([7]) * 3)
    shown, _ = env.reset(options={"reset_mask": np.zeros(4, np.bool_)})
    assert (shown == shown[2]).all()
    obs = env.step(torch.full((4, 1), 0.5))[0]
    assert (obs == obs[2]).all()


def test_states_that_are_none_are_refused() -> None:
    env, pool = make(), rollouts.make_vec(ENV_ID, 4, seed=1)
    with pytest.raises(ProtocolError, match="never reset"):
        env.get_state()
    env.reset(), pool.reset()
    saved = env.get_state()
    with pytest.raises(SpecError, match="got 3 states for 4"):
        env.set_state(None, saved[:3])
    with pytest.raises(SpecError, match="none of physics on a device"):
        env.set_state(None, pool.get_state())
    with pytest.raises(SpecError, match="another environment"):
        make(frame_skip=3).set_state(None, saved)
    with pytest.raises(SpecError, match="bytes, expected"):
        env.set_state([0], [saved[0][:-1]])
    damaged = bytearray(saved[0])
    damaged[100] ^= 1
    before = env.get_state()
    with pytest.raises(SpecError, match="checksum"):
        env.set_state([0, 1], [saved[1], damaged])
    assert env.get_state() == before
    with pytest.raises(SpecError, match="ids from 0 to 3"):
        env.get_state([4])
