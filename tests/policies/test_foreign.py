# SPDX-License-Identifier: Apache-2.0
"""Networks of Stable-Baselines3, RLlib, CleanRL, Tianshou and TorchRL, read as programs."""

from __future__ import annotations

import dataclasses
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

torch = pytest.importorskip("torch")

from program_checks import assert_same_answers, new_weights  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.distributions import Categorical  # noqa: E402
from torch.distributions.normal import Normal  # noqa: E402

from rollouts.errors import SpecError  # noqa: E402
from rollouts.policies import foreign  # noqa: E402
from rollouts.policies.program import Program  # noqa: E402
from rollouts.policies.trace import random_rows, trace  # noqa: E402

BOX = spaces.Box(-np.inf, np.inf, (5,), np.float32)
WIDE = spaces.Box(-np.inf, np.inf, (2, 3), np.float64)
TWO, GAUSSIAN = spaces.Discrete(2), spaces.Box(-1, 1, (3,), np.float32)


def checked(original: nn.Module, reader: nn.Module, space: gymnasium.Space[Any]) -> Program:
    """The program; it answers as the reader does, too, after the original's weights changed."""
    program = trace(reader, space)
    assert_same_answers(program, reader, space)
    new_weights(original)
    assert_same_answers(program, reader, space)
    return program


def observed(space: gymnasium.Space[Any]) -> Tensor:
    return torch.from_numpy(random_rows(space, 4, np.random.default_rng(3)))


def kinds(program: Program) -> set[str]:
    return {op.kind for op in program.ops}


def sb3_policy(space: Any, action_space: Any, **kwargs: Any) -> Any:
    policies = pytest.importorskip("stable_baselines3.common.policies")
    return policies.ActorCriticPolicy(space, action_space, lambda _: 1e-3, **kwargs)


@pytest.mark.parametrize(
    ("space", "kwargs"),
    [
        (BOX, {}),
        (WIDE, {"net_arch": {"pi": [7], "vf": []}, "activation_fn": nn.ReLU}),
        (BOX, {"share_features_extractor": False}),
        (spaces.Discrete(6), {}),
        (spaces.MultiDiscrete([3, 4]), {}),
        (spaces.MultiBinary(4), {}),
    ],
)
@pytest.mark.parametrize("action_space", [TWO, GAUSSIAN, spaces.MultiDiscrete([2, 3])], ids=str)
def test_sb3_policies(space: Any, action_space: Any, kwargs: dict[str, Any]) -> None:
    policy = sb3_policy(space, action_space, **kwargs)
    reader = foreign.as_actor_critic(policy)
    assert set(reader.state_dict()) == set(policy.state_dict())
    program = checked(policy, reader, space)
    outputs, obs = reader(observed(space)), observed(space)
    assert torch.equal(outputs[-1], policy.predict_values(obs))
    distribution = policy.get_distribution(obs).distribution
    if isinstance(action_space, spaces.Box):
        assert torch.equal(outputs[0], distribution.loc)
        assert torch.equal(outputs[1].exp().expand_as(outputs[0]), distribution.scale)
        assert len(program.outputs) == 3
    elif isinstance(action_space, spaces.Discrete):
        torch.testing.assert_close(outputs[0].log_softmax(-1), distribution.logits)


def test_an_sb3_policy_costs_its_layers_alone() -> None:
    policy = sb3_policy(BOX, GAUSSIAN)
    program = trace(foreign.as_actor_critic(policy), BOX)
    assert sorted(op.kind for op in program.ops) == ["constant", *["linear"] * 6, *["tanh"] * 4]


def test_a_discrete_observation_of_sb3_costs_no_one_hot() -> None:
    policy = sb3_policy(spaces.Discrete(6), TWO)
    program = trace(foreign.as_actor_critic(policy), spaces.Discrete(6))
    assert kinds(program) == {"embedding", "constant", "add", "tanh", "linear"}


