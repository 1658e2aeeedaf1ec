# SPDX-License-Identifier: Apache-2.0
"""Measured times and costs, read from files, for a JobModel."""

from __future__ import annotations

import json
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

from rollouts.errors import SpecError
from rollouts.simulation.job_model import DriverModel
from rollouts.support.field_checks import is_number


def fragment_times_of(path: Path) -> tuple[float, ...]:
    """Reads a JSON list of seconds, such as `[fragment.collect_s for fragment in fragments]`.

    Raises:
      SpecError: The file cannot be read, or has something else.
    """
    times = _json_of(path)
    if not isinstance(times, list) or not times or not all(map(is_number, times)):
        raise SpecError(f"{str(path)!r} has no times, expected a JSON list of seconds above 0")
    return tuple(float(time) for time in times)


def driver_of(path: Path) -> DriverModel:
    """Reads the costs of the last row of `rollouts bench coordinator --json`: medians.

    Raises:
      SpecError: The file cannot be read, or has something else.
    """
    try:
        row = _json_of(path)[-1]
        models = {
            cost["name"]: driver_of_stages(
                statistics.median(cost["cpu_us"]),
                {name: statistics.median(values) for name, values in cost["stages"].items()},
                row["task"]["publish_every"],
            )
            for cost in row["costs"]
            if cost["name"] != "bare Ray"
        }
        per_call = statistics.median(row["costs"][0].get("per_call", [1.0]))
        shared = models["RolloutCoordinator"]
        return driver_of_calls(shared, models.get("one fragment a call", shared), per_call)
    except (LookupError, TypeError, AttributeError, statistics.StatisticsError) as error:
        raise SpecError(
            f"{str(path)!r} has no costs ({error!r}), expected what `rollouts bench coordinator "
            "--json` printed"
        ) from error


def driver_of_stages(
    cpu_us: float, stages: dict[str, float], publish_every: int, *, per_call: float = 1.0
) -> DriverModel:
    """Derives a driver's costs from the microseconds of a fragment.

    Args:
      cpu_us: Total cost of a fragment.
      stages: See `DriverCost.stages`.
      publish_every: Fragments between two versions, which share the cost of one; 0 for none.
      per_call: Fragments of a call. If it is above 1, further fragments cost `DriverModel`'s
        default, and the rest is the cost of calls.
    """
    submit, resolve = max(0.0, stages["submit"]), max(0.0, stages["resolve"])
    weights = max(0.0, stages["weights"])
    default = DriverModel()
    taken = cpu_us - submit - resolve - weights
    return DriverModel(
        take_us=max(0.0, taken * per_call - default.further_us * (per_call - 1)),
        submit_us=max(0.0, submit * per_call - default.submit_further_us * (per_call - 1)),
        resolve_us=resolve,
        publish_us=weights * publish_every,
    )


def driver_of_calls(shared: DriverModel, alone: DriverModel, per_call: float) -> DriverModel:
    """Derives the cost of a call and of each of its fragments, from two sizes of calls.

    Args:
      shared: Costs of a fragment where `per_call` of them share a call, each a mean of a call's
        first fragment and its further ones.
      alone: Costs of a fragment with a call of its own.
      per_call: Fragments of a call, the mean.
    """
    if per_call < 1.5:
        return alone

    def split(alone_us: float, shared_us: float) -> tuple[float, float]:
        """Returns the part that each call costs, and the part that each fragment costs.

        A fragment with a call of its own costs both parts. A fragment in a shared call costs its
        own part, and 1 / per_call of the call's.
        """
        call_us = min(alone_us, max(0.0, (alone_us - shared_us) / (1 - 1 / per_call)))
        return call_us, max(0.0, shared_us - call_us / per_call)

    submit, submitted = split(alone.submit_us, shared.submit_us)
    resolve, resolved = split(alone.resolve_us, shared.resolve_us)
    take, taken = split(alone.take_us, shared.take_us)
    return replace(
        alone,
        # `resolve_us` is paid for each fragment alike, so the call's part of it is paid here
        take_us=take + resolve + taken,
        further_us=taken,
        submit_us=submit + submitted,
        submit_further_us=submitted,
        resolve_us=resolved,
        publish_us=shared.publish_us,
    )


def _json_of(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise SpecError(f"{str(path)!r} cannot be read as JSON: {error}") from error
