# SPDX-License-Identifier: Apache-2.0
"""MuJoCo's tasks on a GPU: physics of mujoco_warp, everything else kernels of ours.

Read `physics_engine.py` first: what a user's environment holds, with `physics_steps.py` for a step
and a reset. `pool.py` has the order of a step, which one graph replays (`graphs.py`), or two where
functions of the user's are called between (`functions.py`). `worlds.py` is mujoco_warp's model and
data, and `model_fields.py` how worlds' models differ. `header_task.py` makes kernels of the C++
pool's headers, for Gymnasium's tasks and the DeepMind Control Suite's. `own_task.py` is a user's
own model. `kernels/`, in Warp's subset of Python, has its parts and the rules of an episode.
"""
