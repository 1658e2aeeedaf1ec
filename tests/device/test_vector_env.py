# SPDX-License-Identifier: Apache-2.0
"""A VectorEnv of a kernel: what it returns, keeps, refuses and counts."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import rollouts
from rollouts import ClosedError, EngineError, EnvError, ProtocolError, SpecError, VectorEnv
from rollouts.envs.kernel import device_arguments
from rollouts.envs.kernel.emulation import recording
from rollouts.machine import torch_device

pytestmark = pytest.mark.system

EMULATION = "cpu-emulation"


def make(env_id: str = "CartPole-v1", num_envs: int = 4, **kwargs: Any) -> VectorEnv[torch.Tensor]:
    env = rollouts.make_vec(env_id, num_envs, device=EMULATION, **{"seed": 1, **kwargs})
    assert isinstance(env, VectorEnv)
    return env


def test_a_batch_is_tensors_of_the_spaces() -> None:
    env = make()
    obs, info = env.reset()
    assert (obs.shape, obs.dtype) == ((4, 4), torch.float32)
    obs, reward, terminated, truncated, info = env.step(torch.tensor([0, 1, 0, 1]))
    assert env.observation_space.contains(obs.numpy())
    assert [one.dtype for one in (reward, terminated)] == [torch.float32, torch.bool]
    assert {*info} == {"env_id", "episode_return", "episode_length"}
    assert info["env_id"].tolist() == [0, 1, 2, 3]
    assert not truncated.any()


@pytest.mark.parametrize("dtype", ("float16", "bfloat16"))
@pytest.mark.parametrize("env_id", ("CartPole-v1", "Catch-v0"))
def test_observations_may_be_narrower(env_id: str, dtype: str) -> None:
    wide, narrow = make(env_id, 50), make(env_id, 50, obs_dtype=dtype)
    assert narrow.reset()[0].dtype == getattr(torch, dtype)
    wide.reset()
    actions = torch.zeros(50, dtype=torch.int64)
    for _ in range(30):
        assert torch.equal(narrow.step(actions)[0], wide.step(actions)[0].to(getattr(torch, dtype)))


def test_tensors_that_somebody_holds_stay_as_they_are() -> None:
    env = make()
    env.reset()
    actions = torch.tensor([0, 1, 0, 1])
    kept, views, copies = [], [], []
    for _ in range(5):
        obs, reward, *_ = env.step(actions)
        kept.append(reward)
        views.append(obs[1:3, ::2])  # a view of its memory, not the tensor itself
        copies.append((obs.clone(), reward.clone()))
        del obs, reward
    for _ in range(5):
        env.step(actions)
    for reward, view, (obs_then, reward_then) in zip(kept, views, copies, strict=True):
        assert torch.equal(reward, reward_then)
        assert torch.equal(view, obs_then[1:3, ::2])


@pytest.mark.parametrize("env_id", ("CartPole-v1", "Taxi-v3"))
def test_memory_is_used_again(env_id: str) -> None:
    env = make(env_id, autoreset_mode="same_step")
    env.reset()
    addresses = {env.step(torch.zeros(4, dtype=torch.int64))[0].data_ptr() for _ in range(50)}
    assert len(addresses) <= 2


@pytest.mark.parametrize("env_id", ("CartPole-v1", "TagContinuous-v0"))
def test_rows_of_captured_steps_are_nobody_elses(env_id: str) -> None:
    # a replay writes them, even while they are held
    env: Any = rollouts.make_vec(env_id, 4, device=EMULATION, seed=1)
    env.reset()
    actions = env.rollout(1, record=True)[4]["action"]
    actions = {name: one[0] for name, one in actions.items()} if env_id[0] == "T" else actions[0]

    def address() -> int:
        rewards = env.step(actions)[1]
        rewards = [*rewards.values()] if isinstance(rewards, dict) else [rewards]
        held.extend(rewards * is_held)
        return int(rewards[0].data_ptr())

    held: list[torch.Tensor] = []
    is_held = True
    with recording(lambda call: None):
        captured = {address() for _ in range(5)}
    assert len(captured) == 5
    is_held = False
    # what a graph needs beside what is held is one set for all its steps
    with recording(lambda call: None):
        assert len({address() for _ in range(5)} - captured) == 1
    later = {address() for _ in range(5)}
    env.reset(options={"tagging_distance": 0.5} if env_id[0] == "T" else {"gravity": 5.0})
    later |= {address() for _ in range(5)}
    assert not captured & later


def test_a_captured_step_launches_its_kernel_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    env = make()
    env.reset()
    actions = torch.tensor([0, 1, 0, 1])
    calls: list[Any] = []
    with recording(calls.append), monkeypatch.context() as patch:
        # zeros would be written again by each replay, tensor after tensor
        patch.setattr(torch, "zeros", None)
        for _ in range(20):
            env.step(actions)
    assert len(calls) == 20


def test_options_stay_where_they_are() -> None:
    env = make(gravity=[1.0, 2.0, 3.0, 4.0])
    env.reset()
    before = env.engine.steps.arrays._configs.data_ptr()
    env.reset(options={"gravity": 2.0, "reset_mask": np.array([True, False, False, True])})
    assert env.engine.steps.arrays._configs.data_ptr() == before


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (torch.zeros(4), r"torch.float32 \(4,\), expected torch.int64 or torch.int32 \(4,\)"),
        (torch.zeros(3, dtype=torch.int64), r"\(3,\), expected .* \(4,\)"),
        (torch.zeros((2, 4), dtype=torch.int64), "a row for 2 steps: rollout takes them"),
        (torch.zeros(4, dtype=torch.int64, device="meta"), "on meta, expected cpu"),
    ],
)
def test_wrong_actions_are_refused(actions: torch.Tensor, message: str) -> None:
    env = make()
    env.reset()
    with pytest.raises(SpecError, match=message):
        env.step(actions)


def test_a_model_is_none_of_these_environments() -> None:
    with pytest.raises(SpecError, match="CartPole-v1 has no model of MuJoCo's"):
        make(model={"body_mass": 1.0})


def test_an_action_that_is_none_is_told_at_the_next_wait() -> None:
    env = make(env_id_offset=10)
    env.reset()
    env.step(torch.tensor([0, 1, 2, -5]))
    with pytest.raises(EnvError, match="environment 12 got an action that is not in its space"):
        env.synchronize()
    env.synchronize()
    env.step(torch.tensor([0, 1, 0, 1], dtype=torch.int32))
    env.synchronize()


@pytest.mark.parametrize("mode", ("next_step", "same_step"))
def test_a_state_that_is_not_finite_ends_its_own_episode(mode: str) -> None:
    force = [10.0, 1e38, 10.0, 10.0]
    env = make(force_mag=force, mass_pole=[0.1, 1e-30, 0.1, 0.1], autoreset_mode=mode)
    env.reset()
    for _ in range(3):
        obs, reward, _, truncated, info = env.step(torch.zeros(4, dtype=torch.int64))
        if truncated.any():
            break
    assert truncated.tolist() == [False, True, False, False]
    assert reward[1] == 0
    assert (info["final_obs"] if mode == "same_step" else obs)[1].tolist() == [0, 0, 0, 0]
    with pytest.raises(EnvError, match="environment 1 its state was not finite"):
        env.get_state()
    # its next episode begins as after any end
    if mode == "next_step":
        obs, _, _, truncated, _ = env.step(torch.zeros(4, dtype=torch.int64))
    assert 0 < obs[1].abs().max() < 0.1


def test_without_autoreset_an_ended_episode_stays() -> None:
    env = make(max_episode_steps=1, autoreset_mode="disabled")
    env.reset()
    actions = torch.zeros(4, dtype=torch.int64)
    obs, _, _, truncated, _ = env.step(actions)
    assert truncated.all()
    assert torch.equal(env.step(actions)[0], obs)
    with pytest.raises(EnvError, match="environment 0 was stepped after its episode had ended"):
        env.synchronize()
    env.reset(options={"reset_mask": torch.tensor([True] * 4)})
    env.step(actions)
    env.synchronize()


def test_a_reset_that_raises_changes_nothing() -> None:
    env, other = make(), make()
    env.reset(), other.reset()
    env.step(torch.tensor([9, 0, 0, 0])), other.step(torch.tensor([0, 0, 0, 0]))
    with pytest.raises(EnvError, match="environment 0 got an action"):
        env.reset(seed=5, options={"gravity": 1.0})
    assert env.get_state() == other.get_state()
    with pytest.raises(ProtocolError, match="reset all environments before some"):
        make().reset(options={"reset_mask": np.ones(4, np.bool_)})


def test_what_is_returned_may_be_written_into() -> None:
    env, other = make(), make()
    for one in (env, other):
        one.reset()
    for _ in range(3):
        obs, reward, _, _, info = env.step(torch.zeros(4, dtype=torch.int64))
        for each in (obs, reward, info["env_id"], info["episode_return"]):
            each.fill_(7)
        other.step(torch.zeros(4, dtype=torch.int64))
    assert env.get_state() == other.get_state()


def test_a_nonsense_call_says_what_would_work() -> None:
    with pytest.raises(ProtocolError, match="call reset first"):
        make().step(torch.zeros(4, dtype=torch.int64))
    env = make()
    env.reset()
    with pytest.raises(SpecError, match=r"reset_mask is torch.int64 \(4,\), expected torch.bool"):
        env.reset(options={"reset_mask": [1, 0, 0, 1]})
    with pytest.raises(SpecError, match=r"unknown reset options .*gravitee"):
        env.reset(options={"gravitee": 1})
    with pytest.raises(SpecError, match="ids from 0 to 3, none twice"):
        env.get_state([4])
    with pytest.raises(SpecError, match="got 1 states for 4 environments"):
        env.set_state(None, env.get_state()[:1])
    with pytest.raises(ProtocolError, match="the other environments were never reset"):
        make().set_state([0], env.get_state([0]))
    with pytest.raises(SpecError, match="state 0 for environment 0"):
        env.set_state([0], make("Taxi-v3").reset() and [b"rollouts" * 20])
    with pytest.raises(SpecError, match="rows for 3 steps, expected 2"):
        env.rollout(2, torch.zeros((3, 4), dtype=torch.int64))
    env.close()
    env.close()
    with pytest.raises(ClosedError):
        env.step(torch.zeros(4, dtype=torch.int64))


@pytest.mark.parametrize(
    ("env_id", "arguments", "message"),
    [
        (
            "CartPole-v1",
            {"num_threads": 2, "batch_size": 1},
            "batch_size cannot be had of a pool on a device",
        ),
        (["CartPole-v1", "CartPole-v0"], {}, "environments are of one id"),
        ("CartPole-v1", {"obs_dtype": "float64"}, "obs_dtype must be one of"),
        ("Taxi-v3", {"obs_dtype": "float16"}, "observations are int64, which stay as they are"),
        ("CartPole-v1", {"gravitee": 1}, "gravitee"),
        ("CartPole-v1", {"device": "cpu"}, "the C.. pool steps on the CPU"),
        ("CartPole-v1", {"device": "gpu"}, "expected 'cuda', 'cuda:1' or 'cpu-emulation'"),
    ],
)
def test_what_no_gpu_steps_is_refused(env_id: Any, arguments: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        rollouts.make_vec(env_id, 2, **{"device": EMULATION, **arguments})


@pytest.mark.parametrize("read", (device_arguments.read_device, torch_device.read_device))
def test_a_card_that_is_not_there_is_refused(read: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(SpecError, match="'cuda:2', expected 'cuda:0' to 'cuda:1'"):
        read("cuda:2")
    read("cuda:1")


def test_what_is_of_the_cpu_says_so() -> None:
    env = make(autoreset_mode="same_step")
    env.reset()
    policy: Any = None
    with pytest.raises(SpecError, match="env is a CartPoleVectorEnv, expected one of make_vec"):
        rollouts.Collector(gymnasium.make_vec("CartPole-v1", 2), policy, 5)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="cannot draw: make one without device"):
        env.render()
    pytest.importorskip("pygame")
    cpu = rollouts.make_vec("CartPole-v1", 4)
    cpu.set_state(None, env.get_state())
    assert len(cpu.render()) == 4


def test_an_engine_of_the_cpu_is_refused() -> None:
    pytest.importorskip("mujoco")
    with pytest.raises(SpecError, match="hosts an engine of the CPU"):
        rollouts.make_vec("Ant-v4", 2, device=EMULATION)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_a_sentence_says_what_would_work() -> None:
    with pytest.raises(EngineError, match=r"needs an NVIDIA GPU.*leave device out for"):
        rollouts.make_vec("CartPole-v1", 2, device="cuda")


def test_pickles_are_arguments() -> None:
    env = make(gravity=[1.0, 2.0, 3.0, 4.0], autoreset_mode="same_step", obs_dtype="bfloat16")
    again = pickle.loads(pickle.dumps(env))
    assert torch.equal(again.reset()[0], env.reset()[0])
    assert repr(again) == repr(env)


def test_without_a_compiler_a_sentence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(EngineError, match=r"needs a C\+\+ compiler, and there is none on PATH"):
        make()


def test_kernels_are_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLOUTS_CACHE_DIR", str(tmp_path / "cache"))
    make()
    (library,) = (tmp_path / "cache").rglob("*.so")
    written = library.stat().st_mtime_ns
    make()
    assert [one.stat().st_mtime_ns for one in (tmp_path / "cache").rglob("*.so")] == [written]


def test_random_actions_are_uniform_and_a_function_of_their_seed() -> None:
    env, again = make("Acrobot-v1", 500), make("Acrobot-v1", 500)
    taken = []
    for one in (env, again):
        one.reset()
        taken.append(one.rollout(60, action_seed=4, record=True)[4]["action"])
    assert torch.equal(*taken)
    counts = np.bincount(taken[0].flatten(), minlength=3)
    expected = taken[0].numel() / 3
    # chi-square with two degrees of freedom, one in ten thousand
    assert ((counts - expected) ** 2 / expected).sum() < 18.4
    assert not torch.equal(env.rollout(60, action_seed=5, record=True)[4]["action"], taken[0])


BESIDE_A_CARD = """
import torch


def ask():
    raise AssertionError("this makes a context on the card, or fails in a forked process")


torch.cuda.is_available = lambda: True
torch.cuda.is_current_stream_capturing = ask
import rollouts

env = rollouts.make_vec("CartPole-v1", 2, device="cpu-emulation")
env.reset()
env.step(torch.zeros(2, dtype=torch.int64))
"""


def test_beside_a_card_emulation_asks_it_for_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", BESIDE_A_CARD], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
