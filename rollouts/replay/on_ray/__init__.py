# SPDX-License-Identifier: Apache-2.0
"""The parts of a ReplayService in Ray: its shards as actors, and the mailbox of its clients."""