def test_sb3_policies_of_other_kinds_are_refused() -> None:
    with pytest.raises(SpecError, match="StateDependentNoiseDistribution, expected one of"):
        foreign.as_actor_critic(sb3_policy(BOX, GAUSSIAN, use_sde=True))
    base = type(sb3_policy(BOX, TWO))

    class Own(base):  # type: ignore[misc, valid-type]
        def forward(self, obs: Tensor, deterministic: bool = False) -> Any:
            return super().forward(obs * 2, deterministic)

    with pytest.raises(SpecError, match="Own has its own forward, expected ActorCriticPolicy's"):
        foreign.as_actor_critic(Own(BOX, TWO, lambda _: 1e-3))
    patched = sb3_policy(BOX, TWO)
    patched.forward = lambda obs, deterministic=False: base.forward(patched, obs * 2)
    with pytest.raises(SpecError, match="has its own forward"):
        foreign.as_actor_critic(patched)


def test_an_sb3_policy_of_images_names_its_convolution() -> None:
    space = spaces.Box(0, 255, (3, 36, 36), np.uint8)
    extractor = pytest.importorskip("stable_baselines3.common.torch_layers").NatureCNN
    policy = sb3_policy(space, TWO, features_extractor_class=extractor)
    with pytest.raises(SpecError, match=r"layer 'features_extractor\.cnn\.0' calls .*conv2d"):
        trace(foreign.as_actor_critic(policy), space)


def rl_module(space: Any, action_space: Any, *, inference_only: bool = False, **config: Any) -> Any:
    pytest.importorskip("ray.rllib")
    from ray.rllib.algorithms.ppo.torch.default_ppo_torch_rl_module import DefaultPPOTorchRLModule
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

    return DefaultPPOTorchRLModule(
        observation_space=space,
        action_space=action_space,
        inference_only=inference_only,
        model_config=dataclasses.asdict(DefaultModelConfig(**config)),
    )


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"vf_share_layers": False, "fcnet_hiddens": [8, 7], "fcnet_activation": "relu"},
        {"vf_share_layers": True, "head_fcnet_hiddens": [9], "fcnet_use_layernorm": True},
    ],
)
@pytest.mark.parametrize("action_space", [TWO, GAUSSIAN, spaces.MultiDiscrete([2, 3])], ids=str)
@pytest.mark.parametrize("free_log_std", [False, True])
def test_rllib_modules(action_space: Any, config: dict[str, Any], free_log_std: bool) -> None:
    # RLlib has it for Gaussian actions alone
    has_free_std = free_log_std and action_space is GAUSSIAN
    module = rl_module(BOX, action_space, free_log_std=has_free_std, **config)
    reader = foreign.as_actor_critic(module)
    checked(module, reader, BOX)
    *action, value = reader(observed(BOX))
    batch = {"obs": observed(BOX)}
    assert torch.equal(value, module.compute_values(batch))
    inputs = module.forward_exploration(batch)["action_dist_inputs"]
    assert torch.equal(torch.cat(action, -1), inputs)


def test_a_shared_encoder_of_rllib_runs_once() -> None:
    shared = rl_module(BOX, TWO, vf_share_layers=True, fcnet_hiddens=[8, 8])
    program = trace(foreign.as_actor_critic(shared), BOX)
    assert sorted(op.kind for op in program.ops) == ["linear"] * 4 + ["tanh"] * 2


def test_rllib_modules_of_other_kinds_are_refused() -> None:
    with pytest.raises(SpecError, match="has no value function here: make it with inference_only"):
        foreign.as_actor_critic(rl_module(BOX, TWO, inference_only=True))
    with pytest.raises(SpecError, match="the RLModule has memory"):
        foreign.as_actor_critic(rl_module(BOX, TWO, use_lstm=True))
    space = spaces.Box(0, 255, (42, 42, 3), np.uint8)
    with pytest.raises(SpecError, match=r"layer 'encoder.*' calls torch\..*, which native code"):
        trace(foreign.as_actor_critic(rl_module(space, TWO)), space)


def layer(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs)


