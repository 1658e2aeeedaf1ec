# SPDX-License-Identifier: Apache-2.0
"""Environments inside functions that JAX compiles."""

from __future__ import annotations

import gc
import struct
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import rollouts
from rollouts.errors import SpecError

jax = pytest.importorskip("jax", reason="JAX is not installed")
jnp = jax.numpy
adapter = pytest.importorskip("rollouts.integrations.jax", reason="JAX is not installed")
import rollouts.integrations.envpool as envpool  # noqa: E402

pytestmark = pytest.mark.system

ROUTES = ["ffi", "callback"]


def actions_of(env: rollouts.VectorEnv, steps: int) -> Any:
    """(steps, N, ...) actions, the same in each run."""
    rng = np.random.default_rng(0)
    space: Any = env.single_action_space
    if space.shape:
        shape = (steps, env.num_envs, *space.shape)
        return rng.uniform(space.low, space.high, shape).astype(np.float32)
    return rng.integers(0, int(space.n), (steps, env.num_envs)).astype(np.int32)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "Taxi-v3", "Blackjack-v1"])
def test_a_compiled_scan_returns_what_step_does(env_id: str, route: str) -> None:
    env, reference = (rollouts.make_vec(env_id, 5, seed=1, max_episode_steps=30) for _ in range(2))
    env.reset()
    reference.reset()
    handle, _, _, step = adapter.xla(env, route=route)
    actions = actions_of(env, 80)
    handle, batch = jax.jit(lambda h, a: jax.lax.scan(step, h, a))(handle, actions)
    for t in range(len(actions)):
        reference.send(actions[t])
        expected = reference.recv_batch()
        for name, want in expected._asdict().items():
            if name not in ("final_obs", "info"):
                got = np.asarray(getattr(batch, name)[t])
                np.testing.assert_array_equal(got, want.astype(got.dtype), err_msg=name)
    assert batch.obs.shape == (80, 5, *(env.single_observation_space.shape or ()))
    assert batch.final_obs is None and batch.reward.dtype == np.float32


@pytest.mark.parametrize("route", ROUTES)
def test_a_collector_finds_that_a_compiled_function_has_stepped_its_pool(route: str) -> None:
    torch = pytest.importorskip("torch")

    class Network(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 3)

        def forward(self, obs: Any) -> Any:
            return self.layer(obs)[:, :2], self.layer(obs)[:, 2]

    with rollouts.make_vec("CartPole-v1", 3, seed=1, autoreset_mode="same_step") as env:
        policy = rollouts.TorchPolicy(Network(), env.single_action_space)
        collector = rollouts.Collector(env, policy, 4, engine="torch")
        collector.collect()
        collector.collect()
        handle, _, _, step = adapter.xla(env, route=route)
        # what is only traced steps nothing
        compiled = jax.jit(step).lower(handle, jnp.zeros(3, int)).compile()
        collector.collect()
        jax.block_until_ready(compiled(handle, jnp.zeros(3, int)))
        with pytest.raises(rollouts.ProtocolError, match="nobody else uses"):
            collector.collect()
        collector.reset()
        assert collector.collect().obs.shape == (4, 3, 4)


def test_infos_that_are_arrays_keep_their_rows() -> None:
    env, reference = (rollouts.make_vec("Humanoid-v5", 3, seed=1) for _ in range(2))
    env.reset()
    reference.reset()
    handle, _, _, step = adapter.xla(env)
    actions = actions_of(env, 4)
    _, batch = jax.jit(lambda h, a: jax.lax.scan(step, h, a))(handle, actions)
    for t in range(len(actions)):
        reference.send(actions[t])
        for name, want in reference.recv_batch().info.items():
            got = np.asarray(batch.info[name][t])
            np.testing.assert_array_equal(got, want.astype(got.dtype), err_msg=name)
    assert batch.info["tendon_length"].shape == (4, 3, 2)


def test_atari_images_and_infos_come_out_whole() -> None:
    pytest.importorskip("ale_py", reason="Atari games need ale-py")
    env, reference = (rollouts.make_vec("ALE/Breakout-v5", 2, seed=1) for _ in range(2))
    env.reset()
    reference.reset()
    handle, _, _, step = env.xla()
    actions = actions_of(env, 20)
    _, batch = jax.jit(lambda h, a: jax.lax.scan(step, h, a))(handle, actions)
    names = {"lives", "raw_reward", "frame_number", "episode_frame_number"}
    assert batch.obs.dtype == np.uint8 and set(batch.info) == names
    for t in range(20):
        obs, *_, info = reference.step(actions[t])
        np.testing.assert_array_equal(batch.obs[t], obs)
        np.testing.assert_array_equal(batch.info["lives"][t], info["lives"])


