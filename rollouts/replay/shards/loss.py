# SPDX-License-Identifier: Apache-2.0
"""Loss: the data that died with the processes of a shard."""

from __future__ import annotations

from dataclasses import dataclass, field

from rollouts.replay.shards.shard import ShardReport, TableReport

NO_ITEMS = TableReport()


@dataclass(slots=True, eq=False)
class Loss:
    """Counts of the data that died with a shard's processes, after the last checkpoints.

    Attributes:
      env_steps, episodes_cut  counts of inserted data
      inserts, deletes  By table.
      items  By table: items that did not come back.
    """

    env_steps: int = 0
    inserts: dict[str, int] = field(default_factory=dict)
    items: dict[str, int] = field(default_factory=dict)
    deletes: dict[str, int] = field(default_factory=dict)
    episodes_cut: int = 0

    def add(self, had: ShardReport, back: ShardReport) -> None:
        """Counts what a shard had and does not get back from its checkpoint.

        An item that was inserted after the checkpoint is lost, whatever number comes back: a full
        table has as many items as before, and they are older.
        """
        self.env_steps += had.env_steps - back.env_steps
        self.episodes_cut += had.episodes_cut - back.episodes_cut
        for name, table in had.tables.items():
            saved = back.tables.get(name, NO_ITEMS)
            inserts = table.inserts - saved.inserts
            lost = max(0, min(table.size, inserts))
            self.inserts[name] = self.inserts.get(name, 0) + inserts
            self.items[name] = self.items.get(name, 0) + lost
            self.deletes[name] = self.deletes.get(name, 0) + table.deletes - saved.deletes
