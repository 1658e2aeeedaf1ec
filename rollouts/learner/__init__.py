# SPDX-License-Identifier: Apache-2.0
"""What a learner takes: fragments as they arrive, and the count of every env-step."""
