# SPDX-License-Identifier: Apache-2.0
"""PPO whose environments, policies and learners stay on one GPU: one agent, or groups of them.

    python examples/ppo_on_device.py                                  on the GPU that is there
    python examples/ppo_on_device.py --device cpu-emulation           its kernels as loops, slowly
    python examples/ppo_on_device.py --env-id Pendulum-v1 --gamma 0.9 continuous actions
    python examples/ppo_on_device.py --env-id InvertedPendulum-v5     physics of mujoco_warp
    python examples/ppo_on_device.py --env-id TagContinuous-v0 --gif  5 taggers, 100 runners
    python examples/ppo_on_device.py --num-epochs 1 --num-minibatches 1    is A2C
    torchrun --nproc-per-node 2 examples/ppo_on_device.py             on two GPUs
    python examples/ppo_on_device.py --recurrent              a GRU, CartPole without velocities
    python examples/ppo_on_device.py --warpdrive-yaml tag.yaml            settings of WarpDrive

Kernels step the environments, compute the policies and estimate advantages; torch learns. Nothing
is copied to the host, and nothing waits for the device until the end of each update, when the
returns of episodes are read; with --prefetch the next rollout runs meanwhile. The agents of a group
share a policy, and with --shared all groups have one. Its network is that of ppo.py, which uses the
CPU's environments, or with --recurrent that of recurrent_ppo.py, which learns whole sequences. With
one epoch of one minibatch the probability ratio is 1 when its gradient is taken, so that the
gradient is the same as in A2C. With several processes, each steps --num-envs environments of its
own and takes the mean of all gradients (DistributedDataParallel).
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import Any

import torch
from common.data_parallel import Processes
from common.device_learner import Episodes, Learner, RecurrentLearner
from common.filming import film
from common.plotting import save_group_curves
from common.tag import OPTIONS
from common.training import env_option
from common.warpdrive import read_warpdrive
from gymnasium import spaces
from recurrent_ppo import agent_options
from torch.utils.tensorboard import SummaryWriter
from tqdm.auto import tqdm

import rollouts
from rollouts.checkpoint import Checkpoint, save_checkpoint
from rollouts.returns import Gae

TARGETS = {"CartPole-v1": 475.0}
CART = [0, 2], [2.0, 20.0]  # positions, and their factors
CHECK_EVERY = 16  # updates
ALONE = ""  # the group of environments with one agent


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--warpdrive-yaml", type=Path, help="configuration of WarpDrive's TagGridWorld or "
        "TagContinuous, in place of the defaults below")  # fmt: skip
    add("--env-id", default="CartPole-v1", help="one that runs on a GPU: see `rollouts envs`")
    add("--option", action="append", default=[], type=env_option, metavar="KEY=VALUE",
        help="of the environment, such as max_episode_steps=100")  # fmt: skip
    add("--device", default="cuda", help="cuda, cuda:1 or cpu-emulation")
    add("--engine", default="auto", help="auto, native (a kernel is the policy) or torch")
    add("--cuda-graph", action="store_true", help="record a rollout's launches once")
    add("--policy-dtype", default="float32", help="bfloat16: act by large networks on tensor cores")
    add("--prefetch", action="store_true", help="step while learning, by the weights before")
    add("--bf16", action="store_true", help="learn with bfloat16 matrices")
    add("--compile", action="store_true", help="have torch compile the loss")
    add("--num-envs", type=int, default=1024, help="environments")
    add("--rollout-length", type=int, default=32, help="steps per environment and update")
    add("--total-steps", type=int, default=3_000_000, help="env-steps to train for at most")
    add("--target-return", type=float, help="stop at this mean return; default: 475 for CartPole")
    add("--train", nargs="+", metavar="GROUP", help="groups that learn; the others stay as begun")
    add("--shared", action="store_true", help="one policy for all groups of agents")
    add("--hidden", type=int, nargs="+", default=[64, 64], help="sizes of hidden layers")
    add("--recurrent", action="store_true", help="a policy with memory, for Discrete actions")
    add("--visible", type=int, nargs="+", help="--recurrent: observed numbers that it is shown; "
        "default: positions of CartPole, else all")  # fmt: skip
    add("--scale", type=float, nargs="+", help="factor of each of them")
    add("--no-memory", action="store_true", help="--recurrent: forget everything after each step")
    add("--learning-rate", type=float, default=3e-3, help="of Adam")
    add("--anneal", action=argparse.BooleanOptionalAction, default=True, help="the rate falls to 0")
    add("--num-epochs", type=int, default=4, help="passes over each batch")
    add("--num-minibatches", type=int, default=4, help="gradient steps per pass")
    add("--max-rows", type=int, help="agent-steps of a group that an update learns from; all")
    add("--gamma", type=float, default=0.99, help="discount per step")
    add("--gae-lambda", type=float, default=0.95, help="see rollouts.returns.gae")
    add("--clip", type=float, default=0.2, help="how far the probability ratio counts")
    add("--normalize-advantage", action=argparse.BooleanOptionalAction, default=True,
        help="to mean 0 and deviation 1 in each minibatch")  # fmt: skip
    add("--value-coef", type=float, default=0.25, help="weight of the value loss")
    add("--entropy-coef", type=float, default=0.0, help="weight of the entropy bonus")
    add("--max-grad-norm", type=float, default=0.5, help="gradients are scaled down to this")
    add("--seed", type=int, default=1, help="of environments, weights and actions")
    add("--torch-threads", type=int, default=1, help="of what torch computes on the CPU")
    add("--run-dir", type=Path, help="where checkpoint, curves and TensorBoard's file go")
    add("--gif", action="store_true", help="film an episode of several agents; needs --run-dir")
    args = parser.parse_args(argv)
    if args.warpdrive_yaml is not None:
        # the command line overrides the file
        try:
            parser.set_defaults(**read_warpdrive(args.warpdrive_yaml))
        except (OSError, rollouts.SpecError) as error:
            parser.error(str(error))
        args = parser.parse_args(argv)
    if args.visible is None:
        # positions change by hundredths from step to step, so that they are scaled up
        args.visible, args.scale = CART if args.env_id == "CartPole-v1" else (None, None)
    if args.target_return is None:
        args.target_return = TARGETS.get(args.env_id)
    is_alone = args.env_id not in rollouts.multi_agent_ids()
    if is_alone and args.gif:
        parser.error("--gif films several agents: `rollouts record --policy` films one")
    if not is_alone and args.target_return is not None:
        parser.error("--target-return is of one agent's episodes")
    if args.gif and args.run_dir is None:
        parser.error("--gif needs --run-dir, where the film goes")
    return args


class Trainer:
    """Environments, and a learner for each group of agents, on one device."""

    def __init__(self, args: argparse.Namespace, processes: Processes) -> None:
        self.args, self.processes = args, processes
        if args.recurrent and processes.count > 1:
            raise rollouts.SpecError("--recurrent learns in one process: leave torchrun out")
        self.options = {**OPTIONS.get(args.env_id, {}), **dict(args.option)}
        env: Any = rollouts.make_vec(
            args.env_id,
            args.num_envs,
            device=processes.device,
            seed=args.seed,
            # random streams are those of one pool with the environments of all processes
            env_id_offset=processes.rank * args.num_envs,
            autoreset_mode="same_step",
            **self.options,
        )
        self.env, self.device = env, env.device
        torch.manual_seed(args.seed)
        self.learners = self.make_learners(getattr(env, "groups", None) or {ALONE: env})
        self.episodes = {name: Episodes(processes) for name in self.learners}
        self.trained = {*(args.train or self.learners)}
        if not self.trained <= {*self.learners}:
            known = ", ".join(filter(None, self.learners)) or "none: leave --train out"
            raise rollouts.SpecError(
                f"--train {' '.join(args.train)}: groups of {args.env_id} are {known}"
            )
        policies = {name: learner.policy for name, learner in self.learners.items()}
        self.collector = rollouts.Collector(
            env,
            policies.get(ALONE, policies),
            args.rollout_length,
            returns=Gae(gamma=args.gamma, gae_lambda=args.gae_lambda),
            engine=args.engine,
            prefetch=int(args.prefetch),
            cuda_graph=args.cuda_graph,
            policy_dtype=args.policy_dtype,
        )
        self.num_updates = 0
        # rollouts of a whole episode, where agents may leave before the others
        longest = env.env_spec.max_episode_steps or 1
        self.num_rollouts = 1 if ALONE in self.learners else -(-longest // args.rollout_length)

    def make_learners(self, groups: dict[str, Any]) -> dict[str, Learner]:
        """Makes a learner for each group."""
        args, learners = self.args, {}
        spaces_of = {
            repr((x.single_observation_space, x.single_action_space)) for x in groups.values()
        }
        if args.shared and len(spaces_of) > 1:
            raise rollouts.SpecError(
                f"--shared: groups of {args.env_id} differ in what they observe or do"
            )
        for name, group in groups.items():
            obs_space, action_space = group.single_observation_space, group.single_action_space
            if not isinstance(obs_space, spaces.Box):
                raise rollouts.SpecError(f"{args.env_id} shows no numbers a network could read")
            if args.recurrent and args.visible is None:
                args.visible = [*range(obs_space.shape[0])]
                args.scale = [1.0] * len(args.visible)
            if not (args.shared and learners):
                learner = (RecurrentLearner if args.recurrent else Learner)(
                    obs_space, action_space, self.device, args, self.processes
                )
            learners[name] = learner
        return learners

    def update(self, learning_rate: float) -> dict[str, float]:
        """Collects a rollout and learns from it; returns the groups' mean returns of episodes."""
        found = self.collector.collect()
        rollouts_of = {ALONE: found} if ALONE in self.learners else found
        for learner in {id(one): one for one in self.learners.values()}.values():
            own = [x for name, x in rollouts_of.items() if self.learns(name, learner)]
            if own:
                learner.update(own, learning_rate)
                learner.policy.policy_version += 1
        for name, rollout in rollouts_of.items():
            self.episodes[name].count(rollout)
        self.num_updates += 1
        if self.num_updates % CHECK_EVERY == 0:
            # waits for the device, and raises its errors
            self.env.synchronize()
        return {name: one.mean_return(self.num_rollouts) for name, one in self.episodes.items()}

    def learns(self, name: str, learner: Learner) -> bool:
        """Tells if a learner learns from the steps of a group."""
        return name in self.trained and self.learners[name] is learner

    def save(self, env_steps: int) -> None:
        """Writes the checkpoint; the networks are made by ppo.py or recurrent_ppo.py."""
        args = self.args
        network: dict[str, Any] = {"program": "examples/ppo.py"}
        if args.recurrent:
            network = {
                "program": "examples/recurrent_ppo.py",
                "program_options": agent_options(args),
            }
        elif args.hidden != [64, 64]:
            network["program_options"] = {"hidden": args.hidden}
        weights = {
            f"{name}/{key}" if name else key: value
            for name, learner in self.learners.items()
            for key, value in learner.model.state_dict().items()
        }
        checkpoint = Checkpoint(
            id=args.env_id,
            env_options=self.options,
            **network,
            weights=weights,
            policy_version=1 + max(one.policy.policy_version for one in self.learners.values()),
            env_steps=env_steps,
            seed=args.seed,
        )
        save_checkpoint(args.run_dir, checkpoint)

    def film(self) -> int:
        """Films an episode in a C++ pool, with the exploration of training; returns its frames."""
        policies = {
            name: rollouts.TorchPolicy(one.model.cpu(), one.action_space, seed=self.args.seed)
            for name, one in self.learners.items()
        }
        return film(
            self.args.run_dir / "episode.gif",
            self.args.env_id,
            policies,
            options=self.options,
            seed=self.args.seed,
        )