class CleanRlPpo(nn.Module):
    """The Agent of CleanRL's ppo.py."""

    def __init__(self) -> None:
        super().__init__()
        self.critic = nn.Sequential(layer(5, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, 1))
        self.actor = nn.Sequential(layer(5, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, 2))

    def get_value(self, x: Tensor) -> Any:
        return self.critic(x)

    def get_action_and_value(self, x: Tensor, action: Any = None) -> Any:
        logits = self.actor(x)
        probs = Categorical(logits=logits)
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action), probs.entropy(), self.critic(x)


class CleanRlContinuous(nn.Module):
    """The Agent of CleanRL's ppo_continuous_action.py."""

    def __init__(self) -> None:
        super().__init__()
        self.critic = nn.Sequential(layer(5, 64), nn.Tanh(), layer(64, 1))
        self.actor_mean = nn.Sequential(layer(5, 64), nn.Tanh(), layer(64, 3))
        self.actor_logstd = nn.Parameter(torch.zeros(1, 3))

    def get_value(self, x: Tensor) -> Any:
        return self.critic(x)

    def get_action_and_value(self, x: Tensor, action: Any = None) -> Any:
        action_mean = self.actor_mean(x)
        action_logstd = self.actor_logstd.expand_as(action_mean)
        probs = Normal(action_mean, torch.exp(action_logstd))
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action).sum(1), probs.entropy().sum(1), self.critic(x)


