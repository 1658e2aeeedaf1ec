# SPDX-License-Identifier: Apache-2.0
"""Python environments in processes, behind Stable-Baselines3's interface."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="needs the extra sb3")

from gymnasium import spaces
from rollouts.integrations.sb3 import EnvFnsVecEnv, NativeVecEnv, RolloutsPPO, RolloutsVecEnv
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

pytestmark = pytest.mark.system


class Counter(gymnasium.Env[Any, Any]):
    """Shows how often it was stepped, as a dict; ends or is cut after `limit` steps."""

    observation_space = spaces.Dict(
        {"count": spaces.Box(0, 99, (1,), np.int64), "twice": spaces.Box(0, 99, (2,), np.float32)}
    )
    action_space = spaces.Discrete(2)
    render_mode = "rgb_array"

    def __init__(self, limit: int, *, cut: bool = False) -> None:
        self.limit, self.cut, self.level, self.count = limit, cut, 0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        self.count = 0 if options is None else options["count"]
        return self._observe(), {"began_at": self.count}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        over = self.count >= self.limit
        info = {"level": self.level, "nested": {"count": self.count}}
        return self._observe(), 0.5, over and not self.cut, over and self.cut, info

    def render(self) -> Any:
        return np.full((4, 4, 3), self.count, np.uint8)

    def above(self, number: int, *, by: int = 1) -> int:
        return self.count + number * by

    def fail(self) -> None:
        raise ZeroDivisionError("as asked")

    def _observe(self) -> Any:
        return {
            "count": np.array([self.count]),
            "twice": np.full(2, 2 * self.count, np.float32),
        }


def functions() -> list[Any]:
    return [lambda: Counter(2), lambda: Counter(3, cut=True), lambda: Monitor(Counter(4))]


@pytest.fixture(params=[RolloutsVecEnv, DummyVecEnv], ids=["rollouts", "dummy"])
def env(request: Any) -> Iterator[Any]:
    """Three counters of ours, and the same of the library: every test holds for both."""
    made = request.param(functions())
    yield made
    made.close()


def zeros() -> np.ndarray:
    return np.zeros(3, np.int64)


def test_an_id_makes_the_class_for_native_pools() -> None:
    made = RolloutsVecEnv("CartPole-v1", 2)
    assert type(made) is NativeVecEnv
    made.close()


def test_functions_make_the_class_for_functions() -> None:
    made = RolloutsVecEnv(functions(), num_processes=2)
    assert isinstance(made, EnvFnsVecEnv)
    assert made.pool.num_processes == 2
    made.close()
    made.close()


def test_episodes_end_in_the_same_step_with_terminal_observation_and_info(env: Any) -> None:
    obs = env.reset()
    assert isinstance(obs, dict)
    ends: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for t in range(12):
        obs, rewards, dones, infos = env.step(zeros())
        assert rewards.dtype == np.float32
        for i, info in enumerate(infos):
            assert info["TimeLimit.truncated"] == (dones[i] and i == 1)
            assert ("terminal_observation" in info) == dones[i]
            assert info["nested"]["count"] == (t % (i + 2)) + 1
            if dones[i]:
                ends[i].append(t)
                assert info["terminal_observation"]["count"] == [i + 2]
                assert obs["count"][i] == [0]
                assert env.reset_infos[i]["began_at"] == 0
            assert ("episode" in info) == (dones[i] and i == 2)
    assert ends == {0: [1, 3, 5, 7, 9, 11], 1: [2, 5, 8, 11], 2: [3, 7, 11]}


class Reuser(Counter):
    """Shows and reports the same objects at each step."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.obs, self.info = super()._observe(), {"nested": {"counts": [0]}}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.info["nested"]["counts"][0] = self.count + 1
        return (*super().step(action)[:4], self.info)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.info["nested"]["counts"][0] = -1
        return super().reset(seed=seed)[0], self.info

    def _observe(self) -> Any:
        for name, value in super()._observe().items():
            self.obs[name][:] = value
        return self.obs


