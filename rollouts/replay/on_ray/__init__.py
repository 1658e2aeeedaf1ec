# SPDX-License-Identifier: Apache-2.0
"""The two links of a ReplayService with Ray: its shards as actors, and the mailbox of clients."""
