# SPDX-License-Identifier: Apache-2.0
"""Contestants of `rollouts bench adapter`: our adapters, and what each library has itself.

A module per library; its CONTESTANTS maps names to what makes them, ours first
(`comparisons.adapters.measuring.Contestants`).
"""
