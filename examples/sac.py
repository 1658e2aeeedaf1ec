# SPDX-License-Identifier: Apache-2.0
"""Soft actor-critic: workers with continuous actions fill a replay, a learner samples from it.

    python examples/sac.py                              HalfCheetah-v5, two Ray workers
    python examples/sac.py --env-id Pendulum-v1         a minute
    python examples/sac.py --num-workers 0              in this process, without Ray
    python examples/sac.py --resume runs/<run>          goes on, its replay too with --save-replay

As Haarnoja et al. 2018 (b): a squashed Gaussian, the smaller value of two critics, and a tuned
weight of the entropy. The rate limiter of the replay keeps --updates-per-step gradient steps for
each env-step, so that results do not depend on the workers' speed. `compare_sac.py` trains the same
with Stable-Baselines3.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from math import log, prod
from threading import Event
from typing import Any

import gymnasium
import numpy as np
import torch
from common.checkpoint import Checkpointed
from common.evaluated_run import EvaluatedRun
from common.native_learning import add_learner_engine, read_or_none
from common.replay_training import ReplayTraining, add_replay_arguments, make_table, run
from common.training import chosen_env_id, run_parser, spec_of
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

import rollouts
from rollouts.learner.loss_learner import LossLearner, TargetNetwork
from rollouts.learner.row_losses import SacActorLoss, SacCriticLoss, TemperatureLoss
from rollouts.policy import SquashedGaussianHead
from rollouts.replay import DeviceTransitions, NStep, ReplayService, SequenceBatch
from rollouts.replay.sampling import ReplayBatch
from rollouts.workers import PolicySpec, QueueLimits

CHECKPOINT_KIND = "rollouts examples/sac.py, version 2"

# the tanh of a normal number of mean 0 and this deviation is almost uniformly distributed
EVEN_LOG_STD = log(0.85)

# options that differ between environments; the command line overrides each
PRESETS: dict[str, dict[str, Any]] = {
    "Pendulum-v1": {
        "total_steps": 20_000,
        "learning_rate": 1e-3,
        "min_size": 1_000,
        "eval_interval": 2_000,
    },
}


def parse_args(
    argv: list[str] | None = None, *, doc: str | None = __doc__, **defaults: Any
) -> argparse.Namespace:
    """Reads the command line; other values come from the environment's preset."""
    parser = run_parser(doc)
    add_replay_arguments(parser)
    add = parser.add_argument
    add("--updates-per-step", type=float, default=1.0, help="gradient steps per env-step")
    add("--tau", type=float, default=0.005, help="of an update that a target network takes over")
    add("--eval-interval", type=int, default=5_000, help="env-steps between evaluations; 0: none")
    add("--eval-episodes", type=int, default=10, help="of an evaluation, without exploration")
    add_learner_engine(parser)
    # small fragments and none ahead, since the learner is the slower side
    parser.set_defaults(env_id="HalfCheetah-v5", total_steps=1_000_000, num_shards=0, num_envs=4)
    parser.set_defaults(rollout_length=8, learning_rate=3e-4, anneal=False, n_step=1)
    parser.set_defaults(replay_size=1_000_000, min_size=10_000, priority_exponent=0.0)
    for name, default in defaults.items():
        add(f"--{name.replace('_', '-')}", **default)
    env_id = chosen_env_id(argv, parser.get_default("env_id"))
    parser.set_defaults(**PRESETS.get(env_id, {}))
    args = parser.parse_args(argv)
    args.samples_per_insert = args.updates_per_step * args.batch_size
    return args


