# SPDX-License-Identifier: Apache-2.0
"""Families: one row per folder of native/include/rollouts/envs, with engine, files and models."""
