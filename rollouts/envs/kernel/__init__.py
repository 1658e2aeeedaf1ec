# SPDX-License-Identifier: Apache-2.0
"""Pools on a GPU, and the same kernels as loops on the host (`device="cpu-emulation"`).

With `device="cuda"`, the faces of `make_vec(id, num_envs)` get a `KernelEngine`, or a
`PhysicsEngine` of `rollouts.envs.physics`. `device_engine.py` checks calls and has the common part
of both; `kernel_steps.py` launches. A kernel's source is the environment's header and
native/include/rollouts/device/; NVRTC compiles it for the present card, a C++ compiler for the
host.
"""
