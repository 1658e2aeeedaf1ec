# SPDX-License-Identifier: Apache-2.0
"""MuJoCo's tasks on a GPU: mujoco_warp computes the physics, our own kernels the rest.

Read `physics_engine.py` first, the engine of a user's environments, then `physics_steps.py` for a
step and a reset. `physics_pool.py` has the order of a step, which one graph replays (`graphs.py`),
or two where the user's functions are called between them (`batch_functions.py`). `worlds.py` has
mujoco_warp's model and data, and `world_fields.py` the differences between worlds' models.
`header_task.py` makes kernels from the C++ pool's headers, for tasks of Gymnasium and of the
DeepMind Control Suite. `own_task.py` is for a user's own model. `kernels/` has the functions in
Warp's subset of Python that these modules launch, and the rules of an episode.
"""
