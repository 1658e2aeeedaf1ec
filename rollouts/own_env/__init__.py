# SPDX-License-Identifier: Apache-2.0
"""Users' own environments from C++ headers: `rollouts.register_env` compiles and adds them.

`header_files` reads the text, `compiler` runs the system's compiler, `cache` keeps its libraries,
and `registrations` adds them to the native core, other processes and other devices.
"""
