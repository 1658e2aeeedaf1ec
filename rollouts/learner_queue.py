# SPDX-License-Identifier: Apache-2.0
"""What a learner takes: `rollouts.LearnerQueue`."""

from rollouts.learner.queue import LearnerQueue

__all__ = ["LearnerQueue"]
