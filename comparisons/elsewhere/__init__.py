# SPDX-License-Identifier: Apache-2.0
"""Libraries whose pins clash with ours, measured in an interpreter of their own.

`child` starts that interpreter, which runs `serve`, and stops it between its turns. `steps_...` and
`samples_...` are what `serve` runs there: they import nothing of ours, and nothing here imports
them. `peers` puts them beside the other peers. `make peers` makes the interpreters.
"""
