# SPDX-License-Identifier: Apache-2.0
"""Engines alone, as peers: what they make of the same actions without environments."""

from __future__ import annotations

from rollouts.bench.engines.mujoco import MujocoBatch, MujocoRollout
from rollouts.bench.engines.vizdoom import VizdoomEngine

ENGINES = {peer.name: peer for peer in (MujocoRollout(), MujocoBatch(), VizdoomEngine())}
