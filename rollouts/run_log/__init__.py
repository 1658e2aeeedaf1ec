# SPDX-License-Identifier: Apache-2.0
"""The log of a run: what makes any of its steps again. `docs/how_to/time_travel.md` shows its use.

Files in reading order: `record_options` (what is asked for), `log_format` (records in a file),
`log_writer` (the thread that writes and rotates), `log_header` (what a log says of its run),
`fragment_sums` and `suspects` (what is looked at in each fragment), `tape` (the part that a
collector calls), `log_reader` (finds a step). `rollouts/collecting/replayed.py` makes it again.
"""
