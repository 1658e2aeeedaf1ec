# SPDX-License-Identifier: Apache-2.0
"""RolloutsEnvRunner where the pool's threads compute the module: equal episodes, and when not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip(
    "ray.tune", exc_type=ImportError, reason="RLlib is not installed: pip install 'rollouts[rllib]'"
)

import torch
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.ppo.torch.default_ppo_torch_rl_module import DefaultPPOTorchRLModule
from ray.rllib.connectors.env_to_module import MeanStdFilter
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from rllib_cases import ByPool, ByTorch, columns, config_of, stitched
from rollouts.integrations import rllib

import rollouts
from rollouts.errors import SpecError

INPUTS, LOGP = "action_dist_inputs", "action_logp"


def assert_the_module_said_so(runner: Any, chunks: list[Any]) -> None:
    """Inputs of distributions and densities are those of the runner's module as it is now."""
    dist_class = runner.module.get_exploration_action_dist_cls()
    for chunk in chunks:
        obs = torch.from_numpy(chunk.get_observations(slice(0, len(chunk))).copy()).float()
        with torch.no_grad():
            inputs = runner.module.forward_exploration({"obs": obs})[INPUTS]
            actions = torch.from_numpy(chunk.get_actions().copy())
            logp = dist_class.from_logits(inputs).logp(actions)
        said = chunk.get_extra_model_outputs
        np.testing.assert_allclose(said(INPUTS), inputs, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(said(LOGP), logp, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("env_id", "scale", "options"),
    [
        ("CartPole-v1", None, {"max_episode_steps": 14}),
        # actions are normalised: twice the module's; the module's own
        ("Pendulum-v1", 2.0, {"max_episode_steps": 9}),
        ("MountainCarContinuous-v0", 1.0, {"max_episode_steps": 30}),
    ],
)
def test_episodes_are_what_their_actions_do_step_by_step(
    env_id: str, scale: float | None, options: dict[str, int]
) -> None:
    """Replayed through `step` of an equal pool, across calls of `sample`."""
    runner = ByPool(config=config_of(env_id, 5, **options))
    chunks = []
    for steps in (7, 1, 20, 12):
        sampled = runner.sample(num_timesteps=5 * steps)
        assert sum(map(len, sampled)) == 5 * steps
        assert_the_module_said_so(runner, sampled)
        chunks += sampled
    whole = stitched(chunks)
    with rollouts.make_vec(env_id, 5, autoreset_mode="same_step", **options) as env:
        obs, _ = env.reset(seed=runner._seed)
        playing, at = [whole.pop((row.tobytes(),)) for row in obs], [0] * 5
        for _ in range(40):
            for row in range(5):
                np.testing.assert_array_equal(playing[row]["obs"][at[row]], obs[row])
            action = np.stack([each["actions"][t] for each, t in zip(playing, at, strict=True)])
            if scale is not None:
                action = np.clip(scale * action, -scale, scale)
            obs, reward, terminated, truncated, info = env.step(action)
            for row in range(5):
                episode, at[row] = playing[row], at[row] + 1
                assert episode["rewards"][at[row] - 1] == np.float32(reward[row])
                is_over = at[row] == len(episode["actions"]) and any(episode["end"])
                assert is_over == (terminated[row] or truncated[row])
                if is_over:
                    assert episode["end"] == (terminated[row], truncated[row])
                    np.testing.assert_array_equal(episode["obs"][-1], info["final_obs"][row])
                    playing[row], at[row] = whole.pop((obs[row].tobytes(),), None), 0
    assert not whole


@pytest.mark.parametrize("explore", [True, False])
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_episodes_have_what_those_computed_by_torch_have(env_id: str, explore: bool) -> None:
    found = []
    for runner_class in (ByPool, ByTorch):
        runner = runner_class(config=config_of(env_id, 3))
        chunk = runner.sample(num_timesteps=12, explore=explore)[0]
        found.append({name: (array.dtype, array.shape) for name, array in columns(chunk).items()})
        if not explore:
            assert not chunk.get_extra_model_outputs(LOGP).any()
    assert found[0] == found[1]


def test_the_likeliest_action_is_taken_where_nothing_is_explored() -> None:
    runner = ByPool(config=config_of("Pendulum-v1", 3))
    for chunk in runner.sample(num_timesteps=12, explore=False):
        mean = chunk.get_extra_model_outputs(INPUTS)[:, :1]
        np.testing.assert_allclose(chunk.get_actions(), mean, rtol=1e-6, atol=1e-6)


def test_a_runner_s_module_without_a_value_function_is_computed_natively() -> None:
    runner = rllib.RolloutsEnvRunner(config=config_of("CartPole-v1"))
    assert runner.module.inference_only and not hasattr(runner.module, "vf")
    expected = rollouts._native.policy_kernels_in_use() == "emulated"
    assert bool(runner.native_reason) == expected


def test_loaded_weights_and_another_module_hold_from_the_next_call() -> None:
    runner = ByPool(config=config_of("CartPole-v1"))
    assert_the_module_said_so(runner, runner.sample(num_timesteps=20))
    state = runner.get_state()
    for name, array in state["rl_module"].items():
        state["rl_module"][name] = array + np.float32(0.3)
    runner.set_state({**state, "weights_seq_no": 4})
    chunks = runner.sample(num_timesteps=20)
    assert_the_module_said_so(runner, chunks)
    assert {int(v) for c in chunks for v in c.get_extra_model_outputs("weights_seq_no")} == {4}
    runner.make_module()
    assert_the_module_said_so(runner, runner.sample(num_timesteps=20))


def test_whole_episodes_are_those_that_torch_samples() -> None:
    runners = [cls(config=config_of("CartPole-v1", 3)) for cls in (ByPool, ByTorch)]
    runners[1].module.load_state_dict(runners[0].module.state_dict())
    # ends in the middle of a block, in a later one, and of no block at all
    for count in (2, 50, 0):
        ours, theirs = (r.sample(num_episodes=count, explore=False) for r in runners)
        assert len(ours) == len(theirs) == count
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(one.get_observations(), other.get_observations())
            assert (one.is_terminated, one.is_truncated) == (
                other.is_terminated,
                other.is_truncated,
            )
    mine, theirs = (runner.get_metrics() for runner in runners)
    for name in ("episode_len_mean", "num_env_steps_sampled"):
        assert mine[name].peek() == theirs[name].peek(), name


def test_a_reset_by_the_same_seed_does_not_repeat_the_actions() -> None:
    runner = ByPool(config=config_of("CartPole-v1", 8))
    first, second = (
        {chunk.get_observations(0).tobytes(): chunk.get_actions().tolist()
         for chunk in runner.sample(num_episodes=20)}
        for _ in range(2)
    )  # fmt: skip
    same = first.keys() & second.keys()
    assert len(same) >= 4  # RLlib resets by the seed after whole episodes
    assert any(first[obs] != second[obs] for obs in same)


# -- when torch computes ------------------------------------------------------------------


class Timed(DefaultPPOTorchRLModule):
    """Explores less with time."""

    def _forward(self, batch: Any, t: int = 0, **kwargs: Any) -> Any:
        output = super()._forward(batch, **kwargs)
        return {INPUTS: output[INPUTS] * (1 + t)}


class Sine(DefaultPPOTorchRLModule):
    """A module with a function that native code has not."""

    def _forward(self, batch: Any, **kwargs: Any) -> Any:
        return super()._forward({"obs": torch.sin(batch["obs"])}, **kwargs)


class Wordy(DefaultPPOTorchRLModule):
    """Says more than how actions are distributed."""

    def _forward(self, batch: Any, **kwargs: Any) -> Any:
        return {**super()._forward(batch, **kwargs), "weather": batch["obs"][:, 0]}


class Clamped(DefaultPPOTorchRLModule):
    """Says something finite of whatever it sees."""

    def _forward(self, batch: Any, **kwargs: Any) -> Any:
        return super()._forward({"obs": batch["obs"].clamp(-10, 10)}, **kwargs)


def with_module(module_class: Any, num_envs: int = 4, **env_config: Any) -> PPOConfig:
    config = config_of("CartPole-v1", num_envs, **env_config)
    config.rl_module(rl_module_spec=RLModuleSpec(module_class=module_class))
    return config


def unclipped() -> PPOConfig:
    config = config_of("Pendulum-v1")
    return config.environment(normalize_actions=False)


def with_infos() -> PPOConfig:
    config = config_of("InvertedPendulum-v5")
    return config.training(learner_connector=lambda *args: [])


def dqn() -> Any:
    config = DQNConfig().environment("CartPole-v1")
    return config.env_runners(num_env_runners=0, num_envs_per_env_runner=4)


@pytest.mark.parametrize(
    ("make_config", "reason"),
    [
        (lambda: with_module(Timed), "without being told the time step: TypeError"),
        (lambda: with_module(Sine), "sin"),
        (lambda: with_module(Wordy), "returned action_dist_inputs.*weather, expected inputs"),
        (unclipped, "beyond the bounds .* clip_actions=True"),
        (with_infos, "infos are kept"),
        (dqn, "time step"),
    ],
)
def test_torch_computes_what_the_pool_cannot(make_config: Any, reason: str) -> None:
    runner = rllib.RolloutsEnvRunner(config=make_config())
    assert runner.slow_reason == ""
    assert_matches(runner.native_reason, reason)
    assert sum(map(len, runner.sample(num_timesteps=20))) == 20
    with pytest.raises(SpecError, match=f"rollout_engine='native' is not possible: .*{reason}"):
        ByPool(config=make_config())


def assert_matches(text: str, pattern: str) -> None:
    with pytest.raises(SpecError, match=pattern):
        raise SpecError(text)


def test_the_engine_is_one_of_three() -> None:
    class Misspelt(rllib.RolloutsEnvRunner):
        rollout_engine = "nativ"  # type: ignore[assignment]

    with pytest.raises(SpecError, match="rollout_engine must be one of"):
        Misspelt(config=config_of("CartPole-v1"))
    config = config_of("CartPole-v1")
    config.env_runners(env_to_module_connector=lambda env, spaces, device: MeanStdFilter())
    with pytest.raises(SpecError, match="RLlib's own loop runs: the config has an env_to_module"):
        ByPool(config=config).sample(num_timesteps=4)
    assert "was asked for" in ByTorch(config=config_of("CartPole-v1")).native_reason


# -- how it ends --------------------------------------------------------------------------


@pytest.mark.parametrize("restarts", [True, False])
def test_a_failing_environment_is_handled_as_rllib_is_told(restarts: bool) -> None:
    config = with_module(Clamped, max_episode_steps=6)
    config.fault_tolerance(restart_failed_sub_environments=restarts)
    runner = ByPool(config=config)
    runner.sample(num_timesteps=12)
    gravity = {"gravity": [9.8, 9.8, 1e308, 9.8]}
    runner.env.unwrapped.reset(options=gravity)
    if restarts:
        chunks = runner.sample(num_timesteps=40)
        assert runner.metrics.peek("num_env_step_failures") == 1
    else:
        with pytest.raises(RuntimeError):
            runner.sample(num_timesteps=40)
        runner.env.unwrapped.reset(options={"gravity": 9.8})
        chunks = runner.sample(num_timesteps=40)
    # nothing of the rollout that failed is told
    assert sum(map(len, chunks)) == 40
    assert sum(chunk.t_started == 0 for chunk in chunks) == len(chunks)
    assert all(len(chunk) == 6 for chunk in chunks if chunk.is_done)


def test_a_failed_environment_ends_with_the_observation_it_failed_on() -> None:
    gravity = [9.8, 1e308, 9.8]
    config = with_module(Clamped, 3, on_env_error="reset", gravity=gravity)
    runner = ByPool(config=config)
    failed = [c for c in runner.sample(num_timesteps=3 * 5) if c.is_truncated]
    assert failed
    for chunk in failed:
        np.testing.assert_array_equal(chunk.get_observations(-1), chunk.get_observations(-2))


def test_weights_that_are_not_finite_are_torch_s_to_handle() -> None:
    runner = rllib.RolloutsEnvRunner(config=config_of("CartPole-v1"))
    sound = {name: tensor.clone() for name, tensor in runner.module.state_dict().items()}
    with torch.no_grad():
        runner.module.pi.net.mlp[0].weight[0, 0] = float("nan")
    before = {chunk.id_ for chunk in runner.sample(num_timesteps=4)}
    assert "nan or infinite" in runner.native_reason
    # finite, but what comes of them is not: seen in the middle of a rollout, which is lost
    with torch.no_grad():
        runner.module.pi.net.mlp[0].weight.fill_(3e38)
    chunks = runner.sample(num_timesteps=40)
    assert "expected a finite number" in runner.native_reason
    assert sum(map(len, chunks)) == 40 and not before & {chunk.id_ for chunk in chunks}
    runner.module.load_state_dict(sound)
    assert_the_module_said_so(runner, runner.sample(num_timesteps=40))
    assert runner.native_reason == ""


def test_an_interrupt_in_a_rollout_has_the_next_one_begin_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runner = ByPool(config=config_of("CartPole-v1"))
    before = {chunk.id_ for chunk in runner.sample(num_timesteps=4)}

    def interrupted(self: Any, policy: Any, arrays: Any, **kwargs: Any) -> Any:
        rollouts.VectorEnv.collect(self, policy, arrays, **kwargs)
        raise KeyboardInterrupt

    monkeypatch.setattr(rllib.RolloutsVectorEnv, "collect", interrupted)
    with pytest.raises(KeyboardInterrupt):
        runner.sample(num_timesteps=40)
    monkeypatch.undo()
    chunks = runner.sample(num_timesteps=40)
    assert all(chunk.t_started == 0 for chunk in chunks)
    assert not before & {chunk.id_ for chunk in chunks}
