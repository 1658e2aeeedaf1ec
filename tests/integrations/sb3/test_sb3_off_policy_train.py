# SPDX-License-Identifier: Apache-2.0
"""`train` of off-policy algorithms in native code: Stable-Baselines3's steps, to rounding."""

from __future__ import annotations

import copy
import pickle
from typing import Any, ClassVar

import cloudpickle
import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="needs stable-baselines3")

import torch
from rollouts.integrations.sb3 import (
    RolloutsDDPG,
    RolloutsDQN,
    RolloutsSAC,
    RolloutsTD3,
    RolloutsVecEnv,
)
from stable_baselines3 import DDPG, DQN, SAC, TD3
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import configure
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn

from rollouts.errors import SpecError

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("one_torch_thread")]

ALGORITHMS: dict[str, Any] = {
    "dqn": (RolloutsDQN, DQN),
    "sac": (RolloutsSAC, SAC),
    "td3": (RolloutsTD3, TD3),
    "ddpg": (RolloutsDDPG, DDPG),
}
# DDPG is a TD3 of one critic, whose code it shares; each of its steps is compared below
KINDS = [*("dqn", "sac", "td3"), pytest.param("ddpg", marks=pytest.mark.slow)]
ENVS = dict.fromkeys(ALGORITHMS, "Pendulum-v1") | {"dqn": "CartPole-v1"}


def model_of(kind: str, engine: str = "auto", **how: Any) -> Any:
    env = RolloutsVecEnv(how.pop("env_id", ENVS[kind]), 4, seed=3, num_threads=1)
    how = {"learning_starts": 32, "batch_size": 40, "buffer_size": 1000, **how}
    how.setdefault("policy_kwargs", {"net_arch": [24, 24]})
    algorithm = ALGORITHMS[kind][0]
    return algorithm("MlpPolicy", env, train_engine=engine, seed=7, device="cpu", **how)


def close(*models: Any) -> None:
    for model in models:
        model.get_env().close()


