# SPDX-License-Identifier: Apache-2.0
"""Policies as files that need no `rollouts`: ONNX, torch.export, TorchScript, or C.

`rollouts.export` writes one, after it was compared with the policy. `rollouts.ExportedPolicy` acts
by one.
"""
