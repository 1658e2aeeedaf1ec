# SPDX-License-Identifier: Apache-2.0
"""MuJoCo's tasks on a GPU: physics of mujoco_warp, everything else kernels of ours.

Read `physics_engine.py` first: what a user's environment holds, with `physics_steps.py` for a step
and a reset. `pool.py` has the order of a step, which one graph
replays (`graphs.py`), or two where functions of the user's are called between (`functions.py`);
`worlds.py` is mujoco_warp's model and data, and `model_fields.py` how worlds' models differ.
`tasks.py`, `suite_tasks.py` and `own_task.py` say of each id what it observes and which kernels it
takes, and `kernels/` has those, in Warp's subset of Python.
"""
