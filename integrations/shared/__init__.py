# SPDX-License-Identifier: Apache-2.0
"""What several adapters need: episodes, infos by row, environments in processes, extras."""
