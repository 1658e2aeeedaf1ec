# SPDX-License-Identifier: Apache-2.0
"""The log of a run, from which its steps can be made again, see `docs/how_to/time_travel.md`.

Files in reading order: `record_options` (the user's options), `log_format` (records in a file),
`log_writer` (the thread that writes and rotates), `log_header` (facts about the run),
`fragment_sums` and `suspects` (checks of each fragment), `tape` (the part that a collector calls),
`log_reader` (finds a step). `rollouts/collecting/replayed.py` makes the step again.
"""
