# SPDX-License-Identifier: Apache-2.0
"""A run of RolloutCoordinator on an imaginary cluster: its real state machine in simulated time.

`job_model.py` describes a job, `event_loop.py` keeps the time, `modelled_cluster.py` and
`modelled_worker.py` take the part of Ray and the workers, `modelled_process.py` is the driver's
process around the fleet and the queue of real runs, or a coordinator's, `modelled_share.py` is a
coordinator as the driver sees it, `modelled_learner.py` takes batches, `simulate.py` puts them
together, `run_record.py` and `run_report.py` hold the results. Nothing here needs Ray.
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
