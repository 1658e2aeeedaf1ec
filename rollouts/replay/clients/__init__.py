# SPDX-License-Identifier: Apache-2.0
"""Learners in other processes: their side, and the service's side that answers them.

asking.py  messages between both sides
desk.py    the service's side: the order of clients, and what happens if one of them dies
draft.py   a batch on its way to a client
client.py  ReplayClient
"""
