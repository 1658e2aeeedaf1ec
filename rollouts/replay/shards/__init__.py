# SPDX-License-Identifier: Apache-2.0
"""The parts of ReplayService: the code of a shard, and the driver's view of its shards.

shard.py               a shard's buffer, and the calls that it answers; `rollouts.workers` hosts it
shard_options.py       users' options of each shard
keys.py                keys of items that hold shard and incarnation
joining.py             how many items each shard draws, and their batches joined to one
admission.py           the rate limiter of a table that is spread over shards
shard_set.py           fragments into shards, and what happens if a shard dies
requests.py            batches on their way
supply.py              whether fragments come, and the reason if none do
service_checkpoint.py  the files of a checkpoint of all shards
saving.py              such a checkpoint while it is made
"""