class Logs(BaseCallback):
    """Keeps what each update logged."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[dict[str, Any]] = []

    def _on_step(self) -> bool:
        values = self.model.logger.name_to_value
        self.rows.append({name: v for name, v in values.items() if name.startswith("train/")})
        return True


def updated(kind: str, engine: str, num_updates: int = 8, **how: Any) -> tuple[Any, Any]:
    """A model and its logs after updates on a replay of random actions, the same for each engine:
    actions that rounding decides would make other rows."""
    per_update = how.pop("per_update", 1)
    model = model_of(kind, "torch", **how)
    model.learning_starts = 10**6
    model.learn(200)
    model.train_engine = engine
    rows = []
    for _ in range(num_updates):
        model.train(per_update, model.batch_size)
        found = model.logger.name_to_value.items()
        rows.append({name: value for name, value in found if name.startswith("train/")})
        model.logger.name_to_value.clear()
        if kind == "dqn":
            model._on_step()
    assert model.learner_engine == engine, model.why_not_native_learner
    close(model)
    return model, rows


def assert_same(one: Any, other: Any, most: float = 1e-5) -> None:
    (native, ours), (plain, theirs) = one, other
    assert native._n_updates == plain._n_updates
    for (name, mine), its in zip(
        native.policy.named_parameters(), plain.policy.parameters(), strict=True
    ):
        torch.testing.assert_close(mine, its, rtol=0, atol=most, msg=name)
    for mine, its in zip(ours, theirs, strict=True):
        assert mine.keys() == its.keys()
        for name, value in its.items():
            assert mine[name] == pytest.approx(value, rel=1e-3, abs=1e-4), name
    if getattr(plain, "log_ent_coef", None) is not None:
        torch.testing.assert_close(native.log_ent_coef, plain.log_ent_coef, rtol=0, atol=most)


DQN_CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "norm": {"max_grad_norm": 0.05, "policy_kwargs": {"activation_fn": nn.Tanh}},
    "several": {"per_update": 3, "learning_rate": lambda left: 1e-3 * left},
    "steps": {"n_steps": 3},
    "target": {"target_update_interval": 8, "tau": 0.3},
    "optimiser": {"policy_kwargs": {"optimizer_class": torch.optim.RMSprop}},
}
SAC_CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "several": {"per_update": 4, "target_update_interval": 2, "tau": 0.05},
    "fixed": {"ent_coef": 0.1},
    "begun": {"ent_coef": "auto_0.3", "target_entropy": -2.0},
    "steps": {"n_steps": 3},
    "critics": {"policy_kwargs": {"n_critics": 3, "net_arch": {"pi": [16], "qf": [20, 20]}}},
    "shared": {"policy_kwargs": {"share_features_extractor": True, "net_arch": [16]}},
    "schedule": {"learning_rate": lambda left: 1e-3 * left},
}
TD3_CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "several": {"per_update": 5, "policy_delay": 3, "tau": 0.05},
    "noise": {"target_policy_noise": 0.6, "target_noise_clip": 0.2, "n_steps": 3},
    "critics": {"policy_kwargs": {"n_critics": 1, "net_arch": {"pi": [16], "qf": [20, 20]}}},
    "shared": {"policy_kwargs": {"share_features_extractor": True, "net_arch": [16]}},
}
CASES = [("dqn", name, how) for name, how in DQN_CASES.items()]
CASES += [("sac", name, how) for name, how in SAC_CASES.items()]
CASES += [("td3", name, how) for name, how in TD3_CASES.items()] + [("ddpg", "plain", {})]


@pytest.mark.parametrize(("kind", "name", "how"), CASES, ids=[f"{k}-{n}" for k, n, _ in CASES])
def test_steps_and_logs_are_those_of_torch(kind: str, name: str, how: dict[str, Any]) -> None:
    assert_same(*(updated(kind, engine, **how) for engine in ("native", "torch")))


def test_learn_trains_natively_and_draws_as_often_as_torch() -> None:
    for kind in ALGORITHMS:
        states = []
        for engine in ("auto", "torch"):
            model = model_of(kind, engine)
            model.learn(80, callback=Logs())
            states.append((torch.get_rng_state(), np.random.get_state()[1]))  # noqa: NPY002
            wanted = "native" if engine == "auto" else "torch"
            assert model.learner_engine == wanted, model.why_not_native_learner
            assert model._n_updates > 0
            close(model)
        assert torch.equal(states[0][0], states[1][0])
        assert np.array_equal(states[0][1], states[1][1])


@pytest.mark.parametrize("kind", KINDS)
def test_a_training_changes_sides_in_the_middle(kind: str) -> None:
    models = []
    for engine in ("native", "torch"):
        model, _ = updated(kind, engine, 3)
        for then in ("torch", "native"):
            model.train_engine = then
            model.train(2, 40)
        models.append(model)
    for mine, its in zip(models[0].policy.parameters(), models[1].policy.parameters(), strict=True):
        torch.testing.assert_close(mine, its, rtol=0, atol=2e-5)


@pytest.mark.parametrize("kind", ALGORITHMS)
def test_a_saved_training_goes_on_in_native_code(kind: str, tmp_path: Any) -> None:
    model, _ = updated(kind, "native", 3)
    model.save(tmp_path / "model.zip")
    ours, stock = ALGORITHMS[kind]
    loaded = [each.load(tmp_path / "model.zip", device="cpu") for each in (ours, stock)]
    for each in loaded:
        each.replay_buffer = model.replay_buffer
        each._logger = model.logger
        np.random.seed(1)  # noqa: NPY002 the replay's own draw
        torch.manual_seed(1)
        each.train(3, 40)
    assert loaded[0].learner_engine == "native"
    assert_same((loaded[0], []), (loaded[1], []))


class Encoder(BaseFeaturesExtractor):
    """Layers before the networks."""

    def __init__(self, space: Any) -> None:
        super().__init__(space, 8)
        self.layer = nn.Linear(space.shape[0], 8)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return self.layer(obs).relu()


class Blocked(Encoder):
    """An encoder that is not trained."""

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return super().forward(obs)


class Normalizing(Encoder):
    """An encoder that counts what it sees."""

    def __init__(self, space: Any) -> None:
        super().__init__(space)
        self.layer = nn.Sequential(self.layer, nn.BatchNorm1d(8))


@pytest.mark.parametrize("kind", KINDS)
def test_an_encoder_of_each_network_is_trained(kind: str) -> None:
    how = {"policy_kwargs": {"features_extractor_class": Encoder, "net_arch": [16]}}
    assert_same(*(updated(kind, engine, 4, **how) for engine in ("native", "torch")))


def extractor(kind: Any, **how: Any) -> dict[str, Any]:
    return {"policy_kwargs": {"features_extractor_class": kind, "net_arch": [16], **how}}


@pytest.mark.parametrize(
    ("kind", "how", "match"),
    [
        (
            "dqn",
            {"policy_kwargs": {"optimizer_class": torch.optim.Adagrad}},
            "optimiser is Adagrad",
        ),
        (
            "sac",
            {"policy_kwargs": {"optimizer_class": torch.optim.Adagrad}},
            "optimiser is Adagrad",
        ),
        ("sac", {"use_sde": True}, "use_sde"),
        (
            "td3",
            {"policy_kwargs": {"optimizer_class": torch.optim.Adagrad}},
            "optimiser is Adagrad",
        ),
        ("td3", extractor(Blocked), "autograd's gradient"),
        ("dqn", {"env_id": "Taxi-v3"}, "expected Box"),
        ("dqn", extractor(Blocked), "autograd's gradient"),
        ("sac", extractor(Blocked), "autograd's gradient"),
        ("td3", extractor(Encoder, share_features_extractor=True), "autograd's gradient"),
        ("dqn", extractor(Normalizing), "normalises by running means"),
        ("sac", extractor(Encoder, share_features_extractor=True), "takes as given"),
    ],
)
def test_what_native_code_does_not_train_stays_with_torch(
    kind: str, how: dict[str, Any], match: str
) -> None:
    model = model_of(kind, **how)
    model.learn(48)
    assert model.learner_engine == "torch" and match in model.why_not_native_learner
    model.train_engine = "native"
    with pytest.raises(SpecError, match=f"train_engine='native' is not possible: .*{match}"):
        model.train(1, 8)
    close(model)


class Seen(Blocked):
    """An encoder that notes of how many rows each batch is."""

    rows: ClassVar[list[int]] = []

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        self.rows.append(len(obs))
        return super().forward(obs)


def reads_of(model: Any, num_calls: int) -> list[int]:
    """Those calls of `train` in which other rows than a batch's were computed, from 1 on."""
    found = []
    for call in range(1, num_calls + 1):
        Seen.rows.clear()
        model.train(1, 40)
        if any(rows != 40 for rows in Seen.rows):
            found.append(call)
    assert model.learner_engine == "torch"
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_is_refused_is_read_ever_more_seldom(kind: str) -> None:
    model, _ = updated(kind, "torch", 1, **extractor(Seen))
    model.train_engine = "auto"
    assert reads_of(model, 20) == [1, 2, 4, 8, 16]
    # another setting is asked about at once
    for name, each in model.policy.named_parameters():
        if "features_extractor" in name:
            each.requires_grad_(False)
    model.train(1, 40)
    assert model.learner_engine == "native", model.why_not_native_learner


