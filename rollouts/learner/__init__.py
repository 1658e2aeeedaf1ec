# SPDX-License-Identifier: Apache-2.0
"""The learner's side: the queue of fragments, native gradient steps, and the count of env-steps."""
