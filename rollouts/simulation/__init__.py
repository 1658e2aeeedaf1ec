# SPDX-License-Identifier: Apache-2.0
"""A run of RolloutCoordinator on an imaginary cluster: its real state machine in simulated time.

`job_model.py` describes a job, `event_loop.py` keeps the time, `modelled_cluster.py` and
`modelled_worker.py` take the part of Ray and the workers, `modelled_driver.py` is the coordinator's
process around the fleet and the queue of real runs, `modelled_learner.py` takes batches from it,
`simulate.py` puts them together, `run_record.py` and `run_report.py` hold the results. Nothing here
needs Ray.
"""

from __future__ import annotations

from rollouts.simulation.job_model import (
    DriverModel,
    JobModel,
    LearnerModel,
    NodeModel,
    WorkerModel,
)
from rollouts.simulation.run_picture import draw_run
from rollouts.simulation.run_report import RunReport
from rollouts.simulation.simulate import simulate

__all__ = [
    "DriverModel",
    "JobModel",
    "LearnerModel",
    "NodeModel",
    "RunReport",
    "WorkerModel",
    "draw_run",
    "simulate",
]
