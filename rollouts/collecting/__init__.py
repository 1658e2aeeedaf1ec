# SPDX-License-Identifier: Apache-2.0
"""Rollouts: a policy steps a pool, and what it did is kept in arrays."""
