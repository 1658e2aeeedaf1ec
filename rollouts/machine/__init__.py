# SPDX-License-Identifier: Apache-2.0
"""The machine's CPUs and memory, and the shares that a pool and torch use."""
