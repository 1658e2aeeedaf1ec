# SPDX-License-Identifier: Apache-2.0
"""The benchmark behind `rollouts bench learner`: gradient steps, native code against torch.

Both take turns in one process, repeat by repeat, with the same rows, loss and Adam. A step begins
with the rows of its minibatch and ends with new weights. PPO's steps are here; see
learner_recurrent.py and learner_off_policy.py for the others.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from rollouts._native import policy_kernels_in_use
from rollouts.bench import learner_off_policy, learner_recurrent
from rollouts.learner.native_learner import NativeLearner, PpoLoss
from rollouts.policies.native import NativePolicy
from rollouts.support.extras import needs

with needs("torch", "rollouts bench learner"):
    import torch
    from torch import Tensor, nn

_LOSS = PpoLoss(entropy_weight=0.01)
_MAX_NORM = 0.5
_MOST_S = 1.0  # torch's part of a repeat


@dataclass(frozen=True, slots=True)
class LearnerTask:
    """A network and its minibatches.

    Attributes:
      layers: Sizes of the hidden layers, in the actor and in the critic.
      is_box: PPO alone: whether an action has `num_actions` numbers; else it is one of
        `num_actions` choices.
      loss: "ppo", "dqn", "sac", or "recurrent-ppo" or "r2d2", whose rows are sequences.
    """

    rows: int
    layers: tuple[int, ...] = (64, 64)
    obs_size: int = 17
    num_actions: int = 6
    is_box: bool = False
    loss: str = "ppo"


@dataclass(frozen=True, slots=True)
class LearnerMeasurement:
    """The median of the repeats, in microseconds of a gradient step.

    Attributes:
      kernels: The instruction set of the process' native code, by its name in
        `ROLLOUTS_POLICY_KERNELS`; torch uses the widest.
    """

    engine: str
    num_threads: int
    rows: int
    layers: tuple[int, ...]
    step_us: float
    loss: str
    kernels: str


class _Agent(nn.Module):
    def __init__(self, task: LearnerTask) -> None:
        super().__init__()

        def network(outputs: int) -> nn.Sequential:
            sizes = (task.obs_size, *task.layers)
            pairs = itertools.pairwise(sizes)
            parts = [part for pair in pairs for part in (nn.Linear(*pair), nn.Tanh())]
            return nn.Sequential(*parts, nn.Linear(sizes[-1], outputs))

        self.actor, self.critic = network(task.num_actions), network(1)
        self.log_std = nn.Parameter(torch.zeros(task.num_actions)) if task.is_box else None

    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        value = self.critic(obs)[:, 0]
        if self.log_std is None:
            return self.actor(obs), value
        return self.actor(obs), self.log_std, value


def measure(
    task: LearnerTask, *, num_threads: Sequence[int], repeats: int, seed: int = 0
) -> list[LearnerMeasurement]:
    """Measures native code and torch with each number of threads.

    Args:
      task: The network and its minibatches.
      num_threads: Numbers of threads of both.
      repeats: Repeats, of which the median counts.
      seed: Seed of weights and rows.
    """
    contestants = [
        (engine, threads, run)
        for threads in num_threads
        for engine, run in _contestants(task, threads, seed)
    ]
    taken: list[list[float]] = [[] for _ in contestants]
    before = torch.get_num_threads()
    try:
        # the first round allocates memory and is not counted
        for repeat in range(repeats + 1):
            for place, (_, _, run) in enumerate(contestants):
                begin = time.perf_counter()
                made = run()
                if repeat:
                    taken[place].append((time.perf_counter() - begin) / made * 1e6)
    finally:
        torch.set_num_threads(before)
    return [
        LearnerMeasurement(
            engine,
            threads,
            task.rows,
            task.layers,
            statistics.median(times),
            task.loss,
            policy_kernels_in_use(),
        )
        for (engine, threads, _), times in zip(contestants, taken, strict=True)
    ]


def to_text(found: Sequence[LearnerMeasurement]) -> str:
    """A line for each measurement, and a ratio of the engines' best per task and kernels."""
    lines = ["loss           rows    layers        engine  kernels   threads  us/step"]
    lines += [
        f"{each.loss:<14} {each.rows:<7} {'x'.join(map(str, each.layers)):<13} {each.engine:<7} "
        f"{each.kernels if each.engine == 'native' else '-':<9} {each.num_threads:<8} "
        f"{each.step_us:,.1f}"
        for each in found
    ]
    for task in dict.fromkeys(map(_task_of, found)):
        best = [
            min(e.step_us for e in found if (e.engine, *_task_of(e)) == (engine, *task))
            for engine in ("torch", "native")
        ]
        loss, rows, layers, kernels = task
        name = "x".join(map(str, layers))
        ratio = best[0] / best[1]
        lines.append(f"{loss}, {rows} rows, {name}: native ({kernels}) is {ratio:.1f}x torch")
    return "\n".join(lines)


