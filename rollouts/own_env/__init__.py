# SPDX-License-Identifier: Apache-2.0
"""Environments of the user's own, from C++ headers: `rollouts.register_env` compiles and adds them.

`header_files` reads the text, `compiler` runs the system's compiler, whose library `cache` keeps,
and `registrations` tells the native core, other processes and other devices.
"""
