# SPDX-License-Identifier: Apache-2.0
"""Corrects contacts in which mujoco_warp 4.0 differs from MuJoCo."""

from __future__ import annotations

import warp as wp

# gradients are not needed, and would double the code to compile
wp.set_module_options({"enable_backward": False})

_PLANE = wp.constant(0)  # mjGEOM_PLANE
_CAPSULE = wp.constant(3)  # mjGEOM_CAPSULE
_VERTICAL = wp.constant(1.0e-6)


@wp.kernel
def align_with_capsules(
    num_contacts: wp.array[int],
    worlds: wp.array[int],
    geoms: wp.array[wp.vec2i],
    geom_type: wp.array[int],
    geom_xmat: wp.array2d[wp.mat33],
    frames: wp.array[wp.mat33],
):
    """Aligns friction between a plane and a capsule with the capsule, however steep it is.

    mujoco_warp does so up to 60 degrees only. The direction matters, as a friction pyramid has
    corners.
    """
    i = wp.tid()
    if i >= num_contacts[0]:
        return
    pair = geoms[i]
    if geom_type[pair[0]] != _PLANE or geom_type[pair[1]] != _CAPSULE:
        return
    frame = frames[i]
    normal = wp.vec3(frame[0, 0], frame[0, 1], frame[0, 2])
    turned = geom_xmat[worlds[i], pair[1]]
    axis = wp.vec3(turned[0, 2], turned[1, 2], turned[2, 2])
    along = axis - wp.dot(axis, normal) * normal
    length = wp.length(along)
    if length > _VERTICAL:
        along = along / length
        across = wp.cross(normal, along)
        frames[i] = wp.matrix_from_rows(normal, along, across)
