# SPDX-License-Identifier: Apache-2.0
"""Support: missing packages, the end of a process, warnings and options' help, for all folders."""
