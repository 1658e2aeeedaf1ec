# SPDX-License-Identifier: Apache-2.0
"""RolloutsEnvRunner with stateful modules: the pool's threads carry what is remembered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip(
    "ray.tune", exc_type=ImportError, reason="RLlib is not installed: pip install 'rollouts[rllib]'"
)

import torch
import tree
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from rllib_cases import ByPool, ByTorch, config_of
from rollouts.integrations import rllib

from rollouts.errors import SpecError

INPUTS, LOGP, STATE = "action_dist_inputs", "action_logp", "state_out"


def config(env: str, num_envs: int = 3, *, shares: bool = True, **env_config: Any) -> Any:
    made = config_of(env, num_envs, **env_config)
    made.rl_module(
        model_config=DefaultModelConfig(
            fcnet_hiddens=[8],
            use_lstm=True,
            lstm_cell_size=6,
            max_seq_len=4,
            vf_share_layers=shares,
        )
    )
    return made


def state_before(runner: Any, chunk: Any, earlier: dict[str, Any]) -> Any:
    """The module's state before a chunk's first step, as tensors (1, ...)."""
    if chunk.t_started == 0:
        state = tree.map_structure(lambda leaf: leaf.numpy(), runner.module.get_initial_state())
    else:
        state = chunk.get_extra_model_outputs(STATE, -1, neg_index_as_lookback=True)
        # the lookback is what the chunk before it ended with
        tree.map_structure(np.testing.assert_array_equal, state, earlier[chunk.id_])
    return tree.map_structure(lambda leaf: torch.from_numpy(leaf.copy())[None], state)


def assert_the_module_said_so(runner: Any, chunks: list[Any], earlier: dict[str, Any]) -> None:
    """Each column is torch's, from the whole chunk as one sequence."""
    dist_class = runner.module.get_exploration_action_dist_cls()
    for chunk in chunks:
        obs = torch.from_numpy(chunk.get_observations(slice(0, len(chunk))).copy()).float()
        state = state_before(runner, chunk, earlier)
        said = chunk.get_extra_model_outputs
        with torch.no_grad():
            for t in range(len(chunk)):
                batch = {"obs": obs[None, t : t + 1], "state_in": state}
                answer = runner.module.forward_exploration(batch)
                state = answer[STATE]
                inputs = answer[INPUTS][0]
                action = torch.from_numpy(np.asarray(chunk.get_actions(t)).copy())[None]
                logp = dist_class.from_logits(inputs).logp(action)
                np.testing.assert_allclose(said(INPUTS, t), inputs[0], rtol=1e-5, atol=1e-5)
                np.testing.assert_allclose(said(LOGP, t), logp[0], rtol=1e-5, atol=1e-5)
                found = said(STATE, t)
                tree.assert_same_structure(found, state)
                for ours, theirs in zip(tree.flatten(found), tree.flatten(state), strict=True):
                    np.testing.assert_allclose(ours, theirs[0], rtol=1e-5, atol=1e-5)
        earlier[chunk.id_] = said(STATE, -1)


@pytest.mark.parametrize("shares", [True, False], ids=["one encoder", "two encoders"])
@pytest.mark.parametrize(
    ("env_id", "limit"), [("CartPole-v1", 14), ("Pendulum-v1", 9)], ids=["CartPole", "Pendulum"]
)
def test_columns_are_those_that_torch_computes(env_id: str, limit: int, shares: bool) -> None:
    """Within calls of `sample` and over them, at ends of episodes, and with new weights."""
    runner = ByPool(config=config(env_id, shares=shares, max_episode_steps=limit))
    assert runner.slow_reason == "" and runner.native_reason == ""
    earlier: dict[str, Any] = {}
    ended = 0
    for steps in (7, 1, 20, 12):
        chunks = runner.sample(num_timesteps=3 * steps)
        assert sum(map(len, chunks)) == 3 * steps
        assert_the_module_said_so(runner, chunks, earlier)
        ended += sum(chunk.is_done for chunk in chunks)
        with torch.no_grad():
            for parameter in runner.module.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
    assert ended > 3
    # whole episodes, which a reset begins
    for chunk in (whole := runner.sample(num_episodes=4)):
        assert chunk.t_started == 0 and chunk.is_done
    assert_the_module_said_so(runner, whole, {})


def test_episodes_have_what_rllib_s_own_runner_has() -> None:
    """Names, dicts, shapes and dtypes of all columns."""
    found = []
    for runner_class in (ByPool, SingleAgentEnvRunner):
        runner = runner_class(config=config("CartPole-v1"))
        for explore in (True, False):
            chunk = runner.sample(num_timesteps=12, explore=explore)[0]
            extras = {name: each.data for name, each in chunk.extra_model_outputs.items()}
            steps = len(chunk) + chunk.extra_model_outputs[STATE].lookback
            found.append(
                tree.map_structure(lambda a, n=steps: (a.dtype, len(a) == n, a.shape[1:]), extras)
            )
    assert found[:2] == found[2:]


def test_without_native_code_rllib_s_own_loop_runs() -> None:
    runner = ByTorch(config=config("CartPole-v1"))
    chunks = runner.sample(num_timesteps=12)
    assert (
        runner.slow_reason == "the RLModule is stateful, and rollout_engine='torch' was asked for"
    )
    assert all(STATE in chunk.extra_model_outputs for chunk in chunks)


def test_outputs_that_are_not_finite_are_told_of() -> None:
    runner = rllib.RolloutsEnvRunner(config=config("CartPole-v1"))
    runner.sample(num_timesteps=12)
    with torch.no_grad():
        runner.module.pi.net.mlp[-1].bias.fill_(3e38)
        runner.module.pi.net.mlp[-1].weight.fill_(3e38)
    if not runner.native_reason:
        with pytest.raises(SpecError, match="env"):
            runner.sample(num_timesteps=12)


def test_a_learner_takes_what_was_remembered() -> None:
    made = config("CartPole-v1", 4, max_episode_steps=20)
    runner = ByPool(config=made)
    env = runner.env.unwrapped
    spaces = {"__env_single__": (env.single_observation_space, env.single_action_space)}
    spaces["default_policy"] = spaces["__env_single__"]
    learner = made.build_learner(spaces=spaces)
    # lookback makes the states before the first steps of the second sample
    for _ in range(2):
        results = learner.update(episodes=runner.sample(num_timesteps=128), num_epochs=1)
    losses = results["default_policy"]
    assert np.isfinite(float(losses["total_loss"].peek()))
    assert np.isfinite(float(losses["vf_loss"].peek()))
