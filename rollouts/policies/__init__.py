# SPDX-License-Identifier: Apache-2.0
"""Policies: their protocol, the checks of their results, their networks as programs of layers.

Torch policies are in `rollouts.policy`.
"""
