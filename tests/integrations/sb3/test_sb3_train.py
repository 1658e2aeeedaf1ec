# SPDX-License-Identifier: Apache-2.0
"""`train` of RolloutsPPO and RolloutsA2C in native code: Stable-Baselines3's steps, to rounding."""

from __future__ import annotations

import copy
import pickle
from typing import Any, ClassVar

import cloudpickle
import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="needs stable-baselines3")

import torch
from rollouts.integrations.sb3 import RolloutsA2C, RolloutsPPO, RolloutsVecEnv
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import configure
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn

from rollouts.errors import SpecError

pytestmark = pytest.mark.system

TF = {"optimizer_class": RMSpropTFLike, "optimizer_kwargs": {"alpha": 0.9, "eps": 1e-5}}
DECAY = {"optimizer_class": torch.optim.RMSprop, "optimizer_kwargs": {"weight_decay": 0.1}}

CENTERED = {"optimizer_class": torch.optim.RMSprop, "optimizer_kwargs": {"centered": True}}


class Logs(BaseCallback):
    """Keeps what each update logged."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[dict[str, Any]] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        self._keep()

    def _on_training_end(self) -> None:
        self._keep()

    def _keep(self) -> None:
        values = self.model.logger.name_to_value
        found = {name: value for name, value in values.items() if name.startswith("train/")}
        if found:
            self.rows.append(found)


def learn(engine: str, env_id: str = "CartPole-v1", updates: int = 3, **how: Any) -> Any:
    how = {"batch_size": 24, "n_epochs": 3, **how}
    return learnt(RolloutsPPO, engine, env_id, updates, **how)


def learnt(algorithm: Any, engine: str, env_id: str, updates: int, **how: Any) -> Any:
    env = RolloutsVecEnv(env_id, 4, seed=3, num_threads=1)
    how = {"n_steps": 32, "seed": 7, "device": "cpu", **how}
    model = algorithm("MlpPolicy", env, train_engine=engine, rollout_engine="torch", **how)
    logs = Logs()
    model.learn(updates * 4 * model.n_steps, callback=logs)
    assert model.learner_engine == engine, model.why_not_native_learner
    return model, logs.rows


@pytest.mark.parametrize(
    ("env_id", "how"),
    [
        ("CartPole-v1", {}),
        ("Pendulum-v1", {"max_grad_norm": 0.01, "ent_coef": 0.01}),
        ("CartPole-v1", {"clip_range_vf": 0.05, "normalize_advantage": False}),
        ("CartPole-v1", {"target_kl": 1e-3, "learning_rate": 3e-3}),
        ("Acrobot-v1", {"policy_kwargs": {"activation_fn": nn.ReLU, "net_arch": [20, 33]}}),
        ("FrozenLake-v1", {"policy_kwargs": {"optimizer_class": torch.optim.AdamW}}),
        (
            "Taxi-v3",
            {
                "learning_rate": lambda left: 1e-3 * left,
                "clip_range": lambda left: 0.1 + 0.1 * left,
                # with 0 the first minibatch would hang on the last bit of each value
                "clip_range_vf": lambda left: 0.1 + 0.2 * left,
            },
        ),
    ],
    ids=["plain", "gaussian", "value-clip", "target-kl", "relu", "adamw", "schedules"],
)
def test_steps_and_logs_are_those_of_torch(env_id: str, how: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    assert_same_training(learn("native", env_id, **how), learn("torch", env_id, **how))


def assert_same_training(one: Any, other: Any) -> None:
    (native, ours), (plain, theirs) = one, other
    assert native._n_updates == plain._n_updates
    for (name, mine), its in zip(
        native.policy.named_parameters(), plain.policy.parameters(), strict=True
    ):
        torch.testing.assert_close(mine, its, rtol=0, atol=2e-5, msg=name)
    assert len(ours) == len(theirs) == 3
    for mine, its in zip(ours, theirs, strict=True):
        assert mine.keys() == its.keys()
        for name, value in its.items():
            assert mine[name] == pytest.approx(value, rel=2e-3, abs=2e-4), name
    mine, its = native.policy.optimizer.state_dict(), plain.policy.optimizer.state_dict()
    assert mine["param_groups"] == its["param_groups"]
    assert mine["state"].keys() == its["state"].keys()
    for place, kept in its["state"].items():
        for name, value in kept.items():
            found = torch.as_tensor(mine["state"][place][name])
            value = torch.as_tensor(value)
            most = 1e-3 * value.abs().max().item()
            torch.testing.assert_close(found, value, rtol=1e-2, atol=most, msg=name)


@pytest.mark.parametrize(
    ("env_id", "how"),
    [
        ("CartPole-v1", {}),
        ("Pendulum-v1", {"ent_coef": 0.01, "max_grad_norm": 0.01}),
        ("CartPole-v1", {"normalize_advantage": True, "use_rms_prop": False}),
        ("Taxi-v3", {"learning_rate": lambda left: 1e-3 * left}),
        ("CartPole-v1", {"policy_kwargs": TF}),
        ("CartPole-v1", {"policy_kwargs": DECAY}),
    ],
    ids=["plain", "gaussian", "adam", "schedule", "tensorflow", "decay"],
)
def test_steps_and_logs_of_a2c_are_those_of_torch(env_id: str, how: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    how = {"n_steps": 8, **how}
    runs = [learnt(RolloutsA2C, engine, env_id, 3, **how) for engine in ("native", "torch")]
    assert_same_training(*runs)


def test_a_training_changes_sides_in_the_middle() -> None:
    torch.set_num_threads(1)
    models = []
    for engine in ("native", "torch"):
        model, _ = learn(engine)
        model.train_engine = "torch"
        model.learn(4 * 32)
        model.train_engine = "native"
        model.learn(4 * 32)
        models.append(model)
    for mine, its in zip(models[0].policy.parameters(), models[1].policy.parameters(), strict=True):
        torch.testing.assert_close(mine, its, rtol=0, atol=5e-5)


def with_hook() -> Any:
    model, _ = learn("native", updates=1)
    model.policy.action_net.register_forward_hook(lambda *given: None)
    return model


@pytest.mark.parametrize(
    ("how", "match"),
    [
        ({"policy_kwargs": {"optimizer_class": torch.optim.Adagrad}}, "is Adagrad"),
        ({"policy_kwargs": CENTERED}, "centered=True"),
        ({"policy_kwargs": {"optimizer_kwargs": {"amsgrad": True}}}, "amsgrad"),
        ({"use_sde": True, "env_id": "Pendulum-v1"}, "use_sde"),
    ],
)
def test_what_native_code_does_not_train_stays_with_torch(how: dict[str, Any], match: str) -> None:
    with pytest.raises(SpecError, match=f"train_engine='native' is not possible: .*{match}"):
        learn("native", **how)
    env = RolloutsVecEnv(how.pop("env_id", "CartPole-v1"), 4, seed=3)
    model = RolloutsPPO("MlpPolicy", env, n_steps=8, batch_size=32, device="cpu", **how).learn(32)
    assert model.learner_engine == "torch" and match in model.why_not_native_learner


def test_a_norm_that_is_none_is_refused_by_the_library() -> None:
    env = RolloutsVecEnv("CartPole-v1", 4, seed=3)
    model = RolloutsPPO("MlpPolicy", env, n_steps=8, batch_size=32, device="cpu")
    model.max_grad_norm = None
    with pytest.raises(TypeError):
        model.learn(32)
    assert "max_grad_norm" in model.why_not_native_learner


def test_a_hook_that_comes_later_stays_with_torch() -> None:
    model = with_hook()
    model.train_engine = "auto"
    model.learn(4 * 32)
    assert model.learner_engine == "torch" and "hooks" in model.why_not_native_learner


class Pretrained(BaseFeaturesExtractor):
    """An encoder that is not trained."""

    def __init__(self, space: Any) -> None:
        super().__init__(space, 8)
        self.encoder = nn.Linear(4, 8)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return self.encoder(obs)


def in_place_of_the_policys(model: Any) -> None:
    evaluate = model.policy.evaluate_actions
    model.policy.evaluate_actions = lambda obs, actions: evaluate(obs, actions)


def held_in_part(model: Any) -> None:
    model.policy.optimizer = torch.optim.Adam(model.policy.action_net.parameters())


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (in_place_of_the_policys, "has its own evaluate_actions"),
        (held_in_part, "the optimiser lacks a parameter of the policy"),
        (
            lambda model: model.policy.value_net.weight.register_hook(lambda grad: grad),
            "a parameter has hooks",
        ),
    ],
    ids=["evaluate_actions", "optimiser", "hook"],
)
def test_what_is_put_in_place_later_is_called(change: Any, match: str) -> None:
    model, _ = learn("native", updates=1)
    change(model)
    model.train_engine = "auto"
    model.learn(4 * 32)
    assert model.learner_engine == "torch" and match in model.why_not_native_learner


def test_a_gradient_left_on_a_frozen_parameter_counts_in_the_norm() -> None:
    model, _ = learn("native", updates=1)
    weight, *others = model.policy.parameters()
    model.policy.optimizer = torch.optim.Adam(others)
    weight.requires_grad_(False)
    model.train_engine = "auto"
    model.train()
    assert model.learner_engine == "native", model.why_not_native_learner
    weight.grad = torch.ones_like(weight)
    model.train()
    assert "lacks has a gradient" in model.why_not_native_learner
    model.get_env().close()


def test_an_encoder_without_gradients_stays() -> None:
    env = RolloutsVecEnv("CartPole-v1", 4, seed=3)
    policy = {"features_extractor_class": Pretrained}
    model = RolloutsPPO(
        "MlpPolicy", env, n_steps=8, batch_size=32, device="cpu", policy_kwargs=policy
    )
    encoder = model.policy.features_extractor.encoder
    before = encoder.weight.clone()
    model.learn(64)
    assert model.learner_engine == "torch" and torch.equal(before, encoder.weight)


def test_another_base_s_train_is_called() -> None:
    calls = []

    class Mine(PPO):
        def train(self) -> None:
            calls.append(self.n_steps)
            super().train()

    class Both(RolloutsPPO, Mine):
        pass

    env = RolloutsVecEnv("CartPole-v1", 4, seed=3)
    model = Both("MlpPolicy", env, n_steps=8, batch_size=32, device="cpu").learn(64)
    assert calls == [8, 8] and "own train" in model.why_not_native_learner


def test_numbers_that_are_not_finite_are_refused_before_a_weight_is_written() -> None:
    model, _ = learn("native", updates=1)
    before = [each.detach().clone() for each in model.policy.parameters()]
    model.rollout_buffer.advantages[5] = np.nan
    with pytest.raises(SpecError, match="minibatch 0 gives a policy loss that is nan"):
        model.train()
    assert all(map(torch.equal, before, model.policy.parameters()))


def test_parameters_that_are_frozen_stay() -> None:
    env = RolloutsVecEnv("CartPole-v1", 4, seed=3)
    model = RolloutsPPO("MlpPolicy", env, n_steps=8, batch_size=32, device="cpu")
    frozen = model.policy.mlp_extractor.policy_net[0].weight
    frozen.requires_grad_(False)
    before = frozen.clone()
    model.learn(64)
    assert model.learner_engine == "native" and torch.equal(frozen, before)
    assert frozen not in model.policy.optimizer.state


def test_a_saved_training_goes_on_in_native_code(tmp_path: Any) -> None:
    torch.set_num_threads(1)
    model, _ = learn("native", updates=2)
    model.save(tmp_path / "model.zip")
    env = RolloutsVecEnv("CartPole-v1", 4, seed=3, num_threads=1)
    stock = PPO.load(tmp_path / "model.zip", env=env)
    loaded = RolloutsPPO.load(tmp_path / "model.zip", env=env)
    for mine, its in zip(stock.policy.parameters(), model.policy.parameters(), strict=True):
        assert torch.equal(mine, its)
    loaded.rollout_buffer = stock.rollout_buffer = model.rollout_buffer
    for each in (stock, loaded):
        each._setup_learn(0, None)
        np.random.seed(1)  # noqa: NPY002 the buffer's own draw
        each.train()
    assert loaded.learner_engine == "native"
    for mine, its in zip(loaded.policy.parameters(), stock.policy.parameters(), strict=True):
        torch.testing.assert_close(mine, its, rtol=0, atol=2e-5)
        step = stock.policy.optimizer.state[its]["step"]
        assert loaded.policy.optimizer.state[mine]["step"] == step > 0


def test_weights_set_from_elsewhere_are_trained_on() -> None:
    torch.set_num_threads(1)
    native, _ = learn("native")
    plain, _ = learn("torch")
    # an optimiser that loads state keeps the very tensors
    given = copy.deepcopy(plain.get_parameters())
    for each in (native, plain):
        each.set_parameters(copy.deepcopy(given))
        each.rollout_buffer = plain.rollout_buffer
        np.random.seed(1)  # noqa: NPY002 the buffer's own draw
        each.train()
    for mine, its in zip(native.policy.parameters(), plain.policy.parameters(), strict=True):
        torch.testing.assert_close(mine, its, rtol=0, atol=2e-5)


def test_an_early_stop_is_told_as_the_library_tells_it(capsys: pytest.CaptureFixture[str]) -> None:
    told = []
    for engine in ("native", "torch"):
        learn(engine, target_kl=1e-3, learning_rate=3e-3, verbose=1)
        lines = capsys.readouterr().out.splitlines()
        told.append([line for line in lines if line.startswith("Early stopping")])
    assert told[0] == told[1] != []


class WithDropout(nn.Module):
    """Networks that draw while they train."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.latent_dim_pi = self.latent_dim_vf = 8
        self.layers = nn.Sequential(nn.Linear(features, 8), nn.Dropout(0.5))

    def forward(self, features: torch.Tensor) -> Any:
        return self.layers(features), self.layers(features)

    def forward_actor(self, features: torch.Tensor) -> torch.Tensor:
        return self.layers(features)

    def forward_critic(self, features: torch.Tensor) -> torch.Tensor:
        return self.layers(features)


