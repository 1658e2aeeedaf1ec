# SPDX-License-Identifier: Apache-2.0
"""Engines as peers: the same actions, without our environments around the engine."""
