# SPDX-License-Identifier: Apache-2.0
# Cross compilation with Debian's g++-aarch64-linux-gnu. CPython's headers are the same for
# both 64-bit Linux architectures, those of the interpreter that builds do.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
