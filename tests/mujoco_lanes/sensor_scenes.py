# SPDX-License-Identifier: Apache-2.0
"""Sensors of a walker (`mujoco_scenes.sensing`)."""

from __future__ import annotations

_FRAMES = [
    f'<{kind} objtype="{of}" objname="{name}"/>'
    for kind in (
        "framepos",
        "framequat",
        "framexaxis",
        "frameyaxis",
        "framezaxis",
        "framelinvel",
        "frameangvel",
        "framelinacc",
        "frameangacc",
    )
    for of, name in (("body", "left"), ("xbody", "left"), ("geom", "left"), ("site", "site"))
]
_RELATIVE = [
    f'<{kind} objtype="body" objname="left" reftype="{of}" refname="{name}"/>'
    for kind in ("framepos", "framequat", "framexaxis", "framelinvel", "frameangvel")
    for of, name in (("site", "site"), ("body", "loose"))
]
SENSORS = [
    *(
        f'<{kind} site="site"/>'
        for kind in ("touch", "accelerometer", "velocimeter", "gyro", "magnetometer", "rangefinder")
    ),
    *(
        f'<{kind} site="left_shin"/>'
        for kind in ("touch", "accelerometer", "gyro", "force", "torque")
    ),
    *(
        f'<{kind} joint="left"/>'
        for kind in (
            "jointpos",
            "jointvel",
            "jointlimitpos",
            "jointlimitvel",
            "jointlimitfrc",
            "jointactuatorfrc",
        )
    ),
    *(f'<{kind} tendon="tendon"/>' for kind in ("tendonpos", "tendonvel", "tendonactuatorfrc")),
    *(f'<{kind} actuator="motor"/>' for kind in ("actuatorpos", "actuatorvel", "actuatorfrc")),
    *(f'<{kind} body="trunk"/>' for kind in ("subtreecom", "subtreelinvel", "subtreeangmom")),
    "<clock/>",
    "<e_potential/>",
    "<e_kinetic/>",
    '<distance geom1="left" geom2="right" cutoff="2"/>',
    '<normal geom1="left" geom2="right" cutoff="2"/>',
    '<fromto geom1="left" geom2="right" cutoff="2"/>',
    '<contact geom1="left" num="2" data="found force"/>',
    '<insidesite site="site" objtype="body" objname="loose"/>',
    '<camprojection site="site" camera="camera"/>',
    '<jointpos joint="left" cutoff=".1"/>',
    '<touch site="site" cutoff="3"/>',
    '<gyro site="site" cutoff=".5"/>',
    '<accelerometer site="site" noise=".1"/>',
    '<framepos objtype="camera" objname="camera"/>',
    # each kind once, each object twice and more
    *(one for i, one in enumerate(_FRAMES) if i % 4 == i // 4 % 4),
    *(one for i, one in enumerate(_RELATIVE) if i % 2 == i // 2 % 2),
]
# the other pairs of a kind and an object
MORE_SENSORS = [one for one in _FRAMES + _RELATIVE if one not in SENSORS]