def to_json(found: Sequence[LearnerMeasurement]) -> list[dict[str, Any]]:
    """The measurements as values for JSON."""
    return [asdict(each) for each in found]


def from_json(found: Sequence[dict[str, Any]]) -> list[LearnerMeasurement]:
    """The measurements from which `to_json` made these values."""
    return [LearnerMeasurement(**each | {"layers": tuple(each["layers"])}) for each in found]


def _task_of(each: LearnerMeasurement) -> tuple[str, int, tuple[int, ...], str]:
    return each.loss, each.rows, each.layers, each.kernels


def _contestants(task: LearnerTask, threads: int, seed: int) -> list[tuple[str, Callable[[], int]]]:
    if task.loss == "ppo":
        num_steps = min(200, max(5, 40_000 // task.rows))
        rows = _rows(task, num_steps * task.rows, seed)
        return [
            ("native", _native(task, rows, threads, seed)),
            ("torch", _torch(task, rows, threads, seed)),
        ]
    sizes = learner_off_policy.Sizes(task.rows, task.layers, task.obs_size, task.num_actions)
    if task.loss == "recurrent-ppo":
        losses = _LOSS, _torch_loss
        return [
            (
                engine,
                learner_recurrent.contestant(engine, sizes, threads, seed, _MOST_S, losses),
            )
            for engine in ("native", "torch")
        ]
    return [
        (
            engine,
            learner_off_policy.contestant(task.loss, engine, sizes, threads, seed, _MOST_S),
        )
        for engine in ("native", "torch")
    ]


def _rows(task: LearnerTask, count: int, seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    if task.is_box:
        action: Any = random.normal(size=(count, task.num_actions)).astype(np.float32)
        log_prob = -0.5 * (action**2 + np.log(2 * np.pi)).sum(1)
    else:
        action = random.integers(task.num_actions, size=count)
        log_prob = np.full(count, -np.log(task.num_actions))
    return {
        "obs": random.normal(size=(count, task.obs_size)).astype(np.float32),
        "action": action,
        "log_prob": log_prob.astype(np.float32),
        "advantage": random.normal(size=count).astype(np.float32),
        "target": random.normal(size=count).astype(np.float32),
    }


def _agent(task: LearnerTask, seed: int) -> tuple[_Agent, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    agent = _Agent(task)
    return agent, torch.optim.Adam(agent.parameters(), lr=3e-4, eps=1e-5, fused=True)


def _native(task: LearnerTask, rows: dict[str, Any], threads: int, seed: int) -> Callable[[], int]:
    agent, optimizer = _agent(task, seed)
    space: Any = spaces.Discrete(task.num_actions)
    if task.is_box:
        space = spaces.Box(-np.inf, np.inf, (task.num_actions,))
    learner = NativeLearner(NativePolicy.from_torch(agent, space), optimizer, threads)
    order = np.arange(len(rows["obs"]))

    def run() -> int:
        found = learner.update(
            rows, order, minibatch=task.rows, loss=_LOSS, max_grad_norm=_MAX_NORM
        )
        return found.num_steps

    return run


def _torch(task: LearnerTask, rows: dict[str, Any], threads: int, seed: int) -> Callable[[], int]:
    agent, optimizer = _agent(task, seed)
    obs, *given = [torch.from_numpy(rows[name]) for name in rows]
    order = torch.arange(len(rows["obs"]))

    def run() -> int:
        torch.set_num_threads(threads)
        begin = time.perf_counter()
        for made, index in enumerate(torch.split(order, task.rows)):
            # two threads of torch are slow on a machine where other processes compute, too
            if made and time.perf_counter() - begin > _MOST_S:
                return made
            loss = _torch_loss(agent(obs[index]), *(each[index] for each in given))
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            nn.utils.clip_grad_norm_(agent.parameters(), _MAX_NORM)
            optimizer.step()
        return made + 1

    return run


def _torch_loss(
    outputs: tuple[Tensor, ...],
    action: Tensor,
    log_prob: Tensor,
    advantage: Tensor,
    target: Tensor,
) -> Tensor:
    first, *others, value = outputs
    # arguments of the distributions are not validated, as in other libraries
    if others:
        scale = others[0].exp().expand_as(first)
        normal: Any = torch.distributions.Normal(first, scale, validate_args=False)
        now, entropy = normal.log_prob(action).sum(-1), normal.entropy().sum(-1)
    else:
        choice: Any = torch.distributions.Categorical(logits=first, validate_args=False)
        now, entropy = choice.log_prob(action), choice.entropy()
    ratio = (now - log_prob).exp()
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    clipped = ratio.clamp(1 - _LOSS.clip_range, 1 + _LOSS.clip_range)
    policy_loss = -torch.minimum(ratio * advantage, clipped * advantage).mean()
    value_loss = _LOSS.value_weight * (value - target).square().mean()
    loss: Tensor = policy_loss + value_loss - _LOSS.entropy_weight * entropy.mean()
    return loss
