# SPDX-License-Identifier: Apache-2.0
"""Processes that step environments: memory they share, messages, their work, their lives."""