def test_same_step_pools_return_final_obs() -> None:
    env = rollouts.make_vec("CartPole-v1", 3, seed=1, autoreset_mode="same_step")
    env.reset()
    handle, _, _, step = env.xla()
    for _ in range(15):
        handle, batch = step(handle, jnp.zeros(3, int))
        ended = np.asarray(batch.terminated)
        if ended.any():
            assert (np.abs(np.asarray(batch.final_obs)[ended, 2]) > 0.2).all()
            assert (np.abs(np.asarray(batch.obs)[ended, 2]) < 0.06).all()
            return
    raise AssertionError("no episode ended")


def test_rewards_keep_float64_where_jax_has_it() -> None:
    code = (
        "import jax, numpy as np, rollouts\n"
        "jax.config.update('jax_enable_x64', True)\n"
        "env = rollouts.make_vec('Pendulum-v1', 2, seed=1); env.reset()\n"
        "other = rollouts.make_vec('Pendulum-v1', 2, seed=1); other.reset()\n"
        "handle, _, _, step = env.xla()\n"
        "_, batch = jax.jit(step)(handle, np.ones((2, 1), np.float32))\n"
        "reward = other.step(np.ones((2, 1), np.float32))[1]\n"
        "print(batch.reward.dtype, np.array_equal(batch.reward, reward))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True
    )
    assert result.stdout.split() == ["float64", "True"]


@pytest.mark.parametrize("route", ROUTES)
def test_send_and_recv_overlap_in_an_asynchronous_pool(route: str) -> None:
    env = rollouts.make_vec("CartPole-v1", 6, batch_size=2, seed=1)
    env.async_reset()
    handle, recv, send, step = adapter.xla(env, route=route)

    def one(carry: Any, _: Any) -> Any:
        handle, seen = carry
        handle, batch = recv(handle)
        handle = send(handle, jnp.zeros(2, jnp.int32), batch.env_id)
        return (handle, seen.at[batch.env_id].add(1)), batch.episode_length

    run = jax.jit(lambda h: jax.lax.scan(one, (h, jnp.zeros(6, int)), length=90))
    (handle, seen), lengths = run(handle)
    assert int(seen.sum()) == 180 and (seen > 0).all() and int(lengths.max()) > 5
    handle, batch = recv(handle)
    handle, batch = step(handle, jnp.zeros(2, int), batch.env_id)
    assert batch.obs.shape == (2, 4)
    with pytest.raises(SpecError, match="env_id"):
        step(handle, jnp.zeros(2, int))


def test_some_environments_of_a_synchronous_pool_may_step() -> None:
    env = rollouts.make_vec("CartPole-v1", 4, seed=1)
    env.reset()
    handle, _, _, step = env.xla()
    _, batch = jax.jit(step)(handle, jnp.zeros(2, int), jnp.array([3, 1]))
    assert batch.env_id.tolist() == [3, 1] and batch.episode_length.tolist() == [1, 1]


def test_errors_are_jaxs_and_leave_the_pool_usable() -> None:
    env = rollouts.make_vec("CartPole-v1", 3, seed=1)
    handle, recv, send, step = env.xla()
    jitted = jax.jit(step)
    with pytest.raises(RuntimeError, match="never reset"):
        jax.block_until_ready(jitted(handle, jnp.zeros(3, int)))
    env.reset()
    with pytest.raises(RuntimeError, match="action 5 in row 1 is out of range"):
        jax.block_until_ready(jitted(handle, jnp.array([0, 5, 0])))
    with pytest.raises(RuntimeError, match="env_id 9"):
        jax.block_until_ready(step(handle, jnp.zeros(1, int), jnp.array([9])))
    with pytest.raises(RuntimeError, match="never return"):
        jax.block_until_ready(jax.jit(recv)(handle))
    # fewer rows are in flight than the compiled recv returns
    jax.block_until_ready(send(handle, jnp.zeros(2, int), jnp.array([0, 1])))
    with pytest.raises(RuntimeError, match="received 2 environments, expected 3"):
        jax.block_until_ready(recv(handle))
    assert env.num_in_flight == 0
    _, batch = jitted(handle, jnp.zeros(3, int))
    assert batch.obs.shape == (3, 4)
    for wrong in (jnp.zeros(2, int), jnp.zeros((3, 1), int), jnp.zeros(3)):
        with pytest.raises(SpecError, match="action has"):
            step(handle, wrong)


