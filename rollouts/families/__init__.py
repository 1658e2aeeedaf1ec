# SPDX-License-Identifier: Apache-2.0
"""Families of environments that an engine steps: ids, files, fields of models."""
