# SPDX-License-Identifier: Apache-2.0
"""The cost of a log: collecting with and without `record`, in turns."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rollouts.batch import MultiAgentRollout
from rollouts.bench.policies import make_policy
from rollouts.bench.policy_kinds import PolicyKind
from rollouts.collecting.collector import Collector
from rollouts.envs.make import make_pool
from rollouts.run_log.log_format import to_bytes
from rollouts.run_log.record_options import RunLog
from rollouts.workers.agent_policies import policy_specs
from rollouts.workers.worker_config import WorkerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingCost:
    """One measurement.

    Attributes:
      id, num_envs, rollout_length: The task.
      steps_per_s: Env-steps per second without a log, the median of the turns.
      time_ratio: Seconds with a log divided by those without, the median of neighbouring turns.
      cpu_ratio: The same for CPU seconds of the process, all threads together.
      bytes_per_step: Size of the log per env-step.
      weight_bytes_per_step: Size per env-step if the log had one version of weights per fragment
        instead of the actions.
      action_bytes_per_step: Size of the actions per env-step.
    """

    id: str
    num_envs: int
    rollout_length: int
    steps_per_s: float
    time_ratio: float
    cpu_ratio: float
    bytes_per_step: float
    weight_bytes_per_step: float
    action_bytes_per_step: float


def measure_recording(
    id: str,
    num_envs: int,
    *,
    rollout_length: int,
    kind: PolicyKind,
    env_options: Mapping[str, Any],
    state_every: int,
    duration_s: float,
    repeats: int,
) -> RecordingCost:
    """Collects in turns with two collectors of equal pools, one of which records.

    A turn ends when the log is written, so that none of its cost falls into the next turn.

    Raises:
      SpecError: Unknown id or option, or environments with several agents and one policy alone.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = RunLog(path=Path(folder) / "log", state_every=state_every)
        made = [
            _collector(id, num_envs, rollout_length, kind, env_options, one) for one in (None, log)
        ]
        try:
            return _measured(made, Path(log.path), id, duration_s, repeats)
        finally:
            for collector in made:
                collector.close()


def _measured(
    made: list[Any], folder: Path, id: str, duration_s: float, repeats: int
) -> RecordingCost:
    plain, recorded = made
    rollout = plain.collect()
    recorded.collect()
    start = time.perf_counter()
    plain.collect()
    once = time.perf_counter() - start
    count = max(1, round(duration_s / once))
    seconds, cpu, fragments = [], [], 1
    for turn in range(repeats):
        order = made if turn % 2 == 0 else made[::-1]
        taken = {one: _turn(one, count) for one in order}
        seconds.append([taken[one][0] for one in made])
        cpu.append([taken[one][1] for one in made])
        fragments += count
    steps = rollout.num_steps
    size = sum(path.stat().st_size for path in folder.iterdir())
    groups = list(rollout.values()) if isinstance(rollout, MultiAgentRollout) else [rollout]
    weights = sum(
        np.asarray(array).nbytes
        for policy in plain.policies.values()
        for array in policy.weights().values()
    )
    actions = len(to_bytes("fragment", {}, {str(i): one.action for i, one in enumerate(groups)}))
    return RecordingCost(
        id=id,
        num_envs=plain.env.num_envs,
        rollout_length=plain.rollout_length,
        steps_per_s=steps * count / statistics.median(one[0] for one in seconds),
        time_ratio=statistics.median(one[1] / one[0] for one in seconds),
        cpu_ratio=statistics.median(one[1] / one[0] for one in cpu),
        bytes_per_step=size / fragments / steps,
        weight_bytes_per_step=weights / steps,
        action_bytes_per_step=actions / steps,
    )


def _turn(collector: Any, count: int) -> tuple[float, float]:
    """Returns seconds and CPU seconds of some rollouts."""
    start, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        collector.collect()
    collector.synchronize()
    return time.perf_counter() - start, time.process_time() - cpu


def _collector(
    id: str,
    num_envs: int,
    rollout_length: int,
    kind: PolicyKind,
    env_options: Mapping[str, Any],
    log: RunLog | None,
) -> Any:
    env = make_pool(id, num_envs, env_options=env_options, seed=0, autoreset_mode="same_step")
    config = WorkerConfig(
        id=id,
        num_envs=num_envs,
        rollout_length=rollout_length,
        num_threads=env.num_threads,
        seed=0,
        env_options=env_options,
    )
    groups = getattr(env, "groups", None) or {"": env}
    policies = {
        name: make_policy(spec, kind=kind) for name, spec in policy_specs(config, groups).items()
    }
    return Collector(env, policies.get("", policies), rollout_length, record=log)


def as_table(costs: list[RecordingCost]) -> str:
    """Returns a table of measurements."""
    lines = [
        f"{'id':24} {'N x T':>10} {'steps/s':>12} {'time':>7} {'CPU':>7} {'log':>9} {'actions':>9} "
        f"{'weights':>9}   (bytes per step)"
    ]
    lines += [
        f"{one.id:24} {f'{one.num_envs} x {one.rollout_length}':>10} {one.steps_per_s:12,.0f} "
        f"{one.time_ratio:7.3f} {one.cpu_ratio:7.3f} {one.bytes_per_step:9.2f} "
        f"{one.action_bytes_per_step:9.2f} {one.weight_bytes_per_step:9.2f}"
        for one in costs
    ]
    return "\n".join(lines)


def as_json(costs: list[RecordingCost]) -> list[dict[str, Any]]:
    """Returns plain values."""
    return [asdict(one) for one in costs]
