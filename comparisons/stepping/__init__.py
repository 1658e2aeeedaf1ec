# SPDX-License-Identifier: Apache-2.0
"""Engines as peers: what they make of the same actions without our environments."""