def test_an_environments_failure_ends_the_computation_alone() -> None:
    env = rollouts.make_vec("CartPole-v1", 4, seed=1)
    env.reset()
    handle, _, _, step = env.xla()
    jitted = jax.jit(step)
    env.engine.pool.set_state(2, struct.pack("4d", 0.0, float("nan"), 0.0, 0.0))
    with pytest.raises(RuntimeError, match="env_id 2: its state is not finite"):
        jax.block_until_ready(jitted(handle, jnp.zeros(4, int)))
    # nothing is left in flight, and what failed begins an episode
    assert env.num_in_flight == 0
    _, batch = jitted(handle, jnp.zeros(4, int))
    assert batch.episode_length.tolist() == [2, 2, 0, 2]


def test_a_closed_pool_is_an_error() -> None:
    pytest.importorskip("ale_py", reason="Atari games need ale-py")
    env = rollouts.make_vec("ALE/Pong-v5", 2, seed=1)
    env.reset()
    handle, _, _, step = env.xla()
    jitted = jax.jit(step)
    jax.block_until_ready(jitted(handle, jnp.zeros(2, int)))
    env.close()
    with pytest.raises(RuntimeError, match="closed"):
        jax.block_until_ready(jitted(handle, jnp.zeros(2, int)))


def test_a_handle_whose_environments_are_gone_is_refused() -> None:
    env = rollouts.make_vec("CartPole-v1", 2, seed=1)
    env.reset()
    handle, _, _, step = env.xla()
    compiled = jax.jit(step).lower(handle, jnp.zeros(2, int)).compile()
    jax.block_until_ready(compiled(handle, jnp.zeros(2, int)))
    del env, step
    jax.clear_caches()
    gc.collect()
    with pytest.raises(RuntimeError, match="gone"):
        jax.block_until_ready(compiled(handle, jnp.zeros(2, int)))


def test_closing_from_another_thread_ends_a_running_computation() -> None:
    env = rollouts.make_vec("CartPole-v1", 256, num_threads=2, seed=1)
    env.reset()
    handle, _, _, step = env.xla()

    def one(_: int, handle: Any) -> Any:
        return step(handle, jnp.zeros(256, int))[0]

    forever = jax.jit(lambda h: jax.lax.fori_loop(0, 10**9, one, h))
    failed = threading.Event()

    def run() -> None:
        try:
            jax.block_until_ready(forever(handle))
        except RuntimeError:
            failed.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    # it runs: the environments step
    begun = env.stats().env_steps
    while env.stats().env_steps == begun and thread.is_alive():
        thread.join(0.01)
    env.close()
    assert failed.wait(120)


def test_envpools_face_has_xla_too() -> None:
    env = envpool.make("CartPole-v1", env_type="gym", num_envs=4, seed=1)
    env.reset()
    handle, _, _, step = env.xla()

    @jax.jit
    def rollout(handle: Any) -> Any:
        for _ in range(3):
            handle, (obs, reward, done, info) = step(handle, jnp.zeros(4, int))
        return obs, reward, done, info

    obs, reward, done, info = rollout(handle)
    assert obs.shape == (4, 4) and reward.dtype == np.float32 and done.dtype == np.bool_
    assert info["elapsed_step"].tolist() == [3] * 4 and info["lives"].dtype == np.int32
    new = envpool.make("CartPole-v1", env_type="gymnasium", num_envs=4)
    new.reset()
    handle, _, _, step = new.xla()
    assert len(step(handle, jnp.zeros(4, int))[1]) == 5


def test_batches_become_jax_arrays_without_a_copy() -> None:
    env = rollouts.make_vec("CartPole-v1", 1024, seed=1)
    env.reset()
    env.send(np.zeros(1024, np.int32))
    batch = env.recv_batch()
    converted = adapter.to_jax(batch)
    np.testing.assert_array_equal(converted.obs, batch.obs)
    assert converted.env_id.tolist() == list(range(1024)) and converted.reward.dtype == np.float32
    address = converted.obs.unsafe_buffer_pointer()
    shared = address == batch.obs.ctypes.data
    # JAX shares what is aligned to its liking, which the pool's arrays are
    assert shared
    # as long as JAX has it, the pool does not write there
    before = np.array(converted.obs)
    del batch
    for _ in range(10):
        env.step(np.zeros(1024, np.int32))
    np.testing.assert_array_equal(converted.obs, before)


def test_another_route_is_refused() -> None:
    with pytest.raises(SpecError, match="route"):
        adapter.xla(rollouts.make_vec("CartPole-v1"), route="gpu")
