# SPDX-License-Identifier: Apache-2.0
"""Replay buffers of other libraries, for `rollouts bench replay`."""

from __future__ import annotations

import importlib
import logging
import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from rollouts.bench.replay_own import BETA, EXPONENT, Array
from rollouts.bench.replay_workloads import Workload


class TorchRL:
    """torchrl.data.TensorDictPrioritizedReplayBuffer, which locks itself.

    Its trees are in the C++ extension of its wheel, which loads only with the torch that it was
    built with. Without it TorchRL has only uniform samples: these are measured then, and `note`
    says so.
    """

    note = ""

    def __init__(self, load: Workload) -> None:
        """Makes an empty buffer."""
        data = importlib.import_module("torchrl.data")
        logging.getLogger("torchrl").setLevel(logging.WARNING)
        self._torch = importlib.import_module("torch")
        self._tensordict = importlib.import_module("tensordict").TensorDict
        try:
            importlib.import_module("torchrl._torchrl")
        except ImportError:
            self.note = (
                "Samples are uniform and have no priorities: its prioritised sampler needs the C++ "
                f"extension of its wheel, which does not load with torch {self._torch.__version__}."
            )
        storage = data.LazyTensorStorage(load.size)
        self._buffer = (
            data.TensorDictReplayBuffer(storage=storage, batch_size=None)
            if self.note
            else data.TensorDictPrioritizedReplayBuffer(
                alpha=EXPONENT,
                beta=BETA,
                storage=storage,
                batch_size=None,
                priority_key="td_error",
            )
        )

    def add(self, rollout: dict[str, Array], env_id: Array) -> None:
        """See Candidate."""
        obs = rollout["obs"]
        columns = {name: rollout[name] for name in ("action", "reward", "terminated")}
        columns |= {"obs": np.ascontiguousarray(obs[:-1]), "next_obs": obs[1:]}
        flat = {
            name: self._torch.from_numpy(array.reshape(-1, *array.shape[2:]))
            for name, array in columns.items()
        }
        self._buffer.extend(self._tensordict(flat, batch_size=[len(flat["reward"])]))

    def flush(self) -> None:
        """See Candidate."""

    def samples(self, batch_size: int) -> Iterator[tuple[dict[str, Any], Any]]:
        """See Candidate."""
        names = ("obs", "action", "reward", "next_obs", "terminated")
        while True:
            batch = self._buffer.sample(batch_size)
            fields = {name: batch.get(name) for name in names}
            weight = self._torch.ones(batch_size) if self.note else batch.get("priority_weight")
            yield fields | {"weight": weight}, batch

    def update(self, names: Any, priorities: Array) -> None:
        """See Candidate."""
        if self.note:
            return
        names.set("td_error", self._torch.from_numpy(priorities))
        self._buffer.update_tensordict_priority(names)

    def nbytes(self) -> int:
        """See Candidate."""
        stored = self._buffer[:]
        return int(sum(v.numel() * v.element_size() for v in stored.values(True, True)))


class Tianshou:
    """tianshou.data.PrioritizedVectorReplayBuffer, which the GIL locks."""

    note = ""

    def __init__(self, load: Workload) -> None:
        """Makes an empty buffer."""
        data = importlib.import_module("tianshou.data")
        self._batch = data.Batch
        stacks = {"stack_num": 4, "save_only_last_obs": True} if load.stack_num > 1 else {}
        self._buffer = data.PrioritizedVectorReplayBuffer(
            load.size,
            load.num_envs,
            alpha=EXPONENT,
            beta=BETA,
            ignore_obs_next=bool(stacks),
            **stacks,
        )

    def add(self, rollout: dict[str, Array], env_id: Array) -> None:
        """See Candidate."""
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
                ),
                buffer_ids=env_id,
            )

    def flush(self) -> None:
        """See Candidate."""

    def samples(self, batch_size: int) -> Iterator[tuple[dict[str, Any], Any]]:
        """See Candidate."""
        while True:
            batch, index = self._buffer.sample(batch_size)
            yield (
                {
                    "obs": batch.obs,
                    "action": batch.act,
                    "reward": batch.rew,
                    "next_obs": batch.obs_next,
                    "terminated": batch.terminated,
                    "weight": batch.weight,
                },
                index,
            )

    def update(self, names: Any, priorities: Array) -> None:
        """See Candidate."""
        self._buffer.update_weight(names, priorities)

    def nbytes(self) -> int:
        """See Candidate."""
        stored = [buffer._meta for buffer in self._buffer.buffers[:1]]
        one = sum(value.nbytes for meta in stored for value in _arrays_of(meta))
        return one * len(self._buffer.buffers)


