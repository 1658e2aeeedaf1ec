# SPDX-License-Identifier: Apache-2.0
"""What programs of this folder share: runs, checkpoints, the replay loop, evaluation, pictures."""
