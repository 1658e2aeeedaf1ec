# SPDX-License-Identifier: Apache-2.0
"""What a policy is, and the checks of what it returns; torch policies are in `rollouts.policy`."""
