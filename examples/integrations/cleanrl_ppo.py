# SPDX-License-Identifier: Apache-2.0
"""PPO in one file, in the manner of CleanRL's ppo.py, on CartPole.

Such scripts, and what changes in them:

    -envs = gym.vector.SyncVectorEnv([make_env(args.env_id, i) for i in range(args.num_envs)])
    +envs = rollouts.integrations.cleanrl.make_vec(args.env_id, args.num_envs, seed=args.seed)

The loop reads `infos["final_info"]` as Gymnasium 0.29 wrote it. Run it:

    python examples/integrations/cleanrl_ppo.py --total-steps 150000
"""

from __future__ import annotations

import argparse
from collections import deque

import numpy as np
import torch
from rollouts.integrations import cleanrl
from torch import nn
from torch.distributions import Categorical


def mlp(outputs: int, scale: float) -> nn.Sequential:
    """Two hidden layers of 64, orthogonal weights."""
    layers: list[nn.Module] = []
    for size, out, gain in ((4, 64, 2**0.5), (64, 64, 2**0.5), (64, outputs, scale)):
        linear = nn.Linear(size, out)
        nn.init.orthogonal_(linear.weight, gain)
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def batch_of(
    columns: list[torch.Tensor], last_value: torch.Tensor, last_done: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Generalised advantage estimation, and (T * N) rows of what `update` reads."""
    obs, action, log_prob, values, rewards, dones = columns
    following, alive = last_value, 1 - last_done
    advantages, last = torch.zeros_like(rewards), torch.zeros_like(last_value)
    for t in reversed(range(len(rewards))):
        delta = rewards[t] + 0.99 * following * alive - values[t]
        advantages[t] = last = delta + 0.99 * 0.95 * alive * last
        following, alive = values[t], 1 - dones[t]
    return {
        "obs": obs.flatten(0, 1),
        "action": action.flatten(),
        "log_prob": log_prob.flatten(),
        "advantage": advantages.flatten(),
        "target": (advantages + values).flatten(),
    }


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env-id", default="CartPole-v1")
    parser.add_argument("--num-envs", type=int, default=8)
    parser.add_argument("--num-steps", type=int, default=128)
    parser.add_argument("--total-steps", type=int, default=150_000)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(argv)


def update(
    actor: nn.Module,
    critic: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: dict[str, torch.Tensor],
) -> None:
    """Four epochs of minibatches of a quarter each; every tensor of the batch has (T * N) rows."""
    rows = len(batch["action"])
    for _ in range(4):
        for part in torch.randperm(rows).split(rows // 4):
            now = {name: tensor[part] for name, tensor in batch.items()}
            policy = Categorical(logits=actor(now["obs"]))
            ratio = (policy.log_prob(now["action"]) - now["log_prob"]).exp()
            gain = (now["advantage"] - now["advantage"].mean()) / (now["advantage"].std() + 1e-8)
            surrogate = torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
            value_loss = (critic(now["obs"])[:, 0] - now["target"]).square().mean()
            loss = 0.25 * value_loss - surrogate - 0.01 * policy.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_([*actor.parameters(), *critic.parameters()], 0.5)
            optimizer.step()


def main(argv: list[str] | None = None) -> float:
    """Trains; returns the mean return of the last 20 episodes."""
    args = arguments(argv)
    torch.manual_seed(args.seed)
    envs = cleanrl.make_vec(args.env_id, args.num_envs, seed=args.seed)
    actor, critic = mlp(2, 0.01), mlp(1, 1.0)
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], args.learning_rate)

    first = envs.reset(seed=args.seed)[0]
    next_obs, next_done = torch.from_numpy(first), torch.zeros(args.num_envs)
    returns: deque[float] = deque(maxlen=20)
    updates = args.total_steps // (args.num_steps * args.num_envs)
    for iteration in range(updates):
        optimizer.param_groups[0]["lr"] = args.learning_rate * (1 - iteration / updates)
        steps: list[tuple[torch.Tensor, ...]] = []
        for _ in range(args.num_steps):
            with torch.no_grad():
                policy = Categorical(logits=actor(next_obs))
                action, value = policy.sample(), critic(next_obs)[:, 0]
            obs, reward, terminated, truncated, infos = envs.step(action.numpy())
            log_prob = policy.log_prob(action)
            steps.append(
                (next_obs, action, log_prob, value, torch.from_numpy(reward).float(), next_done)
            )
            next_obs = torch.from_numpy(obs)
            next_done = torch.from_numpy(terminated | truncated).float()
            for info in infos.get("final_info", []):
                if info and "episode" in info:
                    returns.append(float(info["episode"]["r"][0]))

        columns = [torch.stack(column) for column in zip(*steps, strict=True)]
        with torch.no_grad():
            last_value = critic(next_obs)[:, 0]
        update(actor, critic, optimizer, batch_of(columns, last_value, next_done))
        if iteration % 10 == 9:
            print(
                f"{(iteration + 1) * args.num_steps * args.num_envs} steps: {np.mean(returns):.0f}"
            )
    envs.close()
    return float(np.mean(returns))


if __name__ == "__main__":
    main()
