# SPDX-License-Identifier: Apache-2.0
"""Pools: environments by id, their options, and the batches they give."""
