# SPDX-License-Identifier: Apache-2.0
"""Pools on a GPU, and the same kernels as loops on the host (`device="cpu-emulation"`).

`make_vec(id, num_envs, device="cuda")` gives the same faces as without a device a `KernelEngine`,
or a `PhysicsEngine` of `rollouts.envs.physics`. `device_engine.py` checks calls and has what both
share; `kernel_steps.py` launches. The text of a kernel is the environment's header and
native/include/rollouts/device/; NVRTC compiles it for the card that is there, a C++ compiler for
the host.
"""
