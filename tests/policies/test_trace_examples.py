# SPDX-License-Identifier: Apache-2.0
"""The networks of examples/: which become programs, and what is said of those that do not."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

torch = pytest.importorskip("torch")

from program_checks import assert_same_answers, new_weights  # noqa: E402
from torch import nn  # noqa: E402

import rollouts  # noqa: E402
from rollouts.errors import SpecError  # noqa: E402
from rollouts.policies import foreign  # noqa: E402
from rollouts.policies.program import Program  # noqa: E402
from rollouts.policies.trace import trace  # noqa: E402

EXAMPLES = Path(__file__).parents[2] / "examples"
IMAGES = spaces.Box(0, 255, (4, 84, 84), np.uint8)


@pytest.fixture
def examples(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports examples by name; what they import lies beside them."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.syspath_prepend(str(EXAMPLES / "integrations"))
    return importlib.import_module


def kinds_of(module: nn.Module, space: gymnasium.Space[Any]) -> list[str]:
    """The operations of its program, which answers as the module does."""
    program: Program = trace(module, space)
    assert_same_answers(program, module, space)
    new_weights(module)
    assert_same_answers(program, module, space)
    return sorted(op.kind for op in program.ops)


def space_of(env_id: str) -> tuple[gymnasium.Space[Any], gymnasium.Space[Any]]:
    spec = rollouts.env_spec(env_id)
    return spec.single_observation_space, spec.single_action_space


TWO_MLPS = ["linear"] * 6 + ["tanh"] * 4


def test_ppo_and_impala(examples: Any) -> None:
    agent = examples("ppo").Agent
    assert kinds_of(agent(*space_of("CartPole-v1")), space_of("CartPole-v1")[0]) == TWO_MLPS
    gaussian = agent(*space_of("Pendulum-v1"))
    assert kinds_of(gaussian, space_of("Pendulum-v1")[0]) == ["constant", *TWO_MLPS]


def test_dqn(examples: Any) -> None:
    obs_space, action_space = space_of("CartPole-v1")
    network = examples("dqn").QNetwork(obs_space, action_space)
    # the mean and the maximum of two actions are of slices of a register
    assert {"maximum", "slice", "add", "sub"} < set(kinds_of(network, obs_space))


def test_sac(examples: Any) -> None:
    obs_space, _ = space_of("Pendulum-v1")
    kinds = ["clamp", *["linear"] * 3, "literal", *["relu"] * 2, "slice", "slice"]
    assert kinds_of(examples("sac").Actor(3, 1), obs_space) == kinds


def test_those_of_other_libraries(examples: Any) -> None:
    obs_space = space_of("CartPole-v1")[0]
    agent = examples("cleanrl_ppo").Agent(4, 2)
    assert kinds_of(foreign.as_actor_critic(agent), obs_space) == TWO_MLPS
    # a distribution looks at its numbers unless SB3 or RLlib has turned that off
    sentence = r"the module, Drawing, calls torch\..*(eq__|all)|the module returned Categorical"
    with pytest.raises(SpecError, match=sentence):
        trace(Drawing(agent.actor), obs_space)
    reader = foreign.from_tianshou(FirstOf(agent.actor), agent.critic)
    assert kinds_of(reader, obs_space) == TWO_MLPS
    corridor = spaces.Box(0, 1, (2,), np.float32)
    assert kinds_of(examples("env_fns").Network(), corridor) == ["linear"] * 3 + ["tanh"]
    pytest.importorskip("torchrl")
    network = examples("torchrl_collector").network
    assert kinds_of(foreign.from_torchrl(network(2), network(1)), obs_space) == TWO_MLPS


class Drawing(nn.Module):
    """A distribution in place of its logits."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, obs: Any) -> Any:
        return torch.distributions.Categorical(logits=self.module(obs))


class FirstOf(nn.Module):
    """Logits and no state."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, obs: Any) -> tuple[Any, None]:
        return self.module(obs), None


def test_networks_of_images_are_refused_at_their_first_convolution(examples: Any) -> None:
    agent = examples("ppo").Agent(IMAGES, spaces.Discrete(6))
    with pytest.raises(SpecError, match=r"layer 'trunk\.0\.0' calls .*conv2d, which native"):
        trace(agent, IMAGES)


@pytest.mark.parametrize(("name", "network"), [("recurrent_ppo", "Agent"), ("r2d2", "QNetwork")])
@pytest.mark.parametrize("has_memory", [True, False])
def test_networks_with_memory_are_read(
    examples: Any, name: str, network: str, has_memory: bool
) -> None:
    make = getattr(examples(name), network)
    module = make(spaces.Discrete(2), visible=[0, 2], scale=[1.0, 1.0], has_memory=has_memory)
    program = trace(module, space_of("CartPole-v1")[0])
    assert program.state_sizes == tuple(each.numel() for each in module.initial_state())
    assert {"sigmoid", "tanh", "linear"} <= {op.kind for op in program.ops}