class Reverb:
    """A reverb.Table in a server of this process, written and read by its own clients."""

    note = ""
    _TABLE = "replay"

    def __init__(self, load: Workload) -> None:
        """Starts a server with an empty table."""
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        self._tf = importlib.import_module("tensorflow")
        self._reverb = reverb = importlib.import_module("reverb")
        tf, frame = self._tf, load.obs_shape[1:] if load.stack_num > 1 else load.obs_shape
        self._stack = load.stack_num
        rows = 2 if load.stack_num == 1 else load.stack_num + 1
        self._signature = {
            "obs": tf.TensorSpec((rows, *frame), tf.as_dtype(load.obs_dtype)),
            "action": tf.TensorSpec((), tf.int64),
            "reward": tf.TensorSpec((), tf.float32),
            "terminated": tf.TensorSpec((), tf.bool),
        }
        self._server = reverb.Server(
            tables=[
                reverb.Table(
                    self._TABLE,
                    sampler=reverb.selectors.Prioritized(EXPONENT),
                    remover=reverb.selectors.Fifo(),
                    max_size=load.size,
                    rate_limiter=reverb.rate_limiters.MinSize(1),
                    signature=self._signature,
                )
            ],
            port=None,
        )
        self._address = f"localhost:{self._server.port}"
        self._client = reverb.Client(self._address)
        self._rows = rows
        self._writers: dict[int, Any] = {}
        self._lock = threading.Lock()  # guards _writers

    def add(self, rollout: dict[str, Array], env_id: Array) -> None:
        """See Candidate."""
        # the newest of the stacked frames: an item contains the frames of both its observations
        obs = rollout["obs"][:, :, -1] if self._stack > 1 else rollout["obs"]
        for b, env in enumerate(env_id.tolist()):
            writer = self._writer(env)
            for t in range(len(rollout["reward"])):
                step = {name: rollout[name][t, b] for name in ("action", "reward", "terminated")}
                writer.append({"obs": obs[t, b], **step})
                history = writer.history
                if writer.episode_steps < self._rows:
                    continue
                newest = {name: history[name][-2] for name in step}
                writer.create_item(
                    self._TABLE,
                    priority=1.0,
                    trajectory={"obs": history["obs"][-self._rows :], **newest},
                )
            writer.flush(block_until_num_items=1000)

    def flush(self) -> None:
        """See Candidate."""
        for writer in self._writers.values():
            writer.flush()

    def samples(self, batch_size: int) -> Iterator[tuple[dict[str, Any], Any]]:
        """See Candidate."""
        dataset = self._reverb.TrajectoryDataset.from_table_signature(
            self._address, self._TABLE, max_in_flight_samples_per_worker=2 * batch_size
        ).batch(batch_size)
        stack = self._rows - 1
        for sample in dataset.prefetch(1):
            data, info = sample.data, sample.info
            probability = info.probability.numpy()
            weight = (probability * info.table_size.numpy()) ** -BETA
            obs = data["obs"].numpy()
            first, after = obs[:, :stack], obs[:, 1:]
            yield (
                {
                    "obs": first if self._stack > 1 else obs[:, 0],
                    "action": data["action"].numpy(),
                    "reward": data["reward"].numpy(),
                    "next_obs": after if self._stack > 1 else obs[:, 1],
                    "terminated": data["terminated"].numpy(),
                    "weight": (weight / weight.max()).astype(np.float32),
                },
                info.key.numpy(),
            )

    def update(self, names: Any, priorities: Array) -> None:
        """See Candidate."""
        updates = dict(zip(names.tolist(), priorities.tolist(), strict=True))
        self._client.mutate_priorities(self._TABLE, updates)

    def nbytes(self) -> int:
        """See Candidate; Reverb reports at most the compressed size of its tables' chunks."""
        return 0

    def _writer(self, env: int) -> Any:
        with self._lock:
            if env not in self._writers:
                self._writers[env] = self._client.trajectory_writer(self._rows)
            return self._writers[env]


def _arrays_of(batch: Any) -> list[Array]:
    found: list[Array] = []
    for value in batch.values():
        found += [value] if isinstance(value, np.ndarray) else _arrays_of(value)
    return found