class DropoutPolicy(ActorCriticPolicy):
    def _build_mlp_extractor(self) -> None:
        self.mlp_extractor: Any = WithDropout(self.features_dim)


def test_dropout_stays_with_torch() -> None:
    env = RolloutsVecEnv("CartPole-v1", 4, seed=3)
    model = RolloutsPPO(DropoutPolicy, env, n_steps=8, batch_size=32, device="cpu").learn(32)
    assert model.learner_engine == "torch" and "ropout" in model.why_not_native_learner
    env.close()


def test_a_model_that_was_trained_is_copied_with_a_policy_of_its_own() -> None:
    model, _ = learn("native", updates=1)
    # a rollout in native code, too
    model.rollout_engine = "native"
    model.learn(4 * 32)
    model.get_env().close()
    model.env = model._logger = None
    for other in (copy.deepcopy(model), pickle.loads(cloudpickle.dumps(model))):
        before = [each.detach().clone() for each in model.policy.parameters()]
        other.set_logger(configure(None, []))
        other.train()
        assert other.learner_engine == "native", other.why_not_native_learner
        assert all(map(torch.equal, before, model.policy.parameters()))
        assert not all(map(torch.equal, before, other.policy.parameters()))


class Seen(BaseFeaturesExtractor):
    """An encoder without gradients, which notes of how many rows each batch is."""

    rows: ClassVar[list[int]] = []

    def __init__(self, space: Any) -> None:
        super().__init__(space, 8)
        self.layer = nn.Linear(space.shape[0], 8)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        self.rows.append(len(obs))
        with torch.no_grad():
            return self.layer(obs)