@pytest.mark.parametrize("kind", KINDS)
def test_no_model_of_another_optimiser_is_read(kind: str) -> None:
    how = extractor(Seen, optimizer_class=torch.optim.Adagrad)
    model, _ = updated(kind, "torch", 1, **how)
    model.train_engine = "auto"
    assert reads_of(model, 3) == []


class Running(Encoder):
    """An encoder with a running mean that is another tensor after each batch."""

    def __init__(self, space: Any) -> None:
        super().__init__(space)
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        y = super().forward(obs)
        if self.training:
            self.count = self.count + len(y)
            self.mean = self.mean + (y.detach() - self.mean).sum(0) / self.count
        return y - self.mean


class Written(Running):
    """The same in place."""

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        y = Encoder.forward(self, obs)
        if self.training:
            with torch.no_grad():
                self.count += len(y)
                self.mean += (y.detach() - self.mean).sum(0) / self.count
        return y - self.mean


class Counting(Running):
    """An encoder whose output has nothing of what it counts."""

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.count = self.count + len(obs)
        return Encoder.forward(self, obs)


class Annealed(Running):
    """An encoder by a schedule of its own."""

    def __init__(self, space: Any) -> None:
        super().__init__(space)
        self.num_calls = 0

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.num_calls += 1
        return Encoder.forward(self, obs) * (1 - 0.001 * self.num_calls)