@pytest.mark.parametrize("num_processes", [0, 1, 3])
def test_what_an_environment_uses_again_stays_as_it_was_handed_over(num_processes: int) -> None:
    made = EnvFnsVecEnv([lambda: Reuser(3)] * 3, num_processes=num_processes)
    made.reset()
    steps = [made.step(zeros()) for _ in range(7)]
    for t, (obs, _, dones, infos) in enumerate(steps):
        assert obs["count"].tolist() == [[(t + 1) % 3]] * 3
        for done, info in zip(dones, infos, strict=True):
            assert info["nested"]["counts"] == [t % 3 + 1]
            assert done == (t % 3 == 2)
            assert not done or info["terminal_observation"]["count"] == [3]
    made.close()


def test_monitor_s_records_come_through_whole(env: Any) -> None:
    env.reset()
    for _ in range(4):
        infos = env.step(zeros())[3]
    assert (infos[2]["episode"]["r"], infos[2]["episode"]["l"]) == (2.0, 4)


def test_attributes_and_methods_reach_the_environments_named(env: Any) -> None:
    env.reset()
    env.set_attr("level", 5, indices=[0, -1])
    assert env.get_attr("level") == [5, 0, 5]
    env.step(zeros())
    assert env.env_method("above", 1, by=2) == [3, 3, 3]
    assert env.env_method("above", 1, indices=1) == [2]
    assert env.env_is_wrapped(Monitor) == [False, False, True]
    assert env.has_attr("limit")
    assert not env.has_attr("no_such_thing")
    with pytest.raises(AttributeError):
        env.get_attr("no_such_thing", indices=[2])
    with pytest.raises(ZeroDivisionError, match="as asked"):
        env.env_method("fail", indices=[0])


def test_options_are_each_environment_s_own_and_count_once(env: Any) -> None:
    env.set_options([{"count": 1}, {}, {"count": 3}])
    assert env.reset()["count"].ravel().tolist() == [1, 0, 3]
    assert env.reset()["count"].ravel().tolist() == [0, 0, 0]


def test_frames_are_tiled(env: Any) -> None:
    env.reset()
    assert env.render().shape == (8, 8, 3)


def test_an_environment_shared_by_two_functions_is_refused() -> None:
    shared = Counter(3)
    with pytest.raises(ValueError, match=r"each function must|distinct"):
        RolloutsVecEnv([lambda: shared, lambda: shared], num_processes=1)


def test_actions_that_would_change_are_refused() -> None:
    made = RolloutsVecEnv(functions())
    made.reset()
    made.step(np.array([0.0, 1.0, 1.0]))
    with pytest.raises((TypeError, ValueError), match="actions"):
        made.step(np.array([0.5, 0.0, 0.0]))
    made.close()


def test_make_vec_env_takes_the_class_and_models_learn() -> None:
    env = make_vec_env("CartPole-v1", 4, seed=1, vec_env_cls=RolloutsVecEnv)
    dummy = make_vec_env("CartPole-v1", 4, seed=1)
    np.testing.assert_array_equal(env.reset(), dummy.reset())
    # the mixin leaves what it does not know to the library
    for algorithm in (PPO, RolloutsPPO):
        model = algorithm("MlpPolicy", env, n_steps=32, batch_size=128, device="cpu").learn(256)
        assert len(model.ep_info_buffer) > 0
    evaluate_policy(model, env, n_eval_episodes=4)
    env.close()


class Tagged(Counter):
    """Reports keys that `rollouts.from_env_fns` keeps for itself."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return *super().step(action)[:-1], {"env_id": "mine", "final_score": self.count}


def test_infos_have_an_environments_keys_by_their_own_names() -> None:
    envs = RolloutsVecEnv([lambda: Tagged(2), lambda: Tagged(3)])
    try:
        envs.reset()
        for count in (1, 2):
            infos = envs.step([0, 0])[3]
            assert [info["env_id"] for info in infos] == ["mine", "mine"]
            assert [info["final_score"] for info in infos] == [count, count]
    finally:
        envs.close()
