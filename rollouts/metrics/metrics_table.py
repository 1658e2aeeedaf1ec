# SPDX-License-Identifier: Apache-2.0
"""The one table of metrics: names, units, and where in the stats each is found.

The stats are those of `RolloutCoordinator` and, for `rollouts_replay_*`, of `ReplayBuffer` or
`ReplayService`; only the latter has shards, and can lose items with them.

The names follow Prometheus: a counter ends in `_total` and only grows, units are base units
(seconds, bytes). Ray's endpoint puts `ray_` before each. A metric whose key the stats do not have
is left out everywhere.

  name                                     unit       label      meaning
  rollouts_env_steps_total                 env-steps             completed by the workers
  rollouts_env_steps_delivered_total       env-steps             handed to the learner
  rollouts_env_steps_queued                env-steps             waiting for the learner
  rollouts_env_steps_discarded_total       env-steps  reason     completed and then discarded
  rollouts_fragments_total                 fragments             completed by the workers
  rollouts_fragments_delivered_total       fragments             handed to the learner
  rollouts_fragments_in_flight             fragments             asked for and not completed yet
  rollouts_fragments_discarded_total       fragments  reason     completed and then discarded
  rollouts_fragments_interrupted_total     fragments  reason     asked for and never completed
  rollouts_queue_depth                     fragments             waiting for the learner
  rollouts_learner_wait_seconds_total      seconds               the learner waited for fragments
  rollouts_workers_wait_seconds_total      seconds               workers waited for the learner
  rollouts_policy_version                  versions              the newest published
  rollouts_policy_lag                      versions   stat       of the last batch: min, mean, max
  rollouts_policy_lag_env_steps_total      env-steps  lag        delivered with this policy lag
  rollouts_restarts_total                  restarts              of workers, after a failure
  rollouts_object_store_bytes              bytes                 of fragments waiting there
  rollouts_weights_bytes_total             bytes                 of published weights
  rollouts_worker_up                       0 or 1     worker_id  whether the worker is running
  rollouts_worker_incarnation              number     worker_id  counted from 0
  rollouts_worker_in_flight                fragments  worker_id  asked for and not completed yet
  rollouts_worker_fragments_total          fragments  worker_id  completed
  rollouts_worker_env_steps_total          env-steps  worker_id  completed
  rollouts_replay_inserts_total            items      table      inserted into the table
  rollouts_replay_samples_total            items      table      sampled from the table
  rollouts_replay_samples_per_insert       ratio      table      samples / inserts
  rollouts_replay_size                     items      table      in the table
  rollouts_replay_occupancy                ratio      table      size / max_size
  rollouts_replay_pending                  items      table      waiting for the rate limiter
  rollouts_replay_insert_wait_seconds_total  seconds   table      inserts waited
  rollouts_replay_sample_wait_seconds_total  seconds   table      samples waited
  rollouts_replay_age                      inserts    table      since items of the last sample
  rollouts_replay_policy_lag               versions   table      mean of the last sample
  rollouts_replay_env_steps_total          env-steps             given to the buffer
  rollouts_replay_env_steps_discarded_total  env-steps  reason     given and then discarded
  rollouts_replay_memory_bytes             bytes                 of stored steps
  rollouts_replay_items_lost               items                 died with a shard
  rollouts_replay_env_steps_lost           env-steps             died with a shard
  rollouts_replay_stale_priorities_total   items                 updated after their shard died
  rollouts_replay_shard_restarts_total     restarts              of shards, after a death
  rollouts_replay_shard_size               items      shard      in the shard, of all tables
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    `path` is its place in the stats, keys joined by dots; `*` is any key, and its name becomes the
    value of the label.
    """

    name: str
    kind: Literal["counter", "gauge"]
    unit: str
    help: str
    path: str
    label: str | None = None


def _counter(name: str, unit: str, text: str, path: str, label: str | None = None) -> Metric:
    return Metric(f"rollouts_{name}_total", "counter", unit, text, path, label)


def _gauge(name: str, unit: str, text: str, path: str, label: str | None = None) -> Metric:
    return Metric(f"rollouts_{name}", "gauge", unit, text, path, label)


