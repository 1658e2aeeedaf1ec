# SPDX-License-Identifier: Apache-2.0
"""Policies as files that need no `rollouts`: ONNX, torch.export, TorchScript, or C.

`rollouts.export` writes a file, after comparing it with the policy. `rollouts.ExportedPolicy` reads
a file and acts.
"""
