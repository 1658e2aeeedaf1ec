# SPDX-License-Identifier: Apache-2.0
"""Rollouts: a policy steps a pool, and all steps are kept in arrays."""
