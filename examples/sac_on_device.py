# SPDX-License-Identifier: Apache-2.0
"""SAC or DDPG whose environments, replay and learner stay on one GPU.

    python examples/sac_on_device.py                              Pendulum-v1 on the GPU there is
    python examples/sac_on_device.py --device cpu-emulation --engine torch   without one: a minute
    python examples/sac_on_device.py --algorithm ddpg             Ornstein-Uhlenbeck exploration
    python examples/sac_on_device.py --resume runs/<run>          goes on, with a new replay
    rollouts eval runs/<run> --trust --deterministic              plays it on the CPU's threads

Kernels step the environments and draw the actions, rollouts go into a DeviceReplay, and torch
learns from its samples. The host waits once for each rollout, when returns of episodes are read.
SAC is as in sac.py. DDPG (Lillicrap et al. 2015) differs only in its learner: one critic, a
deterministic actor, and noise that is correlated over steps
(`rollouts.policy.OrnsteinUhlenbeckHead`), with which a run on a device is as repeatable as one of a
C++ pool. --n-step sums rewards as WarpDrive's DDPG does.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from math import log
from pathlib import Path
from threading import Event
from typing import Any

import gymnasium
import numpy as np
import sac
import torch
from common.checkpoint import Checkpointed, add_resume_arguments
from common.evaluated_run import EvaluatedRun
from common.progress import report
from common.training import chosen_env_id, env_option, make_run, spec_of
from numpy.typing import NDArray
from sac import adam, descend, sizes
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

import rollouts
from rollouts.policy import OrnsteinUhlenbeckHead, SquashedGaussianHead
from rollouts.replay import DeviceReplay, DeviceTransitions, NStep
from rollouts.workers import PolicySpec

CHECKPOINT_KIND = "rollouts examples/sac_on_device.py, version 2"

# options that differ between environments; the command line overrides each
PRESETS: dict[str, dict[str, Any]] = {
    "Pendulum-v1": {"target_return": -200.0, "total_steps": 200_000, "batch_size": 64},
}


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line; other values come from the environment's preset."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--env-id", default="Pendulum-v1", help="one with Box actions that runs on a GPU")
    add("--option", action="append", default=[], type=env_option, metavar="KEY=VALUE",
        help="of the environment, such as max_episode_steps=100")  # fmt: skip
    add("--algorithm", choices=("sac", "ddpg"), default="sac", help="who learns")
    add("--device", default="cuda", help="cuda, cuda:1 or cpu-emulation")
    add("--engine", default="auto", help="auto, native (a kernel is the policy) or torch")
    add("--num-envs", type=int, default=64, help="environments")
    add("--rollout-length", type=int, default=8, help="steps per environment and rollout")
    add("--total-steps", type=int, default=1_000_000, help="env-steps to train for at most")
    add("--target-return", type=float, help="stop at this mean return of 100 episodes")
    add("--updates-per-step", type=float, default=1 / 16, help="gradient steps per env-step")
    add("--batch-size", type=int, default=256, help="transitions per gradient step")
    add("--replay-size", type=int, default=1_000_000, help="env-steps that are kept")
    add("--min-size", type=int, default=4_096, help="env-steps before the first gradient step")
    add("--n-step", type=int, default=1, help="rewards before a value stands in for the rest")
    add("--gamma", type=float, default=0.99, help="discount per step")
    add("--tau", type=float, default=0.005, help="of an update that a target network takes over")
    add("--learning-rate", type=float, default=1e-3, help="of Adam")
    add("--noise-std", type=float, default=0.2, help="DDPG: of each step, in halves of the range")
    add("--noise-damping", type=float, default=0.15, help="DDPG: share of the noise that goes")
    add("--eval-interval", type=int, default=20_000, help="env-steps between evaluations; 0: none")
    add("--eval-episodes", type=int, default=10, help="of an evaluation, without exploration")
    add("--seed", type=int, default=1, help="of environments, weights, noise and samples")
    add("--torch-threads", type=int, default=1, help="of what torch computes on the CPU")
    add("--run-dir", type=Path, help="outputs; by default runs/<env>-<time>")
    add_resume_arguments(parser)
    add("--checkpoint-interval-s", type=float, default=60.0, help="seconds between checkpoints")
    parser.set_defaults(learner_engine="torch")
    parser.set_defaults(**PRESETS.get(chosen_env_id(argv, "Pendulum-v1"), {}))
    return parser.parse_args(argv)


class DdpgActor(nn.Module):
    """Maps observations to actions within their bounds, and gives the noise's deviation."""

    middle: Tensor
    width: Tensor
    log_std: Tensor

    def __init__(
        self, obs_size: int, space: gymnasium.Space[Any], noise_std: float, hidden: int = 256
    ) -> None:
        super().__init__()
        head = SquashedGaussianHead.of(space)
        self.layers = nn.Sequential(
            *(nn.Flatten(), nn.Linear(obs_size, hidden), nn.ReLU()),
            *(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, len(head.low)), nn.Tanh()),
        )
        # outputs begin in the middle, where tanh has a gradient
        nn.init.uniform_(self.layers[-2].weight, -3e-3, 3e-3)
        self.register_buffer("middle", (head.high + head.low) / 2, persistent=False)
        self.register_buffer("width", (head.high - head.low) / 2, persistent=False)
        self.register_buffer("log_std", self.width.log() + log(noise_std), persistent=False)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Maps obs (B, ...) to mean and log_std (B, A), and to a value (B,) that is not used."""
        mean = self.layers(obs.float()) * self.width + self.middle
        return mean, self.log_std.expand_as(mean), mean.new_zeros(len(mean))


class DdpgLearner(Checkpointed):
    """Actor and critic, and slower copies of them for the targets."""

    saved = (
        *("actor", "critic", "target_actor", "target_critic"),
        *("actor_optimizer", "critic_optimizer", "updates"),
    )

    def __init__(self, args: argparse.Namespace) -> None:
        spec = spec_of(args)
        space = spec.single_action_space
        obs_size, action_size = sizes(spec.single_observation_space, space)
        self.device = torch.device(args.device)
        self.head = sac.head_of(space, args.device)
        torch.manual_seed(args.seed)

        def make() -> tuple[DdpgActor, sac.Critics]:
            actor = DdpgActor(obs_size, space, args.noise_std)
            return actor.to(self.device), sac.Critics(obs_size, action_size, count=1).to(
                self.device
            )

        self.actor, self.critic = make()
        self.target_actor, self.target_critic = make()
        self.target_actor.load_state_dict(self.actor.state_dict())
        self.target_critic.load_state_dict(self.critic.state_dict())
        self.policy = rollouts.TorchPolicy(self.actor, space, seed=args.seed, device=self.device)
        self.policy.head = OrnsteinUhlenbeckHead.of(space, args.noise_damping)
        self.of_actor, self.of_critic = [*self.actor.parameters()], [*self.critic.parameters()]
        self.of_targets = [*self.target_actor.parameters(), *self.target_critic.parameters()]
        self.actor_optimizer = adam(self.of_actor, args.learning_rate)
        self.critic_optimizer = adam(self.of_critic, args.learning_rate)
        self.move_target: Callable[..., None] = get_ema_multi_avg_fn(1 - args.tau)
        self.updates = 0

    def learn(self, batch: DeviceTransitions, *, learning_rate: float) -> tuple[Tensor, Any]:
        """Takes one gradient step of each network; returns the errors (B,), and logs."""
        for optimizer in (self.actor_optimizer, self.critic_optimizer):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate
        with torch.no_grad():
            following = self.target_critic(batch.next_obs, self.best(batch.next_obs, target=True))
            goal = batch.reward + batch.discount * following[0]
        # actions beyond the bounds were clipped on their way to the environment
        value = self.critic(batch.obs, self.head.unit(batch.action).clamp(-1, 1))[0]
        critic_loss = (batch.weight * (value - goal).square()).mean()
        descend(critic_loss, self.critic_optimizer, self.of_critic)
        actor_loss = -self.critic(batch.obs, self.best(batch.obs)).mean()
        descend(actor_loss, self.actor_optimizer, self.of_actor)
        self.move_target(self.of_targets, self.of_actor + self.of_critic, self.updates)
        self.updates += 1
        logs = {"critic": critic_loss.detach(), "actor": actor_loss.detach()}
        return (value - goal).detach().abs(), {**logs, "value": value.detach().mean()}

    def best(self, obs: Tensor, *, target: bool = False) -> Tensor:
        """Maps obs (B, ...) to actions (B, A) within [-1, 1]."""
        mean, *_ = (self.target_actor if target else self.actor)(obs)
        return self.head.unit(mean)

    @torch.no_grad()
    def act_greedily(self, obs: NDArray[Any]) -> NDArray[Any]:
        """Maps obs (B, ...) to actions (B, A) without noise."""
        mean, *_ = self.actor(torch.from_numpy(obs).to(self.device))
        action: NDArray[Any] = mean.cpu().numpy()
        return action.astype(self.head.dtype, copy=False)


def make_policy(
    spec: PolicySpec, *, algorithm: str, noise_std: float, noise_damping: float
) -> rollouts.TorchPolicy:
    """Makes the policy whose weights a checkpoint has."""
    if algorithm == "sac":
        return sac.make_policy(spec)
    space = spec.single_action_space
    actor = DdpgActor(*sizes(spec.single_observation_space), space, noise_std)
    policy = rollouts.TorchPolicy(actor, space, seed=spec.seed)
    policy.head = OrnsteinUhlenbeckHead.of(space, noise_damping)
    return policy


class DeviceTraining(EvaluatedRun):
    """A run on one device, which collects, stores, samples and learns there."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.env: Any = rollouts.make_vec(
            args.env_id,
            args.num_envs,
            device=args.device,
            seed=args.seed,
            autoreset_mode="same_step",
            **dict(args.option),
        )
        args.device = str(self.env.device)
        self.learner: Any = sac.Learner(args) if args.algorithm == "sac" else DdpgLearner(args)
        if args.algorithm == "sac":
            self.learner.policy.seed(args.seed)
            self.learner.policy.head = self.learner.head
        options = ("algorithm", "noise_std", "noise_damping")
        make = partial(make_policy, **{name: getattr(args, name) for name in options})
        super().__init__(args, self.learner, make, kind=f"{CHECKPOINT_KIND}, {args.algorithm}")
        if self.progress.updates:
            # a resumed run plays other episodes than those it was trained with
            of_env, of_noise = np.random.SeedSequence(
                (args.seed, self.progress.updates)
            ).generate_state(2)
            self.env.reset(seed=int(of_env))
            self.learner.policy.seed(int(of_noise))
        self.collector = rollouts.Collector(
            self.env,
            self.learner.policy,
            args.rollout_length,
            engine=args.engine,
            keep_final_obs=True,
        )
        self.replay = DeviceReplay(
            args.replay_size,
            NStep(args.n_step, args.gamma),
            device=self.env.device,
            seed=args.seed,
        )
        self.owed = 0.0  # gradient steps still to be made

    def loop(self, stop: Event) -> None:
        """Learns until the target, the last env-step or `stop`, saving now and then."""
        args, progress = self.args, self.progress
        writer, bar = self.make_writer(), self.make_bar()
        start = time.perf_counter() - progress.seconds
        next_save = progress.seconds + args.checkpoint_interval_s
        self.evaluate_if_due()
        with bar, writer:
            while not (self.is_finished() or stop.is_set()):
                rollout = self.collector.collect()
                self.replay.add(rollout)
                logs = self.learn(rollout.num_steps)
                returns = rollout.episodes().returns.cpu().numpy()
                # raises errors of the device
                self.env.synchronize()
                progress.add(
                    rollout.num_steps,
                    returns,
                    seconds=time.perf_counter() - start,
                    policy_lag=0.0,
                )
                self.learner.policy.policy_version = progress.policy_version
                report(progress, logs, bar=bar, writer=writer)
                self.evaluate_if_due()
                if progress.seconds >= next_save:
                    writer.flush()  # the logs never have less than the checkpoint
                    self.save()
                    next_save = progress.seconds + args.checkpoint_interval_s
        last = self.evaluations.rows[-1:]
        if args.eval_interval and last[0].env_steps < progress.env_steps:
            self.evaluate()

    def learn(self, num_steps: int) -> dict[str, float]:
        """Takes the gradient steps for a number of env-steps; returns the values to log."""
        args = self.args
        if len(self.replay) < min(args.min_size, args.replay_size // 2):
            return {}
        self.owed += num_steps * args.updates_per_step
        logs: dict[str, Any] = {}
        while self.owed >= 1:
            batch = self.replay.sample(args.batch_size)
            _, logs = self.learner.learn(batch, learning_rate=args.learning_rate)
            self.owed -= 1
        return {name: float(value) for name, value in logs.items()}

    def summary(self) -> str:
        """One line about the whole run."""
        progress = self.progress
        rate = progress.env_steps / max(progress.seconds, 1e-9)
        return (
            f"{self.args.env_id}: {self.result()}, {progress.env_steps:,} env-steps in "
            f"{progress.seconds:.1f} s on {self.env.device} ({rate:,.0f} env-steps/s), "
            f"{len(self.replay):,} in {self.replay.nbytes / 2**20:,.1f} MiB of replay; outputs in "
            f"{self.dir}"
        )


def main() -> int:
    """Trains; returns 0, 1 where the target was missed, 2 where it could not begin, or 130."""
    args = parse_args()
    title = f"{args.algorithm.upper()} on {args.env_id}, {args.num_envs} environments"
    try:
        training = make_run(args, lambda: DeviceTraining(args))
    except rollouts.RolloutsError as error:
        print(f"sac_on_device: {error}", file=sys.stderr)
        return 2
    return training.run(training.loop, f"{title} on {training.env.device}")


if __name__ == "__main__":
    sys.exit(main())
