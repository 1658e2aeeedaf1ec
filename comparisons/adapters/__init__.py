# SPDX-License-Identifier: Apache-2.0
"""Contestants of `rollouts bench adapter`: our adapters, and each library's own ways to step.

A module per library; its CONTESTANTS maps names to their makers, ours first
(`comparisons.adapters.measuring.Contestants`).
"""