@pytest.mark.parametrize("algorithm", [RolloutsPPO, RolloutsA2C])
def test_a_policy_that_is_refused_is_read_ever_more_seldom(algorithm: Any) -> None:
    how = {"batch_size": 32, "n_epochs": 1} if algorithm is RolloutsPPO else {}
    kept = {"policy_kwargs": {"features_extractor_class": Seen}}
    model, _ = learnt(algorithm, "torch", "CartPole-v1", 1, **how, **kept)
    model.get_env().close()
    model.train_engine = "auto"
    found = []
    for call in range(1, 13):
        Seen.rows.clear()
        model.train()
        if any(rows not in (32, 128) for rows in Seen.rows):
            found.append(call)
    assert model.learner_engine == "torch"
    assert found == [1, 2, 4, 8]
    # a torch optimiser that native code does not have
    model.policy.optimizer = torch.optim.Adagrad(model.policy.parameters(), lr=1e-3)
    Seen.rows.clear()
    model.train()
    assert {*Seen.rows} <= {32, 128} and "Adagrad" in model.why_not_native_learner
    # an encoder that is not to be trained is read at once
    model.policy.optimizer = torch.optim.Adam(model.policy.parameters(), lr=1e-3)
    model.policy.features_extractor.requires_grad_(False)
    model.train()
    assert model.learner_engine == "native", model.why_not_native_learner


