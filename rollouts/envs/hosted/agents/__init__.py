# SPDX-License-Identifier: Apache-2.0
"""Environments of PettingZoo: one as a `gymnasium.Env`, and batches of them by group."""
