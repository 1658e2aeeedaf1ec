# SPDX-License-Identifier: Apache-2.0
"""Kernels in Warp's subset of Python: a thread for each world, which is an environment."""
