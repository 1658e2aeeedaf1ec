# SPDX-License-Identifier: Apache-2.0
"""The number of environments to collect from: `tune_batch` tries sizes and names the fastest."""

from rollouts.tuning.search import BatchTuning, Trial
from rollouts.tuning.tune import tune_batch

__all__ = ["BatchTuning", "Trial", "tune_batch"]
