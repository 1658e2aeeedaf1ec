# SPDX-License-Identifier: Apache-2.0
"""Exported policies act as the policy: each kind of policy in each kind of file."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from exported_files import run_file, run_header
from own_envs import has_compiler, register_vault
from torch import Tensor, nn

import rollouts
from rollouts import ExportedPolicy, FileError, ProtocolError, SpecError
from rollouts.exporting.deployment import Deployment, Port, is_exported
from rollouts.policy import SquashedGaussianHead

pytestmark = pytest.mark.system

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

NUM_COMPARED = 1000


class Mlp(nn.Module):
    """Logits, or a mean and log_std, and a value."""

    def __init__(self, inputs: int, outputs: int, *, is_box: bool = False) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(inputs, 32), nn.Tanh(), nn.LayerNorm(32), nn.Linear(32, 24), nn.ELU()
        )
        self.actor, self.critic = nn.Linear(24, outputs), nn.Linear(24, 1)
        self.log_std = nn.Parameter(torch.full((outputs,), -0.5)) if is_box else None

    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        features = self.body(obs.float())
        value = self.critic(features)[:, 0]
        if self.log_std is None:
            return self.actor(features), value
        return self.actor(features), self.log_std, value


class Cnn(nn.Module):
    """A network for four frames of 84 x 84."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(4, 8, 8, 4), nn.ReLU(), nn.Conv2d(8, 8, 4, 2), nn.ReLU()
        )
        self.actor, self.critic = nn.Linear(648, outputs), nn.Linear(648, 1)

    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        features = self.body(obs / 255).flatten(1)
        return self.actor(features), self.critic(features)[:, 0]


class Places(nn.Module):
    """A network for the number of a place."""

    def __init__(self, places: int, outputs: int) -> None:
        super().__init__()
        self.body, self.actor, self.critic = (
            nn.Embedding(places, 8),
            nn.Linear(8, outputs),
            nn.Linear(8, 1),
        )

    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        features = self.body(obs.long())
        return self.actor(features), self.critic(features)[:, 0]


