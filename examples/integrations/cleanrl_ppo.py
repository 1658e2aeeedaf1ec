# SPDX-License-Identifier: Apache-2.0
"""PPO in the manner of CleanRL: one file, one loop, environments from a native pool.

    python examples/integrations/cleanrl_ppo.py --num-envs 8
    python examples/integrations/cleanrl_ppo.py --env-id HalfCheetah-v5 --num-envs 1 \
        --num-steps 2048 --num-minibatches 32 --update-epochs 10 --learning-rate 3e-4 \
        --ent-coef 0 --total-timesteps 1000000

Agent, loss, optimiser and hyper-parameters are as in CleanRL's ppo.py; with continuous actions the
agent and the environments' wrappers are as in its ppo_continuous_action.py. Three of their loops
are calls of native code here. Each call can be left out, and its loop stays:

    loop over steps          `Collector`: the pool's threads compute the agent between steps
    loop back over rewards   `batch_gae`
    loop over minibatches    `NativeLearner.update`, on the agent's parameters and the optimiser

A script that keeps its loop over steps changes one line, for the environments:

    -envs = gym.vector.SyncVectorEnv([make_env(args.env_id) for _ in range(args.num_envs)])
    +envs = rollouts.integrations.cleanrl.make_vec(args.env_id, args.num_envs, seed=args.seed)
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import deque
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete

import rollouts
from rollouts.support.extras import needs

with needs("torch", "this example"):
    import torch
    from torch import Tensor, nn
    from torch.distributions import Categorical, Independent, Normal

    from rollouts.learner.native_learner import NativeLearner, PpoLoss
    from rollouts.returns import batch_gae


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    add = parser.add_argument
    add("--env-id", default="CartPole-v1", help="an environment with Discrete or Box actions")
    add("--num-envs", type=int, default=8)
    add("--num-steps", type=int, default=128, help="steps per environment and update")
    add("--total-timesteps", type=int, default=500_000)
    add("--target-return", type=float, default=475.0, help="stop at this mean of 50 episodes")
    add("--learning-rate", type=float, default=1e-3, help="falls linearly to 0")
    add("--gamma", type=float, default=0.99)
    add("--gae-lambda", type=float, default=0.95)
    add("--num-minibatches", type=int, default=4)
    add("--update-epochs", type=int, default=4)
    add("--clip-coef", type=float, default=0.2)
    add("--ent-coef", type=float, default=0.01)
    add("--vf-coef", type=float, default=0.5)
    add("--max-grad-norm", type=float, default=0.5)
    add("--seed", type=int, default=1)
    return parser.parse_args(argv)


def layer(inputs: int, outputs: int, gain: float = 2**0.5) -> nn.Linear:
    """A linear layer with orthogonal weights."""
    linear = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(linear.weight, gain)
    nn.init.zeros_(linear.bias)
    return linear


class Agent(nn.Module):
    """An actor and a critic, two hidden layers of 64 each."""

    def __init__(self, num_inputs: int, num_actions: int, *, is_continuous: bool = False) -> None:
        super().__init__()

        def mlp(outputs: int, gain: float) -> nn.Module:
            hidden = layer(num_inputs, 64), nn.Tanh(), layer(64, 64), nn.Tanh()
            return nn.Sequential(*hidden, layer(64, outputs, gain))

        self.critic = mlp(1, 1.0)
        if is_continuous:
            self.actor_mean = mlp(num_actions, 0.01)
            self.actor_logstd = nn.Parameter(torch.zeros(1, num_actions))
        else:
            self.actor = mlp(num_actions, 0.01)

    def get_value(self, obs: Tensor) -> Tensor:
        """Maps obs (B, D) to values (B, 1)."""
        value: Tensor = self.critic(obs)
        return value

    def get_action_and_value(
        self, obs: Tensor, action: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Maps obs (B, D) to actions, their log-densities and entropies (B,), and values (B, 1)."""
        if hasattr(self, "actor_mean"):
            mean = self.actor_mean(obs)
            probs: Any = Independent(Normal(mean, self.actor_logstd.exp().expand_as(mean)), 1)
        else:
            probs = Categorical(logits=self.actor(obs))
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action), probs.entropy(), self.critic(obs)


def make_envs(args: argparse.Namespace) -> rollouts.VectorEnv:
    """The environments; those with continuous actions in ppo_continuous_action.py's wrappers."""
    envs = rollouts.make_vec(args.env_id, args.num_envs, seed=args.seed, autoreset_mode="same_step")
    if isinstance(envs.single_action_space, Discrete):
        return envs
    envs.close()
    return rollouts.make_vec(
        args.env_id,
        args.num_envs,
        seed=args.seed,
        autoreset_mode="same_step",
        clip_action=True,
        normalize_observation={"clip": 10},
        normalize_reward={"gamma": args.gamma},
        clip_reward=10,
    )


def main(argv: list[str] | None = None) -> int:
    """Trains; returns 0 if the target return was reached, else 1."""
    args = parse_args(argv)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    envs = make_envs(args)
    space = envs.single_action_space
    agent = Agent(
        int(np.prod(envs.single_observation_space.shape)),
        int(space.n) if isinstance(space, Discrete) else int(np.prod(space.shape)),
        is_continuous=not isinstance(space, Discrete),
    )
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)
    policy = rollouts.NativePolicy.from_torch(
        agent, envs.single_action_space, envs.single_observation_space, seed=args.seed
    )
    collector = rollouts.Collector(envs, policy, rollout_length=args.num_steps)
    learner = NativeLearner(policy, optimizer)
    loss = PpoLoss(
        clip_range=args.clip_coef,
        value_clip_range=args.clip_coef,
        value_weight=0.5 * args.vf_coef,
        entropy_weight=args.ent_coef,
    )

    start_s, returns = time.time(), deque[float](maxlen=50)
    num_updates = args.total_timesteps // (args.num_steps * args.num_envs)
    for update, batch in zip(range(num_updates), collector, strict=False):
        optimizer.param_groups[0]["lr"] = args.learning_rate * (1 - update / num_updates)
        returns.extend(batch.episodes().returns)

        # a truncated episode would have gone on: the value of its last observation counts
        advantages, targets = batch_gae(batch, gamma=args.gamma, gae_lambda=args.gae_lambda)

        # learns from the rollout
        names = ("obs", "action", "log_prob", "value", "advantage", "target")
        parts = (batch.obs, batch.action, batch.log_prob, batch.value, advantages, targets)
        size = args.num_steps * args.num_envs
        rows = {name: x.reshape(size, -1) for name, x in zip(names, parts, strict=True)}
        for _ in range(args.update_epochs):
            learner.update(
                rows,
                torch.randperm(size).numpy(),
                minibatch=-(-size // args.num_minibatches),
                loss=loss,
                max_grad_norm=args.max_grad_norm,
            )

        global_step = (update + 1) * size
        mean_return = np.mean(returns) if returns else float("nan")
        if update % 10 == 0 or update + 1 == num_updates:
            rate = global_step / (time.time() - start_s)
            print(f"global_step={global_step} return={mean_return:.1f} steps/s={rate:,.0f}")
        if len(returns) == returns.maxlen and mean_return >= args.target_return:
            print(f"reached {mean_return:.1f} after {global_step} steps")
            return 0
    return 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)  # the status that shells report after Ctrl-C