class Instances(Encoder):
    """An encoder that normalises each row alone, and keeps running means."""

    def __init__(self, space: Any) -> None:
        super().__init__(space)
        self.norm = nn.InstanceNorm1d(1, track_running_stats=True)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return self.norm(super().forward(obs)[:, None])[:, 0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("encoder", [Running, Written, Counting, Annealed, Instances])
def test_what_forward_changes_is_that_of_torch(kind: str, encoder: Any) -> None:
    stock, _ = updated(kind, "torch", 6, **extractor(encoder))
    model, _ = updated(kind, "torch", 1, **extractor(encoder))
    model.train_engine = "auto"
    for _ in range(5):
        model.train(1, model.batch_size)
        if kind == "dqn":
            model._on_step()
    assert model.learner_engine == "torch"
    for (name, ours), theirs in zip(
        model.policy.state_dict().items(), stock.policy.state_dict().values(), strict=True
    ):
        assert torch.equal(ours, theirs), name
    calls = [getattr(each, "num_calls", 0) for each in model.policy.modules()]
    assert calls == [getattr(each, "num_calls", 0) for each in stock.policy.modules()]


def with_hook(model: Any) -> None:
    layer = model.q_net if isinstance(model, DQN) else model.critic
    layer.register_full_backward_hook(lambda *given: None)


def with_gradient_hook(model: Any) -> None:
    layer = model.q_net if isinstance(model, DQN) else model.actor
    next(layer.parameters()).register_hook(lambda grad: grad)


def with_forward_hook(model: Any) -> None:
    layer = model.q_net if isinstance(model, DQN) else model.critic_target
    layer.register_forward_hook(lambda *given: None)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", [with_hook, with_gradient_hook, with_forward_hook])
def test_a_hook_that_comes_later_stays_with_torch(kind: str, change: Any) -> None:
    model, _ = updated(kind, "native", 1)
    change(model)
    model.train_engine = "auto"
    model.train(1, 8)
    assert model.learner_engine == "torch" and "hooks" in model.why_not_native_learner


def test_a_gradient_left_on_the_target_counts_in_the_norm() -> None:
    model, _ = updated("dqn", "native", 1)
    weight = next(model.q_net_target.parameters())
    weight.grad = torch.ones_like(weight)
    model.train_engine = "auto"
    model.train(1, 8)
    assert "lacks has a gradient" in model.why_not_native_learner


@pytest.mark.parametrize("kind", KINDS)
def test_noise_does_not_depend_on_the_default_dtype(kind: str) -> None:
    found = []
    for engine in ("native", "torch"):
        model, _ = updated(kind, engine, 1)
        torch.set_default_dtype(torch.float64)
        try:
            model.train(4, 40)
        finally:
            torch.set_default_dtype(torch.float32)
        assert model.learner_engine == engine
        found.append((torch.get_rng_state(), [*model.policy.parameters()]))
    (one, ours), (other, theirs) = found
    assert torch.equal(one, other)
    for mine, its in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, its, rtol=0, atol=1e-5)


def test_an_actor_with_a_density_of_its_own_stays_with_torch() -> None:
    model, _ = updated("sac", "native", 1)
    own = model.actor.action_log_prob
    model.actor.action_log_prob = lambda obs: own(obs)
    model.train_engine = "auto"
    model.train(1, 8)
    assert "its own action_log_prob" in model.why_not_native_learner


