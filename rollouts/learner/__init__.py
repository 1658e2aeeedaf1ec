# SPDX-License-Identifier: Apache-2.0
"""The learner's side: fragments as they arrive, and the count of every env-step."""