METRICS: tuple[Metric, ...] = (
    _counter("env_steps", "env-steps", "completed by the workers", "env_steps.produced"),
    _counter("env_steps_delivered", "env-steps", "handed to the learner", "env_steps.delivered"),
    _gauge("env_steps_queued", "env-steps", "waiting for the learner", "env_steps.queued"),
    _counter(
        "env_steps_discarded",
        "env-steps",
        "completed and then discarded",
        "env_steps.discarded.*",
        label="reason",
    ),
    _counter("fragments", "fragments", "completed by the workers", "fragments.produced"),
    _counter("fragments_delivered", "fragments", "handed to the learner", "fragments.delivered"),
    _gauge(
        "fragments_in_flight", "fragments", "asked for and not completed yet", "fragments.in_flight"
    ),
    _counter(
        "fragments_discarded",
        "fragments",
        "completed and then discarded",
        "fragments.discarded.*",
        label="reason",
    ),
    _counter(
        "fragments_interrupted",
        "fragments",
        "asked for and never completed",
        "fragments.interrupted.*",
        label="reason",
    ),
    _gauge("queue_depth", "fragments", "waiting for the learner", "queue_depth"),
    _counter(
        "learner_wait_seconds",
        "seconds",
        "the learner waited for fragments",
        "learner_wait_s",
    ),
    _counter(
        "workers_wait_seconds",
        "seconds",
        "workers waited for the learner",
        "workers_wait_s",
    ),
    _gauge("policy_version", "versions", "the newest published", "policy_version"),
    _gauge(
        "policy_lag", "versions", "of the last batch: min, mean, max", "policy_lag.*", label="stat"
    ),
    _counter(
        "policy_lag_env_steps",
        "env-steps",
        "delivered with this policy lag",
        "policy_lag_histogram.*",
        label="lag",
    ),
    _counter("restarts", "restarts", "of workers, after a failure", "restarts"),
    _gauge("object_store_bytes", "bytes", "of fragments waiting there", "queued_bytes"),
    _counter("weights_bytes", "bytes", "of published weights", "weights_bytes"),
    _gauge(
        "worker_up",
        "0 or 1",
        "whether the worker is running",
        "workers.*.is_running",
        label="worker_id",
    ),
    _gauge(
        "worker_incarnation",
        "number",
        "counted from 0",
        "workers.*.incarnation",
        label="worker_id",
    ),
    _gauge(
        "worker_in_flight",
        "fragments",
        "asked for and not completed yet",
        "workers.*.in_flight",
        label="worker_id",
    ),
    _counter(
        "worker_fragments", "fragments", "completed", "workers.*.fragments", label="worker_id"
    ),
    _counter(
        "worker_env_steps", "env-steps", "completed", "workers.*.env_steps", label="worker_id"
    ),
    _counter(
        "replay_inserts", "items", "inserted into the table", "tables.*.inserts", label="table"
    ),
    _counter(
        "replay_samples", "items", "sampled from the table", "tables.*.samples", label="table"
    ),
    _gauge(
        "replay_samples_per_insert",
        "ratio",
        "samples / inserts",
        "tables.*.samples_per_insert",
        label="table",
    ),
    _gauge("replay_size", "items", "in the table", "tables.*.size", label="table"),
    _gauge("replay_occupancy", "ratio", "size / max_size", "tables.*.occupancy", label="table"),
    _gauge(
        "replay_pending", "items", "waiting for the rate limiter", "tables.*.pending", label="table"
    ),
    _counter(
        "replay_insert_wait_seconds",
        "seconds",
        "inserts waited",
        "tables.*.insert_wait_s",
        label="table",
    ),
    _counter(
        "replay_sample_wait_seconds",
        "seconds",
        "samples waited",
        "tables.*.sample_wait_s",
        label="table",
    ),
    _gauge(
        "replay_age",
        "inserts",
        "since items of the last sample",
        "tables.*.age.mean",
        label="table",
    ),
    _gauge(
        "replay_policy_lag",
        "versions",
        "mean of the last sample",
        "tables.*.policy_lag.mean",
        label="table",
    ),
    _counter("replay_env_steps", "env-steps", "given to the buffer", "steps.produced"),
    _counter(
        "replay_env_steps_discarded",
        "env-steps",
        "given and then discarded",
        "steps.discarded.*",
        label="reason",
    ),
    _gauge("replay_memory_bytes", "bytes", "of stored steps", "memory.used_bytes"),
    _gauge("replay_items_lost", "items", "died with a shard", "items_lost"),
    _gauge("replay_env_steps_lost", "env-steps", "died with a shard", "steps.lost_with_shards"),
    _counter(
        "replay_stale_priorities", "items", "updated after their shard died", "stale_priorities"
    ),
    _counter("replay_shard_restarts", "restarts", "of shards, after a death", "shard_restarts"),
    _gauge("replay_shard_size", "items", "in the shard, of all tables", "shards.*.size", "shard"),
)


def flatten(stats: Mapping[str, Any]) -> dict[Path, float]:
    """Maps the path of every number in nested dicts and lists of dicts to that number.

    A list's elements are named by their `worker_id`, or by their index. Texts and None are left
    out, true counts as 1.
    """
    found: dict[Path, float] = {}

    def visit(path: Path, value: Any) -> None:
        if isinstance(value, Mapping):
            for key, inner in value.items():
                visit((*path, str(key)), inner)
        elif isinstance(value, list | tuple):
            for index, inner in enumerate(value):
                name = inner.get("worker_id", index) if isinstance(inner, Mapping) else index
                visit((*path, str(name)), inner)
        elif hasattr(value, "__float__") and not isinstance(value, str):
            found[path] = float(value)

    visit((), stats)
    for worker_id, worker in workers_of(stats).items():
        if "state" in worker:
            found["workers", worker_id, "is_running"] = float(worker["state"] == "running")
    return found


def workers_of(stats: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Maps worker_id to what the stats say of that worker; empty where they say nothing."""
    workers = stats.get("workers") or ()
    if isinstance(workers, Mapping):
        return {str(worker_id): worker for worker_id, worker in workers.items()}
    return {str(worker.get("worker_id", index)): worker for index, worker in enumerate(workers)}


def match(metric: Metric, numbers: Mapping[Path, float]) -> dict[Path, str | None]:
    """Returns the paths that hold the metric, each with the value of the label.

    Args:
      metric: One of METRICS.
      numbers: As from `flatten`.
    """
    keys = metric.path.split(".")
    if "*" not in keys:
        return {tuple(keys): None} if tuple(keys) in numbers else {}
    star = keys.index("*")
    return {
        path: path[star]
        for path in numbers
        if len(path) == len(keys)
        and all(key in ("*", part) for key, part in zip(keys, path, strict=True))
    }