def test_an_actor_whose_distribution_draws_otherwise_stays_with_torch() -> None:
    model, _ = updated("sac", "native", 1)
    dist, calls = model.actor.action_dist, []
    own = dist.actions_from_params
    dist.actions_from_params = lambda *given, **how: (calls.append(1), own(*given, **how))[1]
    model.train_engine = "auto"
    model.train(1, 8)
    assert calls and "distribution was replaced" in model.why_not_native_learner


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda it: pickle.loads(cloudpickle.dumps(it))])
def test_a_model_that_was_trained_is_copied_with_networks_of_its_own(
    kind: str, copied: Any
) -> None:
    model, _ = updated(kind, "native", 2)
    model.env = model._logger = None
    other = copied(model)
    other.set_logger(configure(None, []))
    before = [each.detach().clone() for each in model.policy.parameters()]
    other.train(4, 40)
    assert other.learner_engine == "native", other.why_not_native_learner
    assert all(map(torch.equal, before, model.policy.parameters()))
    assert not all(map(torch.equal, before, other.policy.parameters()))


@pytest.mark.parametrize("kind", KINDS)
def test_networks_and_optimisers_put_in_place_later_are_trained(kind: str) -> None:
    models = []
    for engine in ("native", "torch"):
        model, _ = updated(kind, engine, 2)
        torch.manual_seed(5)
        holder = model.policy if kind == "dqn" else model.critic
        net = model.q_net if kind == "dqn" else model.critic
        first = net.q_net[0] if kind == "dqn" else net.qf0[0]
        with torch.no_grad():
            first.weight = nn.Parameter(first.weight + 0.01)
        holder.optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
        model.train(3, 40)
        assert model.learner_engine == engine, model.why_not_native_learner
        models.append(model)
    assert_same((models[0], []), (models[1], []))


@pytest.mark.parametrize("kind", ALGORITHMS)
def test_another_base_s_train_is_called(kind: str) -> None:
    calls = []
    ours, stock = ALGORITHMS[kind]

    class Mine(stock):  # type: ignore[misc, valid-type]
        def train(self, gradient_steps: int, batch_size: int = 100) -> None:
            calls.append(gradient_steps)
            super().train(gradient_steps, batch_size)

    class Both(ours, Mine):  # type: ignore[misc, valid-type]
        pass

    env = RolloutsVecEnv(ENVS[kind], 4, seed=3)
    model = Both("MlpPolicy", env, learning_starts=8, batch_size=8, device="cpu").learn(24)
    assert calls and "own train" in model.why_not_native_learner
    close(model)


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_that_are_frozen_stay(kind: str) -> None:
    model, _ = updated(kind, "native", 1)
    net = model.q_net if kind == "dqn" else model.critic
    frozen = next(net.parameters())
    frozen.requires_grad_(False)
    before = frozen.clone()
    model.train(2, 40)
    assert model.learner_engine == "native" and torch.equal(frozen, before)


@pytest.mark.parametrize("kind", KINDS)
def test_rewards_that_are_not_finite_are_refused_before_a_weight_is_written(kind: str) -> None:
    model, _ = updated(kind, "native", 1)
    before = [each.detach().clone() for each in model.policy.parameters()]
    model.replay_buffer.rewards[:] = np.nan
    with pytest.raises(SpecError, match="gives a loss that is nan"):
        model.train(1, 40)
    assert all(map(torch.equal, before, model.policy.parameters()))


@pytest.mark.parametrize("kind", ALGORITHMS)
def test_the_default_batch_is_the_algorithm_s_own(kind: str) -> None:
    model, _ = updated(kind, "native", 1)
    sizes, sample = [], model.replay_buffer.sample

    def noted(batch_size: int, env: Any = None) -> Any:
        sizes.append(batch_size)
        return sample(batch_size, env=env)

    model.replay_buffer.sample = noted
    for engine in ("native", "torch"):
        model.train_engine = engine
        model.train(1)
    assert sizes[0] == sizes[1]
