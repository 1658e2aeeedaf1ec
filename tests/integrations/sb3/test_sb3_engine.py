# SPDX-License-Identifier: Apache-2.0
"""The engine of Stable-Baselines3's rollouts: native code or torch, and why."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="needs the extra sb3")

import torch
from rollouts.integrations.sb3 import RolloutsPPO, RolloutsVecEnv
from rollouts.integrations.sb3.remote import MakeActor, weights_of
from sb3_cases import (
    EXPECTED,
    FAILING,
    NUM_ENVS,
    NUM_STEPS,
    Clamped,
    Seen,
    Twin,
    assert_replayed,
    make_model,
)
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.vec_env import VecMonitor

import rollouts
from rollouts.errors import SpecError
from rollouts.workers import PolicySpec


class Rows(RolloutBuffer):
    """A buffer of somebody's own."""


class Greedy(ActorCriticPolicy):
    def forward(self, obs: Any, deterministic: bool = False) -> Any:
        return super().forward(obs, deterministic=True)


def failing() -> Any:
    env = RolloutsVecEnv("CartPole-v1", NUM_ENVS, **FAILING)
    return make_model(env=env, policy_kwargs={"features_extractor_class": Clamped})


def one_life_at_a_time() -> Any:
    pytest.importorskip("ale_py", reason="needs ale-py")
    return make_model(env=RolloutsVecEnv("ALE/Breakout-v5", 1, episodic_life=True))


def successful() -> Any:
    env = RolloutsVecEnv("FrozenLake-v1", 4)
    # as if its own info were that
    env.pool.info_names = ("is_success",)
    return env


@pytest.mark.parametrize(
    ("make", "callback", "match"),
    [
        (lambda: make_model(env=VecMonitor(RolloutsVecEnv("CartPole-v1", 4))), None, "VecMonitor"),
        (lambda: make_model("Pendulum-v1", use_sde=True), None, "use_sde"),
        (lambda: make_model(rollout_buffer_class=Rows), None, "a Rows, expected"),
        (lambda: make_model(policy=Greedy), None, "Greedy has its own forward"),
        (lambda: make_model(env=successful()), None, "is_success"),
        (one_life_at_a_time, None, "a lost life"),
        (failing, Seen(), "where an environment failed"),
    ],
    ids=["wrapped", "sde", "buffer", "policy", "is_success", "lives", "failures"],
)
def test_what_native_code_cannot_collect_stays_with_torch(
    make: Any, callback: Any, match: str
) -> None:
    model = make()
    with pytest.raises(SpecError, match=f"rollout_engine='native' is not possible: .*{match}"):
        model.learn(1, callback=callback)
    assert model.num_timesteps == 0
    model.rollout_engine = "auto"
    _, told = model._setup_learn(10**6, callback)
    model.collect_rollouts(model.env, told, model.rollout_buffer, NUM_STEPS)
    assert model.engine == "torch" and match in model.why_not_native


def test_auto_leaves_infos_that_a_callback_may_read_to_torch() -> None:
    """They are those of MuJoCo; "native" leaves them out of the infos."""
    auto = make_model("Hopper-v5", rollout_engine="auto").learn(1, callback=Seen())
    assert auto.engine == "torch" and "x_position" in auto.why_not_native
    auto.learn(1)
    assert auto.engine == EXPECTED
    seen = Seen()
    make_model("Hopper-v5").learn(1, callback=seen)
    names = {name for shown in seen.shown for info in shown["infos"] for name in info}
    assert names == {"TimeLimit.truncated", "terminal_observation", "episode"}


def test_the_engine_is_saved_with_the_model_and_torch_when_asked(tmp_path: Any) -> None:
    model = make_model(rollout_engine="torch").learn(1)
    assert (model.engine, model.why_not_native) == ("torch", "rollout_engine='torch' was asked for")
    model.save(tmp_path / "model.zip")
    env = RolloutsVecEnv("CartPole-v1", NUM_ENVS)
    again = RolloutsPPO.load(tmp_path / "model.zip", env=env, device="cpu")
    assert again.learn(1).engine == "torch"
    again = RolloutsPPO.load(tmp_path / "model.zip", env=env, rollout_engine="native")
    assert again.learn(1).engine == "native"
    again.set_env(VecMonitor(RolloutsVecEnv("CartPole-v1", NUM_ENVS)))
    with pytest.raises(SpecError, match="VecMonitor"):
        again.learn(1)
    for wrong in (lambda: make_model(rollout_engine="numpy"), lambda: again.learn(1)):
        again.rollout_engine = "numpy"
        with pytest.raises(SpecError, match="rollout_engine must be one of"):
            wrong()


def test_a_policy_that_becomes_another_is_read_again() -> None:
    env, other = (RolloutsVecEnv("CartPole-v1", NUM_ENVS, seed=3) for _ in "ab")
    model = make_model(env=env)
    _, callback = model._setup_learn(10**6)
    twin = Twin(model, other)

    def go_on() -> None:
        model.collect_rollouts(env, callback, model.rollout_buffer, NUM_STEPS)
        assert_replayed(model, twin)

    go_on()
    model.policy.mlp_extractor.value_net[1] = torch.nn.ReLU()
    go_on()
    model.policy = make_model(policy_kwargs={"net_arch": [5]}).policy
    go_on()
    state = make_model(policy_kwargs={"net_arch": [5]}, seed=9).get_parameters()
    model.policy.load_state_dict(state["policy"])
    go_on()
    # a method that native code does not call
    model.rollout_engine = "auto"
    model.policy.value_net.register_forward_hook(lambda *_: None)
    go_on()
    assert "hooks" in model.why_not_native


def test_runs_of_one_seed_are_equal_and_those_of_others_are_not() -> None:
    def actions(seed: int) -> Any:
        env = RolloutsVecEnv("CartPole-v1", NUM_ENVS)
        return make_model(env=env, seed=seed).learn(2 * NUM_STEPS * NUM_ENVS).rollout_buffer.actions

    np.testing.assert_array_equal(actions(1), actions(1))
    assert (actions(1) != actions(2)).any()


def test_small_policies_leave_a_gpu_for_the_pools_threads() -> None:
    env = RolloutsVecEnv("CartPole-v1", NUM_ENVS, num_threads=1)
    for width, engine in ((64, EXPECTED), (1024, "torch")):
        kwargs = {"net_arch": [width, width]}
        model = make_model(env=env, rollout_engine="auto", policy_kwargs=kwargs)
        # asked of where it is; nothing is computed there
        model.device = torch.device("cuda")
        assert model.engine == engine, model.why_not_native


def test_workers_compute_natively_what_can_be_read() -> None:
    model = make_model(env=RolloutsVecEnv("CartPole-v1", 4))
    spec = PolicySpec(
        id="CartPole-v1", single_observation_space=model.observation_space,
        single_action_space=model.action_space, num_envs=4, env_id_offset=0, worker_id=0,
        incarnation=0, seed=5,
    )  # fmt: skip
    for engine, expected in (("native", "native"), ("auto", EXPECTED), ("torch", "torch")):
        make = MakeActor(
            model.policy_class, (model.observation_space, model.action_space), {}, engine
        )
        policy = make(spec)
        policy.load_weights(weights_of(model.policy), 3)
        collector = rollouts.Collector(model.env.pool, policy, 10)
        batch = collector.collect()
        assert collector.engine == expected
        flat = torch.from_numpy(batch.obs.reshape(-1, 4).copy())
        values = model.policy.predict_values(flat).detach().numpy()
        np.testing.assert_allclose(batch.value.reshape(-1, 1), values, atol=1e-5)
