# SPDX-License-Identifier: Apache-2.0
"""Replay buffers of other libraries, for `rollouts bench replay`."""
