# SPDX-License-Identifier: Apache-2.0
"""What a policy is, the checks of what it returns, and its network as a program of layers.

Torch policies are in `rollouts.policy`.
"""