class Memory(nn.Module):
    """A GRU cell, whose start is learned."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.cell = nn.GRUCell(inputs, 12)
        self.actor, self.critic = nn.Linear(12, outputs), nn.Linear(12, 1)
        self.start = nn.Parameter(torch.linspace(-0.5, 0.5, 12))

    def initial_state(self) -> tuple[Tensor, ...]:
        return (self.start.detach(),)

    def forward(self, obs: Tensor, state: tuple[Tensor, ...]) -> tuple[Any, ...]:
        # `detach` matters for learning alone
        hidden = self.cell(obs, state[0].detach())
        return self.actor(hidden.detach()), self.critic(hidden)[:, 0], (hidden,)


@dataclass
class Kind:
    """A policy and the environment that it acts in."""

    id: str
    make: Callable[[Any], Any]  # takes the pool
    options: dict[str, Any] = field(default_factory=dict)
    export: dict[str, Any] = field(default_factory=dict)
    in_c: bool = True


def size_of(space: Any) -> int:
    return int(np.prod(space.shape))


def torch_policy(env: Any, *, is_box: bool = False, squashes: bool = False) -> rollouts.TorchPolicy:
    space = env.single_action_space
    outputs = (
        size_of(space) if is_box else int(np.sum(getattr(space, "nvec", getattr(space, "n", 0))))
    )
    net = Mlp(size_of(env.single_observation_space), outputs, is_box=is_box)
    policy = rollouts.TorchPolicy(net, space)
    if squashes:
        policy.head = SquashedGaussianHead.of(space)
    return policy


def sb3_policy(env: Any) -> Any:
    ppo = pytest.importorskip("stable_baselines3").PPO
    return ppo("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8, device="cpu", seed=1)


def taxi_policy(env: Any) -> rollouts.TorchPolicy:
    return rollouts.TorchPolicy(Places(500, 6), env.single_action_space)


def group_policy(env: Any) -> rollouts.TorchPolicy:
    return torch_policy(env.groups["tagger"])


SCALED = {"normalize_observation": True, "rescale_action": True, "clip_action": True}
KINDS = {
    "discrete": Kind("CartPole-v1", torch_policy),
    "multi_discrete": Kind("Vault-v0", torch_policy),
    "gaussian": Kind("Pendulum-v1", lambda env: torch_policy(env, is_box=True)),
    "tanh": Kind("Pendulum-v1", lambda env: torch_policy(env, is_box=True, squashes=True)),
    "masked": Kind("Taxi-v3", taxi_policy, export={"action_mask": True}),
    "recurrent": Kind(
        "CartPole-v1",
        lambda env: rollouts.RecurrentTorchPolicy(Memory(4, 2), env.single_action_space),
    ),
    "cnn": Kind(
        "ALE/Pong-v5",
        lambda env: rollouts.TorchPolicy(Cnn(6), env.single_action_space),
        export={"num_compared": 64},
        in_c=False,
    ),
    "normaliser": Kind("Pendulum-v1", lambda env: torch_policy(env, is_box=True), options=SCALED),
    "agents": Kind("TagGridWorld-v0", group_policy, export={"group": "tagger"}),
    "sb3": Kind("CartPole-v1", sb3_policy),
    "native": Kind(
        "CartPole-v1",
        lambda env: rollouts.NativePolicy.from_torch(Mlp(4, 2), env.single_action_space, 4),
    ),
}

ENDINGS = (".onnx", ".pt2", ".pt")
# a writer of ONNX takes two seconds: for the other kinds that file is compared in slow tests, and
# the other files always
TO_ONNX = {"discrete", "masked", "recurrent", "cnn", "normaliser"}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    one = KINDS[request.param]
    if one.id == "Vault-v0":
        if not has_compiler():
            pytest.skip("there is no compiler")
        register_vault()
    if one.id.startswith("ALE/"):
        pytest.importorskip("ale_py")
    torch.manual_seed(3)
    return one


def made(kind: Kind) -> tuple[Any, Any]:
    """A pool that has counted some observations, and a policy that acts in it."""
    env = rollouts.make_vec(kind.id, 4, seed=1, **kind.options)
    env.reset()
    for _ in range(20):
        env.step(env.action_space.sample())
    return env, kind.make(env)


def inputs_of(about: Any, kind: Kind, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Observations of random episodes other than those that `export` compares, and what else."""
    with rollouts.make_vec(kind.id, 8, seed=77, **about.env_options) as raw:
        group = kind.export.get("group")
        found: list[np.ndarray] = []
        raw.reset()
        while sum(map(len, found)) < NUM_COMPARED:
            obs = raw.step(raw.action_space.sample())[0]
            obs = obs if group is None else obs[group].reshape(-1, obs[group].shape[-1])
            found.append(np.array(obs))
    rows = {"obs": np.concatenate(found)[:NUM_COMPARED].astype(about.inputs[0].dtype)}
    for port in about.inputs[1:]:
        values: Any = rng.normal(size=(NUM_COMPARED, *port.shape)).astype(np.float32)
        if port.dtype == "bool":
            values = values > 0
            values[:, 0] = True
        rows[port.name] = values
    return rows


def slowly(policy: Any, env: Any, kind: Kind, rows: dict[str, np.ndarray]) -> np.ndarray:
    """The most likely action as the pool takes it, by the policy's own network and NumPy."""
    obs = rows["obs"]
    if kind.options.get("normalize_observation"):
        counted = env.observation_statistics
        obs = ((obs - counted.mean) / np.sqrt(counted.var + 1e-8)).astype(np.float32)
    if kind.id == "CartPole-v1" and hasattr(policy, "predict"):
        found: np.ndarray = policy.predict(obs, deterministic=True)[0]
        return found
    module = policy.reading.module if isinstance(policy, rollouts.NativePolicy) else policy.module
    states = [torch.from_numpy(rows[name]) for name in rows if name.startswith("state_")]
    with torch.no_grad():
        outputs = module(torch.from_numpy(obs), *([tuple(states)] if states else []))
    scores = outputs[0].numpy()
    if "action_mask" in rows:
        scores = np.where(rows["action_mask"], scores, -np.inf)
    space = (
        env.groups[kind.export["group"]] if "group" in kind.export else env
    ).single_action_space
    if hasattr(space, "nvec"):
        split = np.split(scores, np.cumsum(space.nvec)[:-1], 1)
        return np.stack([one.argmax(1) for one in split], 1)
    if hasattr(space, "n"):
        return scores.argmax(1) + int(space.start)
    if isinstance(policy.head, SquashedGaussianHead):
        scores = np.tanh(scores)
        return space.low + (scores + 1) / 2 * (space.high - space.low)
    if kind.options.get("rescale_action"):
        scores = np.clip(scores, -1, 1) * 2.0  # Pendulum's torque
    return scores


