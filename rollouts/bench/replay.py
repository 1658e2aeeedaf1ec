# SPDX-License-Identifier: Apache-2.0
"""The benchmark behind `rollouts bench-replay`: inserts, prioritised samples, bytes per transition.

The libraries take turns in one process. Each inserts the same rollouts and then draws batches and
sets their priorities anew, as a learner does.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rollouts.replay import NStep, ReplayBuffer, TableConfig

Array = NDArray[Any]

_EXPONENT, _BETA = 0.6, 0.4


@dataclass(frozen=True, slots=True)
class Workload:
    """What is stored: `num_envs` environments for `num_steps` steps, in rollouts of `length`."""

    name: str
    obs_shape: tuple[int, ...]
    obs_dtype: str
    stack_num: int
    num_envs: int
    length: int
    num_steps: int

    @property
    def size(self) -> int:
        """Transitions."""
        return self.num_envs * self.num_steps


WORKLOADS = (
    Workload("Atari 84x84x4 uint8", (4, 84, 84), "uint8", 4, 8, 64, 1024),
    Workload("32 floats", (32,), "float32", 1, 64, 64, 2048),
)


@dataclass(frozen=True, slots=True)
class ReplayMeasurement:
    """Medians over the repeats, of one library and workload."""

    library: str
    version: str
    workload: str
    num_threads: int
    inserts_per_s: float
    samples_per_s: float
    bytes_per_transition: float


class _Candidate(Protocol):
    def add(self, rollout: dict[str, Array]) -> None: ...
    def learn(self, batch_size: int) -> None: ...
    def nbytes(self) -> int: ...


class _Ours:
    def __init__(self, load: Workload) -> None:
        self._buffer = ReplayBuffer(
            spaces.Box(0, 255, load.obs_shape, dtype=np.dtype(load.obs_dtype)),
            spaces.Discrete(6),
            TableConfig(
                items=NStep(1),
                sampler="prioritized",
                exponent=_EXPONENT,
                max_size=load.size,
            ),
            stack_num=load.stack_num,
        )
        self._env_id = np.arange(load.num_envs)
        self._zeros = np.zeros((load.length, load.num_envs), np.float32)

    def add(self, rollout: dict[str, Array]) -> None:
        from rollouts.batch import RolloutBatch

        steps, rows = rollout["reward"].shape
        zeros, none = self._zeros, np.zeros(0)
        self._buffer.add_batch(
            RolloutBatch(
                obs=rollout["obs"][:steps],
                action=rollout["action"][:steps],
                reward=rollout["reward"],
                terminated=rollout["terminated"],
                truncated=np.zeros((steps, rows), np.bool_),
                bootstrap_value=zeros,
                log_prob=zeros,
                value=zeros,
                last_obs=rollout["obs"][-1],
                last_value=zeros[0],
                policy_version=np.zeros((steps, rows), np.int64),
                env_id=self._env_id.astype(np.int32),
                episode_return=none,
                episode_length=none.astype(np.int32),
                episode_env_id=none.astype(np.int32),
            )
        )

    def learn(self, batch_size: int) -> None:
        batch = self._buffer.sample(batch_size, beta=_BETA)
        self._buffer.update_priorities(batch.key, batch.weight)

    def nbytes(self) -> int:
        return int(self._buffer.stats()["memory"]["used_bytes"])


class _TorchRL:
    def __init__(self, load: Workload) -> None:
        data = importlib.import_module("torchrl.data")
        self._torch = importlib.import_module("torch")
        self._tensordict = importlib.import_module("tensordict").TensorDict
        self._buffer = data.TensorDictPrioritizedReplayBuffer(
            alpha=_EXPONENT,
            beta=_BETA,
            storage=data.LazyTensorStorage(load.size),
            batch_size=None,
            priority_key="td_error",
        )

    def add(self, rollout: dict[str, Array]) -> None:
        flat = {
            name: self._torch.from_numpy(array.reshape(-1, *array.shape[2:]))
            for name, array in _transitions(rollout).items()
        }
        self._buffer.extend(self._tensordict(flat, batch_size=[len(flat["reward"])]))

    def learn(self, batch_size: int) -> None:
        batch = self._buffer.sample(batch_size)
        batch.set("td_error", self._torch.rand(batch_size))
        self._buffer.update_tensordict_priority(batch)

    def nbytes(self) -> int:
        stored = self._buffer[:]
        return int(sum(v.numel() * v.element_size() for v in stored.values(True, True)))


class _Tianshou:
    def __init__(self, load: Workload) -> None:
        data = importlib.import_module("tianshou.data")
        self._batch = data.Batch
        self._rng = np.random.default_rng(0)
        stacks = {"stack_num": 4, "save_only_last_obs": True} if load.stack_num > 1 else {}
        self._buffer = data.PrioritizedVectorReplayBuffer(
            load.size,
            load.num_envs,
            alpha=_EXPONENT,
            beta=_BETA,
            ignore_obs_next=bool(stacks),
            **stacks,
        )

    def add(self, rollout: dict[str, Array]) -> None:
        for t in range(len(rollout["reward"])):
            terminated = rollout["terminated"][t]
            self._buffer.add(
                self._batch(
                    obs=rollout["obs"][t],
                    act=rollout["action"][t],
                    rew=rollout["reward"][t],
                    terminated=terminated,
                    truncated=np.zeros_like(terminated),
                    obs_next=rollout["obs"][t + 1],
                    info={},
                )
            )

    def learn(self, batch_size: int) -> None:
        batch, index = self._buffer.sample(batch_size)
        self._buffer.update_weight(index, self._rng.random(batch_size))
        del batch

    def nbytes(self) -> int:
        stored = [buffer._meta for buffer in self._buffer.buffers[:1]]
        one = sum(value.nbytes for meta in stored for value in _arrays_of(meta))
        return one * len(self._buffer.buffers)


def _arrays_of(batch: Any) -> list[Array]:
    found: list[Array] = []
    for value in batch.values():
        found += [value] if isinstance(value, np.ndarray) else _arrays_of(value)
    return found


LIBRARIES: dict[str, tuple[str, Callable[[Workload], _Candidate]]] = {
    "rollouts": ("rollouts", _Ours),
    "torchrl": ("torchrl", _TorchRL),
    "tianshou": ("tianshou", _Tianshou),
}


def compare(
    load: Workload,
    peers: list[str],
    *,
    num_threads: int = 1,
    batch_size: int = 256,
    num_batches: int = 100,
    repeats: int = 3,
    seed: int = 0,
) -> tuple[list[ReplayMeasurement], list[str]]:
    """Measures ours and the peers on one workload.

    Args:
      load: What is stored.
      peers: Of LIBRARIES.
      num_threads: Threads that sample and update at the same time.
      batch_size: Items of a sample.
      num_batches: Samples of one repeat and thread.
      repeats: Of which the median counts.
      seed: Of the data.

    Returns:
      The measurements, and a sentence for each peer that could not be measured.
    """
    rollout = _rollout(load, seed)
    results, missing = [], []
    for name in ["rollouts", *peers]:
        package, make = LIBRARIES[name]
        try:
            make(load)
        except (ImportError, RuntimeError) as error:
            # RuntimeError: TorchRL without its extension, which its wheel has for some torch only
            missing.append(f"{name} was not measured, as it cannot be used here: {error}")
            continue
        figures = [
            _measure(make(load), load, rollout, num_threads, batch_size, num_batches)
            for _ in range(repeats)
        ]
        inserts, samples, nbytes = (statistics.median(f) for f in zip(*figures, strict=True))
        results.append(
            ReplayMeasurement(
                name,
                importlib.metadata.version(package),
                load.name,
                num_threads,
                inserts,
                samples,
                nbytes / load.size,
            )
        )
    return results, missing


def to_text(results: list[ReplayMeasurement], missing: list[str]) -> str:
    """Lays the measurements out as a table in Markdown."""
    lines = [
        "| workload | library | threads | inserts/s | samples/s | bytes/transition |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for r in results:
        lines.append(
            f"| {r.workload} | {r.library} {r.version} | {r.num_threads} | {r.inserts_per_s:,.0f} "
            f"| {r.samples_per_s:,.0f} | {r.bytes_per_transition:,.0f} |"
        )
    return "\n".join([*lines, *missing])


def to_json(results: list[ReplayMeasurement], missing: list[str]) -> dict[str, Any]:
    """Returns the measurements as plain data."""
    return {"measurements": [asdict(r) for r in results], "missing": missing}


def _measure(
    candidate: _Candidate,
    load: Workload,
    rollout: dict[str, Array],
    num_threads: int,
    batch_size: int,
    num_batches: int,
) -> tuple[float, float, float]:
    rounds = load.num_steps // load.length
    begin = time.perf_counter()
    for _ in range(rounds):
        candidate.add(rollout)
    insert_s = time.perf_counter() - begin

    def learn() -> None:
        for _ in range(num_batches):
            candidate.learn(batch_size)

    candidate.learn(batch_size)
    threads = [threading.Thread(target=learn) for _ in range(num_threads)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sample_s = time.perf_counter() - begin
    samples = num_threads * num_batches * batch_size
    return load.size / insert_s, samples / sample_s, float(candidate.nbytes())


def _rollout(load: Workload, seed: int) -> dict[str, Array]:
    """One rollout (T, B, ...) with obs (T + 1, B, ...) whose last one continues with its first."""
    rng = np.random.default_rng(seed)
    steps, rows = load.length, load.num_envs
    if load.stack_num > 1:
        # a stack's frames are those of the steps before, in a circle
        frames = rng.integers(0, 256, (steps, rows, *load.obs_shape[1:]), np.uint8)
        before = np.arange(load.stack_num) - load.stack_num + 1
        index = (np.arange(steps + 1)[:, None] + before) % steps
        obs = np.ascontiguousarray(np.moveaxis(frames[index], 2, 1))
    else:
        obs = rng.random((steps, rows, *load.obs_shape), np.float32)
        obs = np.concatenate([obs, obs[:1]])
    return {
        "obs": obs,
        "action": rng.integers(0, 6, (steps, rows)),
        "reward": rng.random((steps, rows), np.float32),
        "terminated": np.zeros((steps, rows), np.bool_),
    }


def _transitions(rollout: dict[str, Array]) -> dict[str, Array]:
    obs = rollout["obs"]
    rest = {name: rollout[name] for name in ("action", "reward", "terminated")}
    return {"obs": np.ascontiguousarray(obs[:-1]), "next_obs": obs[1:], **rest}