def main() -> int:
    """Trains; returns 0, 1 where a target was missed, or 2 where it could not begin."""
    args = parse_args()
    torch.set_num_threads(args.torch_threads)
    processes = Processes(args.device)
    try:
        return train(Trainer(args, processes), args, processes)
    except rollouts.RolloutsError as error:
        print(f"ppo_on_device: {error}", file=sys.stderr)
        return 2
    finally:
        processes.close()


def train(trainer: Trainer, args: argparse.Namespace, processes: Processes) -> int:
    """Trains until the end or the target; the first process writes all outputs."""
    writes = args.run_dir is not None and processes.is_first
    writer = SummaryWriter(args.run_dir) if writes else None
    history: dict[str, list[tuple[int, float]]] = {name: [] for name in trainer.learners}
    means = dict.fromkeys(trainer.learners, math.nan)
    env_steps, per_update = 0, processes.count * args.num_envs * args.rollout_length
    with tqdm(
        total=args.total_steps,
        unit=" env-steps",
        unit_scale=True,
        disable=not processes.is_first,
    ) as bar:
        while env_steps < args.total_steps:
            left = 1 - env_steps / args.total_steps if args.anneal else 1.0
            means = trainer.update(args.learning_rate * left)
            env_steps += per_update
            bar.set_postfix_str(told(means), refresh=False)
            bar.update(per_update)
            for name, mean in means.items():
                if not math.isnan(mean):
                    history[name].append((env_steps, mean))
                    if writer is not None:
                        writer.add_scalar(f"return/{name or 'agent'}", mean, env_steps)
            if args.target_return is not None and means.get(ALONE, -math.inf) >= args.target_return:
                break
    trainer.env.synchronize()
    if not processes.is_first:
        return 0
    print(f"mean {told(means)} after {env_steps} env-steps on {trainer.device}")
    if writer is not None:
        writer.close()
        trainer.save(env_steps)
        title = f"PPO on {args.env_id}, {args.num_envs} environments on {args.device}"
        save_group_curves(args.run_dir / "training.png", history, title=title)
    if args.gif:
        print(f"{trainer.film()} frames of an episode in {args.run_dir / 'episode.gif'}")
    if args.target_return is None or means.get(ALONE, -math.inf) >= args.target_return:
        return 0
    print(
        f"the target was missed: no 100 episodes had a mean return of {args.target_return:g}",
        file=sys.stderr,
    )
    return 1


def told(means: dict[str, float]) -> str:
    """The groups' mean returns as text."""
    return ", ".join(f"return {name} {mean:.1f}".replace("  ", " ") for name, mean in means.items())


if __name__ == "__main__":
    sys.exit(main())
