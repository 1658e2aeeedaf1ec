# SPDX-License-Identifier: Apache-2.0
"""The training loop for several agents: rollouts, checkpoints, resuming, plots."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

import rollouts
from common.agents import AgentEnvs, Batches, collecting
from common.checkpoint import program_of, read_training, resumed_run
from common.plotting import save_group_curves
from common.stopping import stop_on_interrupt
from rollouts.checkpoint import Checkpoint, save_checkpoint
from rollouts.workers import PolicySpec


class Group(Protocol):
    """The learner of one group of agents."""

    actor: torch.nn.Module
    policy: rollouts.TorchPolicy
    optimizer: torch.optim.Optimizer

    def update(self, batch: rollouts.RolloutBatch, joint: Tensor) -> float:
        """Learns from one batch; returns the policy's entropy."""
        ...

    def state(self) -> dict[str, Any]:
        """Everything a checkpoint needs."""
        ...

    def load_state(self, state: dict[str, Any]) -> None:
        """Goes back to a state that `state` returned."""
        ...


def flat(batch: rollouts.RolloutBatch) -> Tensor:
    """(T + 1, rows, size) float32: what agents observe at each step and after the last."""
    obs = torch.from_numpy(np.concatenate([batch.obs, batch.last_obs[None]]))
    return obs.flatten(2).float()


def joint_observation(batches: Batches, num_envs: int) -> Tensor:
    """(T + 1, B, size): the observations of all agents of an environment, one after the other."""
    seen = [flat(batch) for batch in batches.values()]
    return torch.cat([each.reshape(len(each), num_envs, -1) for each in seen], dim=-1)