@pytest.mark.parametrize(
    ("kind", "ending"),
    [
        pytest.param(
            name,
            ending,
            marks=pytest.mark.slow if ending == ".onnx" and name not in TO_ONNX else (),
        )
        for ending in ENDINGS
        for name in KINDS
    ],
    indirect=["kind"],
)
def test_a_file_acts_as_the_policy(kind: Kind, ending: str, tmp_path: Path) -> None:
    env, policy = made(kind)
    with env:
        about = rollouts.export(policy, tmp_path / f"policy{ending}", env, **kind.export)
        rows = inputs_of(about, kind, np.random.default_rng(4))
        expected = slowly(policy, env, kind, rows)
    found = run_file(tmp_path / f"policy{ending}", rows)
    assert found[0].shape == expected.shape
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(found[0], expected, rtol=0, atol=2e-5)
    else:
        # rounding may choose otherwise between two that are as good
        assert (found[0] != expected).mean() <= 0.002
    assert about.outputs[0].name == "action"


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_a_header_acts_as_the_policy(kind: Kind, tmp_path: Path) -> None:
    env, policy = made(kind)
    with env:
        if not kind.in_c:
            with pytest.raises(SpecError, match="layer"):
                rollouts.export(policy, tmp_path / "policy.h", env, **kind.export)
            assert not (tmp_path / "policy.h").exists()
            return
        about = rollouts.export(policy, tmp_path / "policy.h", env, **kind.export)
        rows = inputs_of(about, kind, np.random.default_rng(4))
        expected = slowly(policy, env, kind, rows)
    found = run_header(tmp_path, rows, expected)
    if expected.dtype.kind != "f":
        assert (found != expected).mean() <= 0.002
    else:
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    "name",
    # what tanh squashes was drawn as in "gaussian"
    ["discrete", pytest.param("gaussian", marks=pytest.mark.slow), "tanh"],
)
def test_noise_draws_as_the_policy_does(name: str, tmp_path: Path) -> None:
    """Frequencies, or mean and deviation, of a hundred thousand draws for one observation."""
    kind, count = KINDS[name], 100_000
    env, policy = made(kind)
    with env:
        rollouts.export(policy, tmp_path / "policy.onnx", env, noise=True)
        obs = env.reset(seed=3)[0][:1].astype(np.float32)
    rows = np.repeat(obs, count, 0)
    theirs = policy.act(rows).action.astype(np.float64)
    ours = ExportedPolicy(tmp_path / "policy.onnx", seed=5).act(rows).action.astype(np.float64)
    assert ours.shape == theirs.shape and len(np.unique(ours)) > 1
    error = theirs.std() * np.sqrt(2 / count)
    assert abs(ours.mean() - theirs.mean()) < 5 * error
    assert abs(ours.std() - theirs.std()) < 5 * error


