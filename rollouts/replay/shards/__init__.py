# SPDX-License-Identifier: Apache-2.0
"""The parts of ReplayService: what runs in a shard, and what the driver knows of its shards.

shard.py      a shard's buffer, and the calls that it answers; `rollouts.workers` hosts it
options.py    what each shard takes, as users give it
keys.py       keys of items that say in which incarnation of which shard they are
joining.py    how many items each shard draws, and their batches as one
admission.py  the rate limiter of a table that is spread over shards
shard_set.py  fragments into shards, and what becomes of a shard that dies
requests.py   batches on their way
supply.py     whether fragments come, and why none do
saving.py     checkpoints of all shards
"""
