# SPDX-License-Identifier: Apache-2.0
"""`rollouts verify-mujoco`: our vector lanes and MuJoCo, step by step from the same states.

Start with `command`. `driver` makes states, `comparison` steps them in both and collects errors,
`trace` describes a step that differs, `runs` lets both go on without correction.
"""