class Actor(nn.Module):
    """A Gaussian over actions before they are squashed.

    It begins with actions that are spread evenly, whatever it observes: the share of actions below
    any number is within 0.01 of the uniform distribution's. So the policy explores until it
    has learned something.
    """

    def __init__(self, obs_size: int, action_size: int, hidden: int = 256) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Flatten(), nn.Linear(obs_size, hidden), nn.ReLU()),
            *(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 2 * action_size)),
        )
        nn.init.zeros_(self.layers[-1].weight)
        with torch.no_grad():
            self.layers[-1].bias.copy_(
                torch.tensor([0.0, EVEN_LOG_STD]).repeat_interleave(action_size)
            )

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Maps obs (B, ...) to mean and log_std (B, A), and to a value (B,) that is not used."""
        mean, log_std = self.layers(obs.float()).chunk(2, -1)
        return mean, log_std.clamp(-20, 2), mean.new_zeros(len(mean))


class Critics(nn.Module):
    """Networks that value an action; two are computed as one with twice the matrices."""

    def __init__(
        self, obs_size: int, action_size: int, hidden: int = 256, *, count: int = 2
    ) -> None:
        super().__init__()
        sizes = (obs_size + action_size, hidden), (hidden, hidden), (hidden, 1)
        # initialised as nn.Linear is; native code reads this order of axes fastest
        self.weights = nn.ParameterList(uniform(count, o, i, bound=i**-0.5) for i, o in sizes)
        self.biases = nn.ParameterList(uniform(count, 1, o, bound=i**-0.5) for i, o in sizes)

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        """Maps obs (B, ...) and action (B, A) within [-1, 1] to values (count, B)."""
        features = torch.cat([obs.flatten(1), action], -1).expand(len(self.weights[0]), -1, -1)
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            features = torch.baddbmm(bias, features.relu() if i else features, weight.mT)
        return features[..., 0]


def uniform(*shape: int, bound: float) -> nn.Parameter:
    """Draws weights from [-bound, bound]."""
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))


def make_policy(spec: PolicySpec) -> rollouts.TorchPolicy:
    """Makes a policy in the process that samples with it; its weights arrive before it acts."""
    space = spec.single_action_space
    actor = Actor(*sizes(spec.single_observation_space, space))
    policy = rollouts.TorchPolicy(actor, space, seed=spec.seed)
    policy.head = head_of(space)
    return policy


def head_of(space: gymnasium.Space[Any], device: str = "cpu") -> SquashedGaussianHead:
    """Returns the head that draws the actions.

    Raises:
      ValueError: the space is no Box of finite bounds with one row of numbers.
    """
    if len(space.shape or ()) != 1:
        raise ValueError(f"this example needs Box actions (A,), the env has {space}")
    return SquashedGaussianHead.of(space, device)


def sizes(*spaces: gymnasium.Space[Any]) -> tuple[int, ...]:
    """The number of elements in a value of each space."""
    return tuple(prod(space.shape or ()) for space in spaces)


class Learner(Checkpointed):
    """Actor, critics, a slower copy of the critics for the targets, and the entropy's weight."""

    saved = (
        *("actor", "critics", "target", "log_alpha"),
        *("actor_optimizer", "critic_optimizer", "rng", "updates"),
    )
    policy_state: tuple[NDArray[Any], ...] = ()

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        spec = spec_of(args)
        spaces = spec.single_observation_space, spec.single_action_space
        self.head = head_of(spaces[1], args.device)
        torch.manual_seed(args.seed)
        self.actor = Actor(*sizes(*spaces)).to(args.device)
        self.critics = Critics(*sizes(*spaces)).to(args.device)
        self.target = Critics(*sizes(*spaces)).to(args.device).requires_grad_(False)
        self.target.load_state_dict(self.critics.state_dict())
        self.policy = rollouts.TorchPolicy(self.actor, spaces[1], device=args.device)
        self.log_alpha = torch.zeros((), device=args.device, requires_grad=True)
        self.target_entropy = -float(len(self.head.low))

        # one optimiser for actor and alpha, whose gradients are computed at the same time
        self.of_actor = [*self.actor.parameters(), self.log_alpha]
        self.of_critics = list(self.critics.parameters())
        self.actor_optimizer = adam(self.of_actor, args.learning_rate)
        self.critic_optimizer = adam(self.of_critics, args.learning_rate)
        self.move_target: Callable[..., None] = get_ema_multi_avg_fn(1 - args.tau)
        self.rng = torch.Generator(args.device).manual_seed(args.seed)
        self.updates = 0
        self.native = read_or_none(lambda: NativeSteps(self), args.learner_engine)

    def learn(
        self, batch: ReplayBatch | DeviceTransitions, *, learning_rate: float
    ) -> tuple[Tensor, dict[str, Any]]:
        """Takes one gradient step of each network; returns the errors (B,), and logs."""
        assert not isinstance(batch, SequenceBatch)
        for optimizer in (self.actor_optimizer, self.critic_optimizer):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate
        self.updates += 1
        if self.native is not None:
            return self.native.learn(batch)
        # MuJoCo's observations are doubles
        obs, next_obs = batch.obs.float(), batch.next_obs.float()
        alpha = self.log_alpha.detach().exp()

        # batch.discount is 0 where the episode terminated; where it was truncated, next_obs is the
        # true final one, whose value counts
        with torch.no_grad():
            next_action, next_log_prob = self.sample_action(next_obs)
            following = self.target(next_obs, next_action).amin(0) - alpha * next_log_prob
            goal = batch.reward + batch.discount * following

        value = self.critics(obs, self.head.unit(batch.action))
        critic_loss = 0.5 * (batch.weight * (value - goal).square()).mean(1).sum()
        descend(critic_loss, self.critic_optimizer, self.of_critics)

        # the gradient passes through the critics, but does not change them
        action, log_prob = self.sample_action(obs)
        actor_loss = (alpha * log_prob - self.critics(obs, action).amin(0)).mean()
        entropy = -log_prob.detach().mean()
        alpha_loss = self.log_alpha * (entropy - self.target_entropy)
        descend(actor_loss + alpha_loss, self.actor_optimizer, self.of_actor)

        self.move_target(list(self.target.parameters()), self.of_critics, self.updates)
        error = (value - goal).detach().abs().mean(0)
        logs = {"critic": critic_loss.detach(), "actor": actor_loss.detach(), "alpha": alpha}
        return error + 1e-6, {**logs, "entropy": entropy, "value": value.detach().mean()}

    def sample_action(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Draws actions (B, A) within [-1, 1] and returns them with their log_prob (B,)."""
        mean, log_std, _ = self.actor(obs)
        noise = torch.empty_like(mean).normal_(generator=self.rng)
        return self.head.squash(mean, log_std, noise)

    @torch.no_grad()
    def act_greedily(self, obs: NDArray[Any]) -> NDArray[Any]:
        """Maps obs (B, ...) to actions (B, A): the squashed means of the Gaussians."""
        mean, *_ = self.actor(torch.from_numpy(obs).to(self.args.device))
        action: NDArray[Any] = self.head.scaled(mean.tanh()).cpu().numpy()
        return action.astype(self.head.dtype, copy=False)


def adam(parameters: list[Any], learning_rate: float) -> torch.optim.Adam:
    """The optimiser; fused, because otherwise it takes a tenth of an update of such networks."""
    return torch.optim.Adam(parameters, lr=learning_rate, fused=True)


def descend(loss: Tensor, optimizer: torch.optim.Adam, parameters: list[Any]) -> None:
    """Takes a gradient step of `parameters`; gradients of others are not even computed."""
    optimizer.zero_grad()
    torch.autograd.backward(loss, inputs=parameters)
    optimizer.step()


class NativeSteps:
    """The gradient steps of `Learner.learn` in native code, from the same random numbers."""

    def __init__(self, learner: Learner) -> None:
        """Reads the networks. Raises SpecError where native code lacks a layer."""
        self.learner, self.threads = learner, learner.args.torch_threads
        shape = (learner.actor.layers[1].in_features,)
        size = len(learner.head.low)
        actor, critics = Normal(learner.actor), Apart(learner.critics)
        # far from 0 the slope of tanh rounds to 0, and its logarithm would not be finite
        options: Any = {"epsilon": 1e-30}
        critic_loss = SacCriticLoss(
            actor, critics, Apart(learner.target), shape, size, weighted=True, **options
        )
        actor_loss = SacActorLoss(actor, critics, shape, size, **options)
        self.critic = LossLearner(critic_loss, learner.critic_optimizer, self.threads)
        self.actor = LossLearner(actor_loss, learner.actor_optimizer, self.threads)
        # alpha has a loss of its own, but shares the actor's optimiser
        self.alpha = LossLearner(TemperatureLoss(learner.log_alpha), learner.actor_optimizer)
        self.target = TargetNetwork(learner.critics, learner.target)

    def learn(self, batch: Any) -> tuple[Tensor, dict[str, Any]]:
        """As `Learner.learn`."""
        learner = self.learner
        alpha = float(learner.log_alpha.detach().exp())
        unit = learner.head.unit(batch.action)
        names = "obs", "reward", "discount", "next_obs", "weight"
        parts = {name: getattr(batch, name).numpy() for name in names}
        noise = [torch.empty_like(unit).normal_(generator=learner.rng) for _ in range(2)]
        heat = np.full((len(unit), 1), alpha, np.float32)

        # `step` is safe: nothing changes the networks between two steps
        parts |= {"action": unit.numpy(), "noise": noise[0].numpy(), "temperature": heat}
        critic = self.critic.step(parts)
        parts = {"obs": parts["obs"], "noise": noise[1].numpy(), "temperature": heat}
        actor = self.actor.step(parts)
        log_prob = float(actor.outputs[:, 1].mean())
        self.alpha.step({"excess": np.array([[log_prob + learner.target_entropy]])})
        self.target.move(learner.args.tau)
        _, _, value, error = critic.outputs.T
        logs = {"critic": critic.loss, "actor": actor.loss, "alpha": alpha, "entropy": -log_prob}
        return torch.from_numpy(error + 1e-6), {**logs, "value": float(value.mean())}


class Normal(nn.Module):
    """An actor's mean and log_std without the value."""

    def __init__(self, actor: Actor) -> None:
        super().__init__()
        self.actor = actor

    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        """Maps obs (B, ...) to mean and log_std (B, A)."""
        mean, log_std, _ = self.actor(obs)
        return mean, log_std


class Apart(nn.Module):
    """Critics one after the other, with the same weights."""

    def __init__(self, critics: Critics) -> None:
        super().__init__()
        self.critics = critics

    def forward(self, obs: Tensor, action: Tensor) -> tuple[Tensor, ...]:
        """Maps obs (B, ...) and action (B, A) to a value (B, 1) of each critic."""
        weights, biases = self.critics.weights, self.critics.biases
        values = []
        for critic in range(len(weights[0])):
            features = torch.cat([obs.flatten(1), action], -1)
            for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
                features = features.relu() if i else features
                features = nn.functional.linear(features, weight[critic], bias[critic, 0])
            values.append(features)
        return tuple(values)


class SacTraining(EvaluatedRun, ReplayTraining):
    """A training that is interrupted now and then to evaluate the policy without exploration."""

    learner: Learner

    def loop(
        self, coordinator: rollouts.RolloutCoordinator, replay: ReplayService, stop: Event
    ) -> None:
        """Learns until the last env-step or `stop`, and evaluates the result."""
        super().loop(coordinator, replay, stop)
        if self.args.eval_interval:
            self.evaluate()

    def learn(
        self, sample: Callable[[], ReplayBatch], replay: ReplayService
    ) -> tuple[float, dict[str, float]]:
        """Takes the gradient steps between two sets of weights; returns policy lag and logs."""
        self.evaluate_if_due()
        return super().learn(sample, replay)


def main() -> int:
    """Trains; returns 0, 1 where the target was missed, or 130 after Ctrl-C."""
    args = parse_args()
    return run(
        args,
        Learner,
        make_policy,
        make_table(args, NStep(args.n_step, args.gamma), tolerance=0.0),
        kind=CHECKPOINT_KIND,
        title=f"SAC on {args.env_id}, {max(1, args.num_workers)} x {args.num_envs} environments",
        queue=QueueLimits(credits_per_worker=1),
        training_type=SacTraining,
    )


if __name__ == "__main__":
    sys.exit(main())