class AgentTraining:
    """A run with several agents: its progress, its outputs, and its loop."""

    def __init__(
        self,
        args: argparse.Namespace,
        envs: AgentEnvs,
        groups: Mapping[str, Group],
        make_policy: Callable[[PolicySpec], rollouts.TorchPolicy],
        *,
        kind: str,
    ) -> None:
        """Goes on with the run that args.resume names, or begins a new one.

        Args:
          args: arguments of examples/mappo.py.
          envs: environments that are stepped.
          groups: learners, by the agents' group.
          make_policy: a functools.partial of the program's function, called in each worker.
          kind: kind of the checkpoint: the program and its version.

        Raises:
          ValueError: the checkpoint is of another run, or damaged. FileNotFoundError: as named.
        """
        self.args, self.envs, self.groups, self.kind = args, envs, dict(groups), kind
        self.make_policy, self.made_by = make_policy, program_of(make_policy)
        self.per_update = max(1, args.num_workers) * args.num_envs * args.rollout_length
        self.num_updates = math.ceil(args.total_steps / self.per_update)
        # rollouts of a whole episode, over which returns are averaged: agents that leave early end
        # their episodes in other rollouts than agents that stay
        self.whole = math.ceil((envs.max_episode_steps or 1) / args.rollout_length)
        self.recent: dict[str, deque[list[float]]] = {
            name: deque(maxlen=max(20, self.whole)) for name in groups
        }
        self.history: dict[str, list[tuple[int, float]]] = {name: [] for name in groups}
        self.updates, self.env_steps = 0, 0
        self.collecting_s, self.seconds = 0.0, 0.0
        args.resume = resumed_run(args)
        if args.resume:
            self.load(args.resume)

    def load(self, path: Path) -> None:
        """Goes on from a checkpoint. Raises ValueError where that is not possible."""
        expected = {"id": self.envs.name, "env_options": dict(self.envs.options)}
        state = read_training(path, self.kind, **expected)
        if state["critic"] != self.args.critic or state["hidden"] != self.args.hidden:
            raise rollouts.SpecError(
                f"{path} has --critic {state['critic']} --hidden {state['hidden']}: resume with "
                "the arguments of the first run"
            )
        for name, group in self.groups.items():
            group.load_state(state["groups"][name])
            self.recent[name].extend(state["recent"][name])
            self.history[name] = [tuple(point) for point in state["history"][name]]
        self.updates, self.env_steps = state["updates"], state["env_steps"]
        torch.set_rng_state(state["rng"])
        for group in self.groups.values():
            group.policy.policy_version = self.updates
            # other random numbers than those that the actions so far were drawn with
            group.policy.seed(self.seed)

    @property
    def seed(self) -> int:
        """The environments' seed: a resumed run plays other episodes than those it learned from."""
        if not self.updates:
            return int(self.args.seed)
        return int(np.random.SeedSequence((self.args.seed, self.updates)).generate_state(1)[0])

    def save(self) -> None:
        """Writes the checkpoint of the groups' policies, and what `load` reads."""
        training = {
            "kind": self.kind,
            "groups": {name: group.state() for name, group in self.groups.items()},
            "recent": {name: list(returns) for name, returns in self.recent.items()},
            "history": {name: list(points) for name, points in self.history.items()},
            "updates": self.updates,
            "env_steps": self.env_steps,
            "rng": torch.get_rng_state(),
            "critic": self.args.critic,
            "hidden": self.args.hidden,
        }
        checkpoint = Checkpoint(
            id=self.envs.name,
            env_options=dict(self.envs.options),
            weights={
                f"{name}/{key}": value
                for name, group in self.groups.items()
                for key, value in group.actor.state_dict().items()
            },
            policy_version=1 + self.updates,
            env_steps=self.env_steps,
            seed=self.args.seed,
            training=training,
            **self.made_by,
        )
        save_checkpoint(self.args.run_dir, checkpoint)

    def learn(self, batches: Batches) -> str:
        """Makes one update of each group; returns a line that describes it."""
        joint = joint_observation(batches, max(1, self.args.num_workers) * self.args.num_envs)
        left = max(0.0, 1 - self.env_steps / (self.num_updates * self.per_update))
        self.updates += 1
        self.env_steps += self.per_update
        told = []
        for name, group in self.groups.items():
            for settings in group.optimizer.param_groups:
                settings["lr"] = self.args.learning_rate * left
            entropy = group.update(batches[name], joint)
            group.policy.policy_version += 1
            recent = self.recent[name]
            recent.append(batches[name].episodes().returns.tolist())
            returns = [each for update in recent for each in update]
            shown = float(np.mean(returns)) if returns else math.nan
            if returns and len(recent) >= self.whole:
                self.history[name].append((self.env_steps, shown))
            told.append(f"{name}: return {shown:.2f}, entropy {entropy:.2f}")
        return "; ".join(told)

    def run(self, title: str) -> bool:
        """Trains; returns whether Ctrl-C or SIGTERM ended it. `title` is the title of the plot."""
        before = self.updates
        # save_checkpoint writes into the path if it is a folder, else to a file of that name
        self.args.run_dir.mkdir(parents=True, exist_ok=True)
        with stop_on_interrupt() as stop:
            try:
                self.loop(stop)
            finally:
                # whatever ended the training, the learned weights are saved
                if self.updates > before:
                    self.finish(title)
        return stop.is_set()

    def loop(self, stop: Event) -> None:
        """Learns to the last env-step or until `stop`, saving now and then."""
        args, begin, first = self.args, time.perf_counter(), self.env_steps
        saved_at = begin
        total = self.num_updates * self.per_update
        bar = tqdm(total=total, initial=first, unit="step", unit_scale=True, file=sys.stderr)
        policies = {name: group.policy for name, group in self.groups.items()}
        collector = collecting(
            self.envs, args, policies, self.make_policy, seed=self.seed, stop=stop
        )
        with collector as collect, bar:
            while self.env_steps < args.total_steps and not stop.is_set():
                before = time.perf_counter()
                batches = collect()
                if batches is None:
                    break
                self.collecting_s += time.perf_counter() - before
                told = self.learn(batches)
                now = time.perf_counter()
                if self.updates % max(1, self.num_updates // 20) == 0:
                    rate = (self.env_steps - first) / (now - begin)
                    with bar.external_write_mode():
                        print(f"{self.env_steps:>10,} env-steps, {rate:,.0f}/s, {told}", flush=True)
                bar.set_postfix_str(told, refresh=False)
                bar.update(self.per_update)
                self.seconds = now - begin
                if now - saved_at >= args.checkpoint_interval_s:
                    self.save()
                    saved_at = time.perf_counter()

    def finish(self, title: str) -> None:
        """Saves and draws the results; prints where they are."""
        args = self.args
        save_group_curves(args.run_dir / "training.png", self.history, title=title)
        self.save()
        print(
            f"{self.seconds:.1f} s, {100 * self.collecting_s / self.seconds:.0f} % of it to "
            f"collect; picture and weights in {args.run_dir}"
        )
