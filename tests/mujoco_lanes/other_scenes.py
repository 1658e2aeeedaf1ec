# SPDX-License-Identifier: Apache-2.0
"""Models with features that lanes may refuse; where they do not, they equal MuJoCo."""

from __future__ import annotations

from mujoco_scenes import FLOOR, actuated, arm, falling, scene, sensing, two, walker

OTHERS: dict[str, str] = {
    "implicitfast": scene(arm('damping="1"'), option='integrator="implicitfast"'),
    "implicit": scene(arm('damping="1"'), option='integrator="implicit"'),
    "elliptic cones": scene(walker(), option='cone="elliptic"'),
    "CG": scene(walker(), option='solver="CG"'),
    "noslip": scene(walker(), option='noslip_iterations="3"'),
    "PGS with dry friction": scene(arm('frictionloss=".5"'), option='solver="PGS"'),
    "PGS with several trees": scene(two(), option='solver="PGS"'),
    "4 dimensions": scene(two('condim="4"', 'condim="3"')),
    "6 dimensions": scene(two('condim="6"', 'condim="1"')),
    "a priority of 6 dimensions": scene(two('priority="1" condim="6"', 'condim="3"')),
    "gaps": scene(two('margin=".05" gap=".02"', 'margin=".03"')),
    "an explicit pair": scene(
        two(), '<contact><pair geom1="floor" geom2="p" friction=".3 .3 .01 .01 .01"/></contact>'
    ).replace('type="sphere" size=".1"', 'name="p" type="sphere" size=".1"'),
    "a connection": scene(
        arm(), '<equality><connect body1="lower" body2="world" anchor=".2 0 .1"/></equality>'
    ),
    "a weld": scene(walker(), '<equality><weld body1="left" body2="right"/></equality>'),
    "coupled joints": scene(
        arm(), '<equality><joint joint1="elbow" joint2="shoulder" polycoef=".1 1"/></equality>'
    ),
    "an equality that is off": scene(
        arm(), '<equality><joint joint1="elbow" active="false"/></equality>'
    ),
    "equalities disabled": scene(
        arm(), '<equality><joint joint1="elbow"/></equality>', flags='equality="disable"'
    ),
    "gravity compensation": scene(arm().replace('name="lower"', 'name="lower" gravcomp=".7"')),
    "a spring on a ball joint": scene(
        '<body pos="0 0 1"><joint type="ball" stiffness="3"/><geom size=".1" pos=".2 0 0"/></body>'
    ),
    "a limited ball joint": scene(
        '<body pos="0 0 1"><joint type="ball" range="0 .5" limited="true"/><geom '
        'size=".1" pos=".2 0 0"/></body>'
    ),
    "a spring on a free joint": scene(
        '<body pos="0 0 1"><joint type="free" stiffness="3"/><geom size=".1"/></body>'
    ),
    "a damped free joint": scene(
        '<body pos="0 0 1"><joint type="free" damping="3" armature=".1"/><geom size=".1"/></body>'
    ),
    "a free joint with dry friction": scene(
        '<body pos="0 0 1"><joint type="free" frictionloss="3"/><geom size=".1"/></body>'
    ),
    "ellipsoids in a fluid": scene(
        falling('type="ellipsoid" size=".1 .2 .05" fluidshape="ellipsoid"'), option='density="900"'
    ),
    "boxes": scene(
        falling('type="box" size=".1 .05 .07"')
        + falling('type="box" size=".1 .05 .07"', "c", "0 0 .3")
    ),
    "a mocap body": scene(
        '<body name="m" mocap="true" pos="0 0 .1"><geom size=".1"/></body>'
        + falling(pos=".05 0 .4")
    ),
    "a limited tendon": scene(
        arm(),
        '<tendon><fixed limited="true" range="-.3 .3"><joint joint="elbow" '
        'coef="1"/></fixed></tendon>',
    ),
    "a springy tendon": scene(
        arm(), '<tendon><fixed stiffness="3"><joint joint="elbow" coef="1"/></fixed></tendon>'
    ),
    "a damped tendon": scene(
        arm(), '<tendon><fixed damping="3"><joint joint="elbow" coef="1"/></fixed></tendon>'
    ),
    "a tendon with dry friction": scene(
        arm(), '<tendon><fixed frictionloss="1"><joint joint="elbow" coef="1"/></fixed></tendon>'
    ),
    "a tendon with armature": scene(
        arm(), '<tendon><fixed armature="1"><joint joint="elbow" coef="1"/></fixed></tendon>'
    ),
    "a spatial tendon": scene(
        '<site name="w" pos="0 0 1.5"/>' + arm(),
        '<tendon><spatial stiffness="30"><site site="w"/><site site="tip"/></spatial></tendon>',
    ),
    "a limited tendon of three sites": scene(
        '<site name="w" pos="0 0 1.5"/><site name="v" pos=".2 0 1.5"/>' + arm(),
        '<tendon><spatial limited="true" range="0 .6"><site site="w"/><site site="v"/>'
        '<site site="tip"/></spatial></tendon>',
    ),
    "a tendon around a geom": scene(
        '<site name="w" pos="0 0 1.5"/><geom name="g" pos="0 .1 1.2" size=".1" contype="0"/>'
        + arm(),
        '<tendon><spatial limited="true" range="0 .6"><site site="w"/><geom geom="g"/>'
        '<site site="tip"/></spatial></tendon>',
    ),
    "a tendon over a pulley": scene(
        '<site name="w" pos="0 0 1.5"/>' + arm(),
        '<tendon><spatial><site site="w"/><site site="tip"/><pulley divisor="2"/><site site="w"/>'
        '<site site="tip"/></spatial></tendon>',
    ),
    "a motor on a spatial tendon": actuated(
        '<motor tendon="t" gear="2"/>',
        '<site name="w" pos="0 0 1.5"/>' + arm(),
        extra='<tendon><spatial name="t"><site site="w"/><site site="tip"/></spatial></tendon>',
    ),
    "a tendon's range of forces": actuated(
        '<motor tendon="t" gear="2"/>',
        extra='<tendon><fixed name="t" actuatorfrcrange="-.3 .3" '
        'actuatorfrclimited="true"><joint joint="elbow" '
        'coef="1"/></fixed></tendon>',
    ),
    "filtered controls": actuated(
        '<general joint="elbow" dyntype="filter" dynprm=".1" gainprm="3"/>'
    ),
    "exact filters": actuated(
        '<general joint="elbow" dyntype="filterexact" dynprm=".1" gainprm="3"/>'
    ),
    "integrated controls": actuated('<intvelocity joint="elbow" kp="5" actrange="-1 1"/>'),
    "a muscle": actuated('<muscle joint="elbow" lengthrange="-1 1" ctrlrange="0 1"/>'),
    "a damper": actuated('<damper joint="elbow" kv="5" ctrlrange="0 1"/>'),
    "a pneumatic cylinder": actuated('<cylinder joint="elbow" timeconst=".1" area=".01"/>'),
    "a motor on a ball joint": actuated(
        '<motor joint="j" gear="1 2 3"/>',
        '<body pos="0 0 1"><joint name="j" type="ball"/><geom size=".1" pos=".2 0 0"/></body>',
    ),
    "a motor on a free joint": actuated('<motor joint="b" gear="1 2 3 .1 .2 .3"/>', falling()),
    "a motor on a free joint's parent": actuated(
        '<motor jointinparent="b" gear="1 2 3 .1 .2 .3"/>', falling()
    ),
    "a motor in the parent's frame": actuated('<motor jointinparent="elbow" gear="3"/>'),
    "a motor at a site": actuated('<motor site="tip" gear="0 0 1 0 0 0"/>'),
    "adhesion": actuated(
        '<adhesion body="b" gain="3" ctrlrange="0 1"/>', FLOOR + falling(pos="0 0 .1")
    ),
    "a slider and crank": actuated(
        '<motor cranksite="tip" slidersite="w" cranklength=".5" gear="1"/>',
        '<site name="w" pos="0 0 1.5"/>' + arm(),
    ),
    "a disabled group of actuators": actuated(
        '<motor joint="elbow" gear="3" group="2"/>', option='actuatorgroupdisable="2"'
    ),
    "a delayed actuator": actuated('<motor joint="elbow" gear="3" delay=".02" nsample="12"/>'),
    "no islands": scene(walker(), flags='island="disable"'),
    "no passive springs": scene(arm('stiffness="3" damping="1"'), flags='spring="disable"'),
    "no passive damping": scene(arm('stiffness="3" damping="1"'), flags='damper="disable"'),
    "no dry friction": scene(arm('frictionloss=".5"'), flags='frictionloss="disable"'),
    "no middle phase": scene(walker(), flags='midphase="disable"'),
    "no sensors": sensing('<jointpos joint="left"/>').replace(
        "</option>", '<flag sensor="disable"/></option>'
    ),
    "several contacts of convex geoms": scene(walker(), flags='multiccd="enable"'),
    "an override of contacts": scene(
        walker(), option='o_margin=".05" o_solref=".05 1"', flags='override="enable"'
    ),
    "an inverse that is compared": scene(walker(), flags='fwdinv="enable"'),
    "a discrete inverse": scene(walker(), flags='invdiscrete="enable"'),
    "sleep": scene(walker(), flags='sleep="enable"'),
    "no automatic reset": scene(walker(), flags='autoreset="disable"'),
    "many degrees of freedom": scene(
        "".join(falling(name=f"m{i}", pos=f"{i} 0 1") for i in range(12))
    ),
    "a flexible rope": '<mujoco><worldbody><flexcomp name="f" type="grid" dim="1" count="5 1 1" '
    'spacing=".1 .1 .1" radius=".01" pos="0 0 1" '
    'mass="1"/></worldbody></mujoco>',
    "a mesh": scene(
        FLOOR + falling('type="mesh" mesh="m"'),
        '<asset><mesh name="m" vertex="0 0 0 .2 0 0 0 .2 0 0 0 .2"/></asset>',
    ),
    "a height field": scene(
        '<geom type="hfield" hfield="h"/>' + falling(pos="0 0 .4"),
        '<asset><hfield name="h" nrow="3" ncol="3" size="1 1 .3 .1" elevation="0 '
        '1 0 1 0 1 0 1 0"/></asset>',
    ),
    "nothing that moves": scene(FLOOR),
    "slippery": scene(
        two('friction="0"', 'friction="0"', '<geom type="plane" size="9 9 1" friction="0"/>')
    ),
    "no tolerance": scene(walker(), option='tolerance="0" iterations="7"'),
    "a box and a sphere": scene(
        FLOOR + falling('type="box" size=".1 .05 .07"') + falling(name="s", pos="0 0 .4")
    ),
    "a cylinder and a capsule": scene(
        falling('type="cylinder" size=".1 .05"', pos="0 0 1")
        + falling('type="capsule" size=".1 .1"', "s", "0 0 1.2")
    ),
}
