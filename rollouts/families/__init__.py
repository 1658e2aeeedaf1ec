# SPDX-License-Identifier: Apache-2.0
"""Families: one row per folder of native/include/rollouts/envs; engines, their files and models."""
