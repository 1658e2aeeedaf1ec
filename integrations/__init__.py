# SPDX-License-Identifier: Apache-2.0
"""Adapters to other libraries, one file each, installed as `rollouts.integrations`."""