def test_an_exported_policy_remembers_each_environment(tmp_path: Path) -> None:
    kind = KINDS["recurrent"]
    env, policy = made(kind)
    with env:
        rollouts.export(policy, tmp_path / "policy.onnx", env)
        exported = ExportedPolicy(tmp_path / "policy.onnx")
        with pytest.raises(ProtocolError, match="act_rows"):
            exported.act(np.zeros((2, 4), np.float32))
        rng = np.random.default_rng(0)
        for _ in range(40):
            rows = rng.permutation(6)[: rng.integers(1, 7)]
            obs = rng.normal(size=(len(rows), 4)).astype(np.float32)
            begins = rng.random(len(rows)) < 0.2
            ours = exported.act_rows(obs, rows, begins)  # type: ignore[attr-defined]
            policy.act_rows(obs, rows, begins)
            np.testing.assert_allclose(
                exported.states(rows, begins & False)[0],  # type: ignore[attr-defined]
                policy.states(rows, begins & False)[0],
                atol=1e-5,
            )
            assert len(ours.action) == len(rows)


def test_a_module_stays_as_it_was(tmp_path: Path) -> None:
    env, policy = made(KINDS["discrete"])
    policy.module.body.train()
    policy.module.actor.eval()
    before = {name: value.clone() for name, value in policy.module.state_dict().items()}
    with env:
        for ending in (*ENDINGS, ".h"):
            rollouts.export(policy, tmp_path / f"policy{ending}", env)
    assert policy.module.body.training and not policy.module.actor.training
    assert all((before[k] == v).all() for k, v in policy.module.state_dict().items())
    # trains on, with gradients
    sum(x.sum() for x in policy.module(torch.zeros(2, 4))).backward()
    assert policy.module.actor.weight.grad is not None


class Undecided(Mlp):
    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        if obs.sum() > 0:
            return super().forward(obs)
        return super().forward(-obs)


class Random(Mlp):
    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        return super().forward(obs + torch.randn_like(obs))


@pytest.mark.parametrize(
    ("network", "ending", "message"),
    [
        (Undecided, ".onnx", "cannot export the network to .onnx"),
        (Undecided, ".pt2", "cannot export the network to .pt2"),
        (Random, ".onnx", "was not written"),
        (Random, ".pt", "was not written"),
    ],
)
def test_what_cannot_be_exported_is_refused_and_nothing_is_written(
    network: type[Mlp], ending: str, message: str, tmp_path: Path
) -> None:
    file = tmp_path / f"policy{ending}"
    file.write_bytes(b"before")
    with rollouts.make_vec("CartPole-v1", 2) as env:
        policy = rollouts.TorchPolicy(network(4, 2), env.single_action_space)
        with pytest.raises(SpecError, match=message):
            rollouts.export(policy, file, env)
    assert file.read_bytes() == b"before"
    assert [one.name for one in tmp_path.iterdir()] == [file.name]


def test_wrong_arguments_are_told(tmp_path: Path) -> None:
    with rollouts.make_vec("CartPole-v1", 2) as env:
        policy = torch_policy(env)
        with pytest.raises(SpecError, match=r"expected one that ends in .onnx, .pt2, .pt or .h"):
            rollouts.export(policy, tmp_path / "policy.txt", env)
        with pytest.raises(SpecError, match="acts deterministically"):
            rollouts.export(policy, tmp_path / "policy.h", env, noise=True)
        with pytest.raises(SpecError, match="expected a TorchPolicy"):
            rollouts.export("policy", tmp_path / "policy.pt2", env)
        with pytest.raises(SpecError, match=r"^path is <.*TorchPolicy.*>, expected one that ends"):
            rollouts.export(tmp_path / "policy.pt2", policy, env)
        with pytest.raises(SpecError, match=r"expected a pool of rollouts\.make_vec"):
            rollouts.export(policy, tmp_path / "policy.pt2", "CartPole-v1")
        with pytest.raises(SpecError, match="none, as there is one agent"):
            rollouts.export(policy, tmp_path / "policy.pt2", env, group="tagger")
        with pytest.raises(FileError, match="there is no folder"):
            rollouts.export(policy, tmp_path / "nowhere" / "policy.pt2", env)
    with rollouts.make_vec("Pendulum-v1", 2) as env:
        policy = torch_policy(env, is_box=True)
        with pytest.raises(SpecError, match="is for Discrete or MultiDiscrete"):
            rollouts.export(policy, tmp_path / "policy.pt2", env, action_mask=True)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module", params=ENDINGS)
