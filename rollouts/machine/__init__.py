# SPDX-License-Identifier: Apache-2.0
"""The machine's CPUs and memory, and how much of them a pool and torch take."""
