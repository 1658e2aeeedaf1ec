# SPDX-License-Identifier: Apache-2.0
"""Whole trainings, ours next to the library's own: `rollouts bench train`."""
