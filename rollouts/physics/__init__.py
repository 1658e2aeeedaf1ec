# SPDX-License-Identifier: Apache-2.0
"""Gymnasium's MuJoCo tasks on a GPU: physics of mujoco_warp, everything else kernels of ours.

Read `vector_env.py` first: what a user holds. `pool.py` has the order of a step, which one graph
replays; `worlds.py` is mujoco_warp's model and data; `tasks.py` says of each id what it observes
and which kernels it takes, and `kernels/` has those, in Warp's subset of Python.
"""
