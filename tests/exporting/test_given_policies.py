# SPDX-License-Identifier: Apache-2.0
"""Policies that are exported: those of other libraries act as there, what has no file is told."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import rollouts
from rollouts import ExportedPolicy, SpecError
from rollouts.exporting import graph_files, writing
from rollouts.policies.native import Head

pytestmark = pytest.mark.system


class Linear(nn.Module):
    """A layer for actions and one for the value."""

    def __init__(self, inputs: int, outputs: int, *, is_box: bool = False) -> None:
        super().__init__()
        self.actor, self.critic = nn.Linear(inputs, outputs), nn.Linear(inputs, 1)
        self.log_std = nn.Parameter(torch.zeros(outputs)) if is_box else None

    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        obs = obs.float()
        std = () if self.log_std is None else (self.log_std,)
        return (self.actor(obs), *std, self.critic(obs)[:, 0])


def observations(env: Any, count: int = 64) -> np.ndarray:
    rng = np.random.default_rng(2)
    return rng.normal(size=(count, *env.single_observation_space.shape)).astype(np.float32)


def test_actions_of_sb3_are_clipped_as_sb3_clips_them(tmp_path: Path) -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    model = sb3.PPO("MlpPolicy", "Pendulum-v1", n_steps=8, batch_size=8, device="cpu", seed=1)
    with torch.no_grad():
        model.policy.action_net.weight.mul_(1000)
    with rollouts.make_vec("Pendulum-v1", 2) as env:
        obs = observations(env)
        for given in (model, model.policy):
            rollouts.export(given, tmp_path / "policy.pt2", env)
            found = ExportedPolicy(tmp_path / "policy.pt2").act(obs).action
            expected = model.predict(obs, deterministic=True)[0]
            assert np.abs(expected).max() == 2.0
            np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_vec_normalize_of_sb3_is_within_the_file(tmp_path: Path) -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    gymnasium = pytest.importorskip("gymnasium")
    scaled = VecNormalize(DummyVecEnv([lambda: gymnasium.make("Pendulum-v1")]), clip_obs=1.5)
    model = sb3.PPO("MlpPolicy", scaled, n_steps=64, batch_size=64, device="cpu", seed=1)
    model.learn(64)
    with rollouts.make_vec("Pendulum-v1", 2) as env:
        rollouts.export(model, tmp_path / "policy.pt2", env)
        obs = observations(env)
    expected = model.predict(scaled.normalize_obs(obs), deterministic=True)[0]
    found = ExportedPolicy(tmp_path / "policy.pt2").act(obs).action
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert not np.allclose(model.predict(obs, deterministic=True)[0], expected, atol=1e-3)
    scaled.close()


@pytest.mark.parametrize(
    ("id", "head"),
    [
        ("CartPole-v1", Head("epsilon_greedy", epsilon=0.3)),
        ("Pendulum-v1", Head("gaussian", damping=0.2)),
        ("Pendulum-v1", Head("gaussian", deterministic=True)),
    ],
)
def test_noise_is_refused_where_actions_are_drawn_otherwise(
    id: str, head: Head, tmp_path: Path
) -> None:
    with rollouts.make_vec(id, 2) as env:
        is_box = id == "Pendulum-v1"
        size = env.single_observation_space.shape[0]
        net = Linear(size, 1 if is_box else 2, is_box=is_box)
        policy = rollouts.NativePolicy.from_torch(net, env.single_action_space, size, head=head)
        with pytest.raises(SpecError, match="draws each action by itself"):
            rollouts.export(policy, tmp_path / "policy.pt", env, noise=True)
        rollouts.export(policy, tmp_path / "policy.pt", env)


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (lambda: Linear(4, 3), r"gives \(3,\) numbers for each observation, expected \(2,\)"),
        (lambda: Linear(5, 2), r"fails for the environment's observations \(B, 4\) of float32"),
    ],
)
def test_a_network_of_another_environment_is_told(
    network: Any, message: str, tmp_path: Path
) -> None:
    with rollouts.make_vec("CartPole-v1", 2) as env, pytest.raises(SpecError, match=message):
        rollouts.export(network(), tmp_path / "policy.pt", env)
    assert list(tmp_path.iterdir()) == []


def test_no_garbage_is_collected_while_torch_parses(tmp_path: Path) -> None:
    """Notes collections in torch's exporter: in Python 3.11 they may break a parse."""
    pytest.importorskip("onnxscript")
    collections: list[str] = []

    def note(phase: str, _: object) -> None:
        collections.append(phase)

    written = graph_files.to_onnx

    def write(*args: Any) -> bytes:
        gc.callbacks.append(note)
        try:
            return written(*args)
        finally:
            gc.callbacks.remove(note)

    with pytest.MonkeyPatch.context() as patched, rollouts.make_vec("CartPole-v1", 2) as env:
        patched.setitem(writing._WRITERS, ".onnx", (write, graph_files.from_onnx))
        rollouts.export(Linear(4, 2), tmp_path / "policy.onnx", env, num_compared=8)
    assert collections == []
    assert gc.isenabled()


def test_threads_export_at_once(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    failed: list[Exception] = []
    with rollouts.make_vec("CartPole-v1", 2) as env:
        policy = rollouts.TorchPolicy(Linear(4, 2).train(), env.single_action_space)

        def write(i: int) -> None:
            try:
                ending = (".onnx", ".pt2")[i % 2]
                rollouts.export(policy, tmp_path / f"{i}{ending}", env, num_compared=8)
            except Exception as error:
                failed.append(error)

        threads = [threading.Thread(target=write, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failed == []
    assert len(list(tmp_path.iterdir())) == 4
    assert all(layer.training for layer in policy.module.modules())


def test_bounds_alone_surround_a_network(tmp_path: Path) -> None:
    with rollouts.make_vec("Pendulum-v1", 2, clip_action=True) as env:
        net = Linear(3, 1, is_box=True)
        rollouts.export(net, tmp_path / "policy.pt2", env)
        obs = 10 * observations(env)
    with torch.no_grad():
        expected = net(torch.from_numpy(obs))[0].clamp(-2, 2).numpy()
    found = ExportedPolicy(tmp_path / "policy.pt2").act(obs).action
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"device": "cpu-emulation"}, {}),
        ({"pole_half_length": [0.4, 0.5, 0.6]}, {"pole_half_length": [0.4, 0.5, 0.6]}),
    ],
)
def test_any_pool_says_what_the_policy_acts_in(
    options: dict[str, Any], kept: dict[str, Any], tmp_path: Path
) -> None:
    with rollouts.make_vec("CartPole-v1", 3, **options) as env:
        about = rollouts.export(Linear(4, 2), tmp_path / "policy.pt", env, num_compared=8)
    assert about.env_options == kept
    with rollouts.make_vec(about.id, 3, **about.env_options) as env:
        assert ExportedPolicy(tmp_path / "policy.pt").act(env.reset()[0]).action.shape == (3,)


@pytest.mark.parametrize(
    ("stem", "prefix"), [("日本", "policy"), ("-a", "a"), ("3d", "policy_3d"), ("a b", "a_b")]
)
def test_names_in_c_are_of_plain_letters(stem: str, prefix: str, tmp_path: Path) -> None:
    with rollouts.make_vec("CartPole-v1", 2) as env:
        rollouts.export(Linear(4, 2), tmp_path / f"{stem}.h", env, num_compared=8)
    assert f"static inline void {prefix}_act(" in (tmp_path / f"{stem}.h").read_text()
