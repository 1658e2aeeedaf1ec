# SPDX-License-Identifier: Apache-2.0
"""Rollouts of a pool: `rollouts.Collector`."""

from rollouts.collecting.collector import Collector

__all__ = ["Collector"]