class Running(Seen):
    """An encoder with a running mean that is another tensor after each batch."""

    def __init__(self, space: Any) -> None:
        super().__init__(space)
        self.register_buffer("mean", torch.zeros(8))
        self.norm = nn.BatchNorm1d(8)
        self.num_calls = 0

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        y = self.layer(obs)
        if self.training:
            self.num_calls += 1
            self.mean = self.mean + 0.1 * (y.detach().mean(0) - self.mean)
        return self.norm(y - self.mean)


class Counting(Running):
    """An encoder whose output has nothing of what it counts."""

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        self.num_calls += self.training
        return self.layer(obs)


@pytest.mark.parametrize("encoder", [Running, Counting])
@pytest.mark.parametrize("algorithm", [RolloutsPPO, RolloutsA2C])
def test_what_forward_changes_is_that_of_torch(algorithm: Any, encoder: Any) -> None:
    found = []
    for engine in ("auto", "torch"):
        how = {"batch_size": 32, "n_epochs": 1} if algorithm is RolloutsPPO else {}
        kept = {"policy_kwargs": {"features_extractor_class": encoder}}
        model, _ = learnt(algorithm, "torch", "CartPole-v1", 1, **how, **kept)
        model.get_env().close()
        model.train_engine = engine
        for _ in range(3):
            model.train()
        assert model.learner_engine == "torch"
        found.append(model.policy)
    one, other = found
    for ours, theirs in zip(one.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs)
    assert one.features_extractor.num_calls == other.features_extractor.num_calls > 0
