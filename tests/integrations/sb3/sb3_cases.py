# SPDX-License-Identifier: Apache-2.0
"""Parts of the tests of Stable-Baselines3's native rollouts: models, callbacks, replays."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from rollouts.integrations.sb3 import RolloutsPPO, RolloutsVecEnv
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.utils import obs_as_tensor

import rollouts

ROLLOUT = ("observations", "actions", "rewards", "returns", "advantages", "episode_starts",
           "values", "log_probs")  # fmt: skip
# the choice of "auto", which leaves machines without fused multiply-add to torch
EXPECTED = "torch" if rollouts._native.policy_kernels_in_use() == "emulated" else "native"
NUM_ENVS, NUM_STEPS = 6, 41
FAILING = {"on_env_error": "reset", "gravity": [9.8, 9.8, 9.8, 1e308, 9.8, 9.8]}


class Clamped(FlattenExtractor):  # type: ignore[misc]
    """Something finite of whatever a failing environment shows."""

    def forward(self, obs: Any) -> Any:
        return super().forward(obs).clamp(-10, 10)


def make_model(env_id: str = "CartPole-v1", env: Any = None, **settings: Any) -> Any:
    defaults = {"policy": "MlpPolicy", "env": env or RolloutsVecEnv(env_id, NUM_ENVS, seed=3)}
    defaults |= {"rollout_engine": "native", "n_steps": NUM_STEPS, "batch_size": 60, "n_epochs": 1}
    return RolloutsPPO(**{**defaults, "seed": 1, "device": "cpu", **settings})


class Seen(BaseCallback):
    """Keeps what it is shown, and stops the training after a number of calls."""

    def __init__(self, stop_after: int | None = None) -> None:
        super().__init__()
        self.stop_after = stop_after
        self.events: list[str] = []
        self.shown: list[dict[str, Any]] = []

    def _on_rollout_start(self) -> None:
        self.events.append("start")

    def _on_rollout_end(self) -> None:
        self.events.append("end")

    def _on_step(self) -> bool:
        self.events.append("step")
        names = ("rewards", "dones", "new_obs", "obs_tensor", "clipped_actions", "actions")
        kept = {name: np.array(self.locals[name]) for name in names}
        tensors = {name: self.locals[name].clone() for name in ("values", "log_probs")}
        kept |= {"infos": self.locals["infos"], "names": set(self.locals), **tensors}
        self.shown.append(kept | {"num_timesteps": self.num_timesteps})
        return self.n_calls != self.stop_after


class Twin:
    """An equal environment, stepped as the algorithm's own `collect_rollouts` steps it."""

    def __init__(self, model: Any, env: Any) -> None:
        env.seed(model.seed)
        self.env, self.obs = env, env.reset()
        self.starts = np.ones(env.num_envs, bool)
        self.episodes: list[tuple[float, int]] = []
        self.infos: list[dict[str, Any]] = []

    def replay(self, model: Any) -> RolloutBuffer:
        """The buffer that the model's actions lead to, filled by its own methods."""
        policy, found = model.policy, model.rollout_buffer
        buffer = RolloutBuffer(
            found.buffer_size, model.observation_space, model.action_space, "cpu",
            model.gae_lambda, model.gamma, self.env.num_envs,
        )  # fmt: skip
        for t in range(found.buffer_size):
            actions = found.actions[t].reshape(-1, *model.action_space.shape)
            obs = obs_as_tensor(self.obs, "cpu")
            with torch.no_grad():
                # as it was, or one that fits: infinite log_probs of another action would show
                values, log_probs, _ = policy.evaluate_actions(obs, torch.from_numpy(actions))
            clipped = actions
            if hasattr(model.action_space, "low"):
                clipped = np.clip(actions, model.action_space.low, model.action_space.high)
            obs_after, rewards, dones, infos = self.env.step(clipped)
            self.infos += infos
            self.episodes += [
                (i["episode"]["r"], i["episode"]["l"]) for i in infos if "episode" in i
            ]
            for row in np.flatnonzero(dones):
                if infos[row]["TimeLimit.truncated"]:
                    final = policy.obs_to_tensor(infos[row]["terminal_observation"])[0]
                    with torch.no_grad():
                        rewards[row] += model.gamma * policy.predict_values(final)[0]
            buffer.add(self.obs, actions, rewards, self.starts, values, log_probs)
            self.obs, self.starts = obs_after, dones
        with torch.no_grad():
            last = policy.predict_values(obs_as_tensor(self.obs, "cpu"))
        buffer.compute_returns_and_advantage(last, self.starts)
        return buffer


def assert_replayed(model: Any, twin: Twin) -> None:
    expected, found = twin.replay(model), model.rollout_buffer
    for name in ROLLOUT:
        a, b = getattr(expected, name), getattr(found, name)
        assert (a.dtype, a.shape) == (b.dtype, b.shape), name
        exact = name in ("observations", "actions", "episode_starts")
        # values differ: native sums are in another order than torch's; rewards have some of them
        scale = max(1.0, float(np.abs(a).max()))
        np.testing.assert_allclose(b, a, atol=0 if exact else 1e-5 * scale, rtol=0, err_msg=name)
    assert (expected.pos, expected.full) == (found.pos, found.full)
    np.testing.assert_array_equal(model._last_obs, twin.obs)
    np.testing.assert_array_equal(model._last_episode_starts, twin.starts)
