# SPDX-License-Identifier: Apache-2.0
"""Processes that step environments: shared memory, messages, workers, start and end."""
