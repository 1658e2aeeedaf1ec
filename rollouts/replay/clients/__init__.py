# SPDX-License-Identifier: Apache-2.0
"""Learners in other processes: what runs beside them, and who answers them beside the service.

asking.py  what both sides tell each other
desk.py    the service's side: whose turn it is, and what becomes of who asks and dies
draft.py   a batch on its way to a client
client.py  ReplayClient
"""