def masked_file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported policy that takes masks."""
    torch.manual_seed(3)
    file: Path = tmp_path_factory.mktemp("masked") / f"policy{request.param}"
    env, policy = made(KINDS["discrete"])
    with env:
        rollouts.export(policy, file, env, action_mask=True)
    return file


def test_foreign_and_damaged_files_are_told(
    masked_file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ending = masked_file.suffix
    file = tmp_path / f"policy{ending}"
    with pytest.raises(FileError, match=r"cannot be read \(No such file.*\), expected a file of"):
        ExportedPolicy(file)
    file.write_bytes(b"something else" * 100)
    with pytest.raises(SpecError, match="export the policy again"):
        ExportedPolicy(file)
    # the error is all that is printed
    assert caplog.messages == []
    whole = masked_file.read_bytes()
    for part in (len(whole) // 2, len(whole) - 10):
        file.write_bytes(whole[:part])
        with pytest.raises(SpecError):
            ExportedPolicy(file)
    with pytest.raises(SpecError, match=r"ends in '\.h'"):
        ExportedPolicy(tmp_path / "policy.h")
    with pytest.raises(SpecError, match=r"path is 3, expected a file of rollouts\.export"):
        ExportedPolicy(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inputs": []}, "'obs'"),
        ({"outputs": [{"name": "action", "shape": [], "dtype": "x", "meaning": ""}]}, "'x'"),
        ({"initial_states": [[1.0]]}, "initial_states"),
        ({"id": None}, "id or env_options"),
        ({"version": 9, "later": 1}, "is of version 9, expected 1"),
    ],
)
def test_a_description_that_does_not_fit_is_told(change: dict[str, Any], message: str) -> None:
    port = {"name": "obs", "shape": [4], "dtype": "float32", "meaning": ""}
    whole = json.loads(Deployment("CartPole-v1", {}, "", (), (Port(**port),), ()).to_json())
    assert Deployment.from_json(json.dumps(whole), "here").id == "CartPole-v1"
    with pytest.raises(SpecError, match=message):
        Deployment.from_json(json.dumps({**whole, **change}), "here")
    with pytest.raises(SpecError, match="does not say what it is"):
        Deployment.from_json("[" * 100_000, "here")


def test_observations_and_masks_of_other_shapes_are_told(masked_file: Path) -> None:
    exported = ExportedPolicy(masked_file)
    for shape in ((2, 5), (4,), ()):
        with pytest.raises(SpecError, match=r"obs has shape .*, expected \(B, 4\): one row"):
            exported.act(np.zeros(shape, np.float32))
    with pytest.raises(SpecError, match=r"action_mask has shape \(2, 3\), expected \(2, 2\)"):
        exported.act(np.zeros((2, 4), np.float32), np.ones((2, 3), np.bool_))


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_told_at_once(
    make: Callable[[Path], None], ending: str, tmp_path: Path
) -> None:
    make(tmp_path / f"policy{ending}")
    with pytest.raises(FileError, match="is no regular file"):
        ExportedPolicy(tmp_path / f"policy{ending}")
    is_exported(tmp_path / f"policy{ending}")


def test_a_checkpoint_is_no_exported_policy(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(2)}, tmp_path / "checkpoint.pt")
    assert not is_exported(tmp_path / "checkpoint.pt")
    assert not is_exported(tmp_path / "missing.pt")
    assert not is_exported(tmp_path)
    env, policy = made(KINDS["discrete"])
    with env:
        rollouts.export(policy, tmp_path / "policy.pt", env)
    assert is_exported(tmp_path / "policy.pt")


def test_weights_that_do_not_act_stay_behind(tmp_path: Path) -> None:
    """The critic is half of a network, and no part of a policy."""
    env, policy = made(KINDS["discrete"])
    policy.module.critic = nn.Sequential(nn.Linear(24, 20_000), nn.Linear(20_000, 1))
    with env:
        for ending in (".onnx", ".h"):
            rollouts.export(policy, tmp_path / f"policy{ending}", env)
            assert (tmp_path / f"policy{ending}").stat().st_size < 200_000
