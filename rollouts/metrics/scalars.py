# SPDX-License-Identifier: Apache-2.0
"""A sample as numbers by name, for services that draw curves."""

from __future__ import annotations

from rollouts.metrics.sample import Sample

ENV_STEPS = "rollouts_env_steps_total"


def scalars(sample: Sample) -> dict[str, float]:
    """One scalar per gauge, and two per counter: its value and its increase per second.

    The name is the metric's without its prefix, as in `rollouts/env_steps_per_s` or
    `rollouts/worker_env_steps_per_s/3`; numbers that are not in the table are `stats/<path>`.
    """
    found: dict[str, float] = {}
    for reading in sample.readings:
        name = reading.metric.name.removeprefix("rollouts_")
        end = "" if reading.label is None else f"/{reading.label}"
        found[f"rollouts/{name}{end}"] = reading.value
        if reading.per_s is not None:
            found[f"rollouts/{name.removesuffix('_total')}_per_s{end}"] = reading.per_s
    for path, value in sample.other.items():
        found["/".join(("stats", *path))] = value
    return found


def step_of(sample: Sample, first_step: int) -> int:
    """The place on the horizontal axis: env-steps, including those of earlier runs."""
    return first_step + int(sample.value(ENV_STEPS) or 0)
