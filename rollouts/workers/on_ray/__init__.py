# SPDX-License-Identifier: Apache-2.0
"""Rollouts through Ray: the only folder that imports it, and only when workers start."""
