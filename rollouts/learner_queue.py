# SPDX-License-Identifier: Apache-2.0
"""Door to `rollouts.learner.queue`."""

from rollouts.learner.queue import LearnerQueue, QueueLevels

__all__ = ["LearnerQueue", "QueueLevels"]
