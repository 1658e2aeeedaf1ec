# SPDX-License-Identifier: Apache-2.0
"""What the machine has, and how much of it a pool and torch take."""
