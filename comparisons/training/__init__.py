# SPDX-License-Identifier: Apache-2.0
"""Whole trainings, ours beside the library's own: `rollouts bench train`."""