class CleanRlNetwork(nn.Module):
    """As the Agent of CleanRL's ppo_atari.py, with a network of layers."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Flatten(), layer(12, 16), nn.ReLU())
        self.actor, self.critic = layer(16, 2), layer(16, 1)

    def get_value(self, x: Tensor) -> Any:
        return self.critic(self.network(x / 255.0))

    def get_action_and_value(self, x: Tensor, action: Any = None) -> Any:
        hidden = self.network(x / 255.0)
        probs = Categorical(logits=self.actor(hidden))
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action), probs.entropy(), self.critic(hidden)


IMAGE = spaces.Box(0, 255, (3, 2, 2), np.uint8)


@pytest.mark.parametrize(
    ("agent", "space"), [(CleanRlPpo, BOX), (CleanRlContinuous, BOX), (CleanRlNetwork, IMAGE)]
)
def test_cleanrl_agents(agent: type[nn.Module], space: Any) -> None:
    original: Any = agent()
    reader = foreign.as_actor_critic(original)
    checked(original, reader, space)
    obs = observed(space)
    *action, value = reader(obs)
    assert torch.equal(value, original.get_value(obs))
    acted = torch.zeros(4, 3) if len(action) == 2 else torch.zeros(4)
    _, log_prob, _, _ = original.get_action_and_value(obs, acted)
    if len(action) == 2:
        expected = Normal(action[0], action[1].exp()).log_prob(acted).sum(1)
    else:
        expected = Categorical(logits=action[0]).log_prob(acted)
    torch.testing.assert_close(log_prob, expected)


def test_an_agent_of_other_parts_is_refused() -> None:
    class Agent(nn.Module):
        def get_value(self, x: Tensor) -> Tensor:
            return x

        def get_action_and_value(self, x: Tensor) -> Tensor:
            return x

    with pytest.raises(SpecError, match="Agent has neither actor nor actor_mean"):
        foreign.as_actor_critic(Agent())


@pytest.mark.parametrize("softmax_output", [True, False])
def test_tianshous_discrete_actor(softmax_output: bool) -> None:
    common = pytest.importorskip("tianshou.utils.net.common")
    discrete = pytest.importorskip("tianshou.utils.net.discrete")
    net = common.Net(state_shape=(2, 3), hidden_sizes=[8, 8])
    actor = discrete.DiscreteActor(
        preprocess_net=net, action_shape=2, softmax_output=softmax_output
    )
    critic = discrete.DiscreteCritic(preprocess_net=net)
    reader = foreign.from_tianshou(actor, critic)
    program = checked(common.ActorCritic(actor, critic), reader, WIDE)
    # the network that both share runs once
    assert sorted(op.kind for op in program.ops) == ["linear"] * 4 + ["relu"] * 2
    logits, value = reader(observed(WIDE))
    given, _ = actor(observed(WIDE))
    torch.testing.assert_close(logits.softmax(-1) if softmax_output else logits, given)
    assert torch.equal(value, critic(observed(WIDE)))


@pytest.mark.parametrize("conditioned_sigma", [True, False])
@pytest.mark.parametrize("unbounded", [True, False])
def test_tianshous_gaussian_actor(conditioned_sigma: bool, unbounded: bool) -> None:
    common = pytest.importorskip("tianshou.utils.net.common")
    continuous = pytest.importorskip("tianshou.utils.net.continuous")
    actor = continuous.ContinuousActorProbabilistic(
        preprocess_net=common.Net(state_shape=5, hidden_sizes=[8], activation=nn.Tanh),
        action_shape=3,
        unbounded=unbounded,
        conditioned_sigma=conditioned_sigma,
    )
    critic = continuous.ContinuousCritic(
        preprocess_net=common.Net(state_shape=5, hidden_sizes=[8], activation=nn.Tanh)
    )
    reader = foreign.from_tianshou(actor, critic)
    program = checked(reader, reader, BOX)
    assert not {"exp", "log"} & kinds(program)
    (mean, sigma), _ = actor(observed(BOX))
    outputs = reader(observed(BOX))
    assert torch.equal(outputs[0], mean)
    torch.testing.assert_close(outputs[1].exp(), sigma)


def test_tianshous_net_gives_values_of_actions() -> None:
    common = pytest.importorskip("tianshou.utils.net.common")
    dueling = ({"hidden_sizes": [4]}, {"hidden_sizes": [4]})
    net = common.Net(state_shape=5, action_shape=3, hidden_sizes=[8], dueling_param=dueling)
    critic = nn.Linear(5, 1)
    reader = foreign.from_tianshou(net, critic)
    checked(reader, reader, BOX)


def test_torchrls_mlps() -> None:
    modules = pytest.importorskip("torchrl.modules")
    actor = modules.MLP(in_features=5, out_features=2, num_cells=[8, 8])
    critic = modules.MLP(
        in_features=5, out_features=1, num_cells=[8], activation_class=nn.ReLU, norm_class=None
    )
    reader = foreign.from_torchrl(actor, critic)
    checked(reader, reader, BOX)
    assert torch.equal(reader(observed(BOX))[0], actor(observed(BOX)))


def test_torchrls_actor_and_value_operator() -> None:
    modules = pytest.importorskip("torchrl.modules")
    nn_modules = pytest.importorskip("tensordict.nn")
    tensordict = pytest.importorskip("tensordict")
    net = nn.Sequential(
        modules.MLP(in_features=5, out_features=6, num_cells=[8]), modules.NormalParamExtractor()
    )
    actor = modules.ProbabilisticActor(
        nn_modules.TensorDictModule(net, in_keys=["observation"], out_keys=["loc", "scale"]),
        in_keys=["loc", "scale"],
        distribution_class=modules.IndependentNormal,
    )
    critic = modules.ValueOperator(
        modules.MLP(in_features=5, out_features=1, num_cells=[8]), in_keys=["observation"]
    )
    reader = foreign.from_torchrl(actor, critic)
    checked(reader, reader, BOX)
    mean, log_std, value = reader(observed(BOX))
    batch = tensordict.TensorDict({"observation": observed(BOX)}, [4])
    distribution = actor.get_dist(batch)
    torch.testing.assert_close(mean, distribution.mean)
    torch.testing.assert_close(log_std.exp(), distribution.base_dist.scale)
    assert torch.equal(value, critic(batch)["state_value"])


def test_a_squashed_actor_of_torchrl_is_refused() -> None:
    modules = pytest.importorskip("torchrl.modules")
    nn_modules = pytest.importorskip("tensordict.nn")
    net = nn.Sequential(nn.Linear(5, 6), modules.NormalParamExtractor())
    actor = modules.ProbabilisticActor(
        nn_modules.TensorDictModule(net, in_keys=["observation"], out_keys=["loc", "scale"]),
        in_keys=["loc", "scale"],
        distribution_class=modules.TanhNormal,
    )
    with pytest.raises(SpecError, match="the actor's actions are of a TanhNormal"):
        foreign.from_torchrl(actor, nn.Linear(5, 1))
