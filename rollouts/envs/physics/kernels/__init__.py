# SPDX-License-Identifier: Apache-2.0
"""Kernels in Warp's subset of Python, with one thread for each world, that is, each environment."""
