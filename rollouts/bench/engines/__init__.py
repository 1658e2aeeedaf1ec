# SPDX-License-Identifier: Apache-2.0
"""Engines as peers: what they make of the same actions without our environments."""

from __future__ import annotations

from rollouts.bench.engines.mujoco import MujocoRollout
from rollouts.bench.engines.mujoco_batch import MujocoBatch
from rollouts.bench.engines.vizdoom import VizdoomEngine

ENGINES = {peer.name: peer for peer in (MujocoRollout(), MujocoBatch(), VizdoomEngine())}
