# SPDX-License-Identifier: Apache-2.0
"""Loops of other libraries over environments and a policy, for `rollouts bench collect`."""
