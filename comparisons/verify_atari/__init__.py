# SPDX-License-Identifier: Apache-2.0
"""`rollouts verify-atari`: our own Atari 2600 and ale-py's emulator in lock-step.

Start with `command`. `players` puts both emulators behind one interface, `lockstep` compares their
frames, `snapshots` restored states, `golden` keeps hashes of ale-py's frames.
"""
