# SPDX-License-Identifier: Apache-2.0
"""Parts that several adapters need: episodes, infos by row, environments in processes, extras."""
