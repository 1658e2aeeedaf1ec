# SPDX-License-Identifier: Apache-2.0
"""Pools on a GPU, and the same kernels as loops on the host (`device="cpu-emulation"`).

`make_vec(id, num_envs, device="cuda")` makes a `DeviceVectorEnv`, or a
`MultiAgentDeviceVectorEnv` where agents are several. The text of its kernel is the
environment's header and native/include/rollouts/device/; NVRTC compiles it for the card that is
there, a C++ compiler for the host.
"""
