# SPDX-License-Identifier: Apache-2.0
"""What every other folder uses and no user sees."""
