# SPDX-License-Identifier: Apache-2.0
"""Libraries whose pins clash with ours, measured in an interpreter of their own.

`child` starts that interpreter, which runs `serve`, and stops it between its turns. `serve` runs
`steps_...` and `samples_...` there: these import nothing of ours, and no module here imports them.
`peers` puts them next to the other peers. `make peers` makes the interpreters.
"""
