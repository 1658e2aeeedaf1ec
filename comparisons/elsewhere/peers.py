# SPDX-License-Identifier: Apache-2.0
"""PufferLib, for `rollouts bench`, and Sample Factory, for `rollouts bench collect`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gymnasium import spaces

from comparisons.elsewhere.child import Child, version_there
from rollouts.bench.interleaved import action_batches
from rollouts.bench.measurement import Settings
from rollouts.bench.own_pools import OpenEnv
from rollouts.errors import SpecError
from rollouts.specs import EnvSpec

if TYPE_CHECKING:
    from rollouts.bench.collect_task import Task

# added to the time that the calls should take: a machine may be busy, and workers wake slowly
_PATIENCE_S = 120.0


class PufferLib:
    """pufferlib.vector over Gymnasium's environments, with one process for each of our threads."""

    name = "pufferlib"

    def __init__(self, python: Path) -> None:
        """`python`: the interpreter with PufferLib. Raises EngineError where it is none."""
        self._python = python
        self._version = version_there(self._python, "pufferlib")

    def version(self) -> str:
        """The version installed there."""
        return self._version

    def make(self, settings: Settings, spec: EnvSpec) -> OpenEnv:
        """Makes the environments in that interpreter.

        Raises:
          SpecError: Options, or spaces that PufferLib would emulate.
          NotMeasured: It cannot be measured in that interpreter.
        """
        _check_options(self.name, settings)
        if spec.groups or not isinstance(spec.single_action_space, spaces.Discrete | spaces.Box):
            raise SpecError(
                f"peer {self.name!r} is measured with Discrete or Box actions of one agent, and "
                f"{spec.id} has others: leave this peer out"
            )
        num_workers = _divisor(settings.num_envs, settings.num_threads)
        batches = action_batches(spec.single_action_space, settings.batch_size, seed=settings.seed)
        child = Child(
            self.name,
            self._python,
            "steps_pufferlib.py",
            {
                "id": spec.id,
                "num_envs": settings.num_envs,
                "batch_size": settings.batch_size,
                "num_workers": num_workers,
                "seed": settings.seed % 2**31,
                "max_episode_steps": spec.max_episode_steps or -1,  # Gymnasium's -1 is no limit
                "actions": [batch.tolist() for batch in batches],
            },
        )
        return OpenEnv(
            self.name,
            child.told["version"],
            None,
            num_envs=settings.num_envs,
            batch_size=settings.batch_size,
            num_threads=num_workers,
            start=lambda: None,
            close=child.close,
            notes=tuple(child.told["notes"]),
            run=lambda calls: _seconds(child, calls),
        )


class SampleFactory:
    """SyncSamplingAPI: trajectories of its rollout workers and policy worker, without a learner."""

    name = "Sample Factory sampler"
    api = "get_trajectories_sync"

    def __init__(self, task: Task, num_envs: int, *, python: Path) -> None:
        """Starts it in its interpreter.

        Raises:
          SpecError: Options.
          NotMeasured: It cannot be measured in that interpreter.
        """
        peer, settings = "sample-factory", task.settings
        _check_options(peer, settings)
        self.num_envs = num_envs
        self.num_threads = _divisor(num_envs, settings.num_threads)
        self._steps = num_envs * task.rollout_length
        self._child = Child(
            peer,
            python,
            "samples_sample_factory.py",
            {
                "id": task.spec.id,
                "num_envs": num_envs,
                "num_workers": self.num_threads,
                "rollout_length": task.rollout_length,
                "hidden": list(task.policy.hidden),
                "seed": settings.seed % 2**31,
            },
        )
        self._version = self._child.told["version"]
        self.notes: tuple[str, ...] = (
            "One network with two heads, as ours; it keeps what its learner needs, and the calling "
            "process of its own interpreter copies it.",
            *self._child.told["notes"],
        )

    def version(self) -> str:
        return str(self._version)

    def resume(self) -> None:
        self.collect()

    def collect(self) -> int:
        answer = self._child.ask({"run": self._steps}, timeout_s=_PATIENCE_S)
        return int(answer["env_steps"])

    def pause(self) -> None:
        """Does nothing: its processes are stopped except while an answer is awaited."""

    def close(self) -> None:
        self._child.close()


def _seconds(child: Child, calls: int) -> float:
    return float(child.ask({"run": calls}, timeout_s=_PATIENCE_S)["seconds"])


def _divisor(num_envs: int, most: int) -> int:
    """The largest number of processes up to `most` that divides the number of environments."""
    return max(count for count in range(1, most + 1) if num_envs % count == 0)


def _check_options(peer: str, settings: Settings) -> None:
    if settings.env_options:
        raise SpecError(
            f"peer {peer!r} has no equal of the options {sorted(settings.env_options)} of "
            f"{settings.id}: leave out the options, or this peer"
        )
